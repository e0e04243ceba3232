"""Users who may do more than others, and how they sign in."""

from typing import Any

from django.contrib.auth.models import Permission
from django.test import AsyncClient

from governance.db import run_in_db_thread


@run_in_db_thread
def make_staff(user: Any, *codenames: str) -> None:
    """Make a user staff with these permissions, and no others."""
    user.is_staff = True
    user.save()
    user.user_permissions.set(Permission.objects.filter(codename__in=codenames))


async def signed_in(user: Any) -> AsyncClient:
    """Return a client in which a user has signed in."""
    client = AsyncClient()
    await client.aforce_login(user)
    return client


def session_of(client: AsyncClient) -> str:
    """Return the cookie of a client's session."""
    return client.cookies["sessionid"].value
