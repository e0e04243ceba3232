"""The host's own page at the root, the chat below a prefix."""

from secrets import token_urlsafe

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import include, path


def home(request: HttpRequest) -> HttpResponse:
    """Answer as the host's own page."""
    return HttpResponse("the host's own page")


def support(request: HttpRequest) -> HttpResponse:
    """Show two chats in the host's own layout, under a strict policy with a nonce of the host's own."""
    nonce = token_urlsafe(16)
    page = render(request, "shop/support.html", {"nonce": nonce})
    page["Content-Security-Policy"] = f"default-src 'self'; script-src 'self' 'nonce-{nonce}'"
    return page


urlpatterns = [
    path("", home),
    path("support/", support, name="support"),
    path("admin/", admin.site.urls),
    path("assistant/", include("webchat.urls")),
]
