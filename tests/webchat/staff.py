"""Users who may do more than others, and how they sign in."""

from typing import Any

from django.test import AsyncClient

from governance.db import run_in_db_thread
from tests import staff

make_staff = run_in_db_thread(staff.make_staff)


async def signed_in(user: Any) -> AsyncClient:
    """Return a client in which a user has signed in."""
    client = AsyncClient()
    await client.aforce_login(user)
    return client


def session_of(client: AsyncClient) -> str:
    """Return the cookie of a client's session."""
    return client.cookies["sessionid"].value
