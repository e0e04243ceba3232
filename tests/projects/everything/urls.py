"""The host's own page at the root, the chat below a prefix."""

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import include, path


def home(request: HttpRequest) -> HttpResponse:
    """Answer as the host's own page."""
    return HttpResponse("the host's own page")


def support(request: HttpRequest) -> HttpResponse:
    """Show two chats in the host's own layout."""
    return render(request, "shop/support.html")


urlpatterns = [
    path("", home),
    path("support/", support),
    path("admin/", admin.site.urls),
    path("assistant/", include("webchat.urls")),
]
