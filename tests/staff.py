"""Users who may do more than others, and browsers in which they have signed in (sync)."""

from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.test import Client


def make_staff(user: Any, *codenames: str) -> Any:
    """Make a user staff with these permissions, and no others; return the user."""
    user.is_staff = True
    user.save()
    user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
    return user


def sign_in(user: Any) -> Client:
    """Return a browser in which a user has signed in."""
    client = Client()
    client.force_login(user)
    return client


def staff_client(name: str, *codenames: str) -> Client:
    """Return the browser of a new member of staff with these permissions."""
    return sign_in(make_staff(get_user_model().objects.create_user(name), *codenames))
