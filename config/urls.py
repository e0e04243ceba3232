"""URLs of the site: the admin, and the chat with its API."""

from django.conf import settings
from django.contrib import admin
from django.urls import include, path
from django.utils.translation import gettext_lazy as _
from django.views.generic import RedirectView

admin.site.site_header = admin.site.site_title = _("Turnkeeper administration")

urlpatterns = [
    path("admin/", admin.site.urls),
    # Browsers request this for pages without an icon, such as the admin's.
    path("favicon.ico", RedirectView.as_view(url=f"{settings.STATIC_URL}webchat/img/favicon.svg")),
    path("", include("webchat.urls")),
]
