"""Crossings to the database: on SQLite those of one process wait in line for each other."""

import asyncio
import threading

import pytest
from asgiref.sync import ThreadSensitiveContext
from django.db import connection

from governance.doors import database_door
from tests.support import eventually

pytestmark = pytest.mark.django_db(transaction=True)

PATIENCE = 5.0


async def test_requests_that_write_at_once_do_so_one_after_the_other():
    """Each has a thread of its own, as Django's ASGI handler gives it one."""
    inside: set[int] = set()
    most: list[int] = []

    def cross(number: int) -> int:
        inside.add(number)
        most.append(len(inside))
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
        inside.discard(number)
        return threading.get_ident()

    async def request(number: int) -> int:
        async with ThreadSensitiveContext():
            return await database_door(cross)(number)

    threads = await asyncio.gather(*map(request, range(20)))
    assert len(set(threads)) > 1
    assert max(most) == 1 or connection.vendor != "sqlite"


async def test_a_place_in_the_line_is_given_back_after_a_failure():
    def fail() -> None:
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        await database_door(fail)()
    assert await asyncio.wait_for(database_door(lambda: True)(), PATIENCE)


async def test_whoever_waits_too_long_lets_the_database_decide(monkeypatch):
    if connection.vendor != "sqlite":
        pytest.skip("nobody waits in line")
    monkeypatch.setattr("governance.doors.LONGEST_WAIT", 0.01)
    held, may_go = threading.Event(), threading.Event()

    def stand_still() -> None:
        held.set()
        assert may_go.wait(PATIENCE)

    async def request(function) -> object:
        async with ThreadSensitiveContext():
            return await database_door(function)()

    standing = asyncio.create_task(request(stand_still))
    try:
        await eventually(held.is_set)
        assert await asyncio.wait_for(request(lambda: "through"), PATIENCE) == "through"
    finally:
        may_go.set()
        await standing
