"""The host's own page at the root, the chat below a prefix."""

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.urls import include, path


def home(request: HttpRequest) -> HttpResponse:
    """Answer as the host's own page."""
    return HttpResponse("the host's own page")


urlpatterns = [
    path("", home),
    path("admin/", admin.site.urls),
    path("assistant/", include("webchat.urls")),
]
