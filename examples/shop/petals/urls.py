"""Addresses: the shop, the admin, and the assistant."""

from django.contrib import admin
from django.urls import include, path

urlpatterns = [
    path("", include("shop.urls")),
    path("admin/", admin.site.urls),
    path("assistant/", include("webchat.urls")),
]
