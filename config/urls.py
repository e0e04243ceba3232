"""URLs of the site: the admin, and the chat with its API."""

from django.conf import settings
from django.contrib import admin
from django.urls import include, path
from django.utils.translation import gettext_lazy as _
from django.views.generic import RedirectView

admin.site.site_header = admin.site.site_title = _("Turnkeeper administration")

urlpatterns = [
    path("admin/", admin.site.urls),
    # Browsers ask for it where a page names no icon, as those of the admin do.
    path("favicon.ico", RedirectView.as_view(url=f"{settings.STATIC_URL}webchat/img/favicon.svg")),
    path("", include("webchat.urls")),
]
