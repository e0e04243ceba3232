"""Registers the console in the project's own admin, replacing governance's plain pages."""

from django.apps import apps
from django.contrib import admin

if apps.is_installed("governance") and apps.is_installed(
    "turns"
):  # otherwise a system check reports it
    import governance.admin  # noqa: F401 - registers its pages first, whatever the order of the apps
    from console.site import register

    register(admin.site)
