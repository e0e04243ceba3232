"""The addresses of the site: the admin, and the chat with its API."""

from django.contrib import admin
from django.urls import include, path

urlpatterns = [
    path("admin/", admin.site.urls),
    path("api/", include("webchat.api")),
    path("", include("webchat.health")),
    path("", include("webchat.urls")),
]
