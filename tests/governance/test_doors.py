"""Crossings to the database: with whole connections, and on SQLite those of one process wait in line for each other."""

import asyncio
import threading
from contextlib import suppress
from sqlite3 import ProgrammingError

import pytest
from asgiref.sync import ThreadSensitiveContext, async_to_sync
from django.db import DatabaseError, connection

from governance.doors import LONGEST_WAIT, database_door, polling_door
from tests.support import eventually

pytestmark = pytest.mark.django_db(transaction=True)

PATIENCE = LONGEST_WAIT / 2  # who waits longer was let through by the end of the line


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


async def test_who_is_through_may_cross_again_by_way_of_a_coroutine():
    """As the receiver of a signal does that calls a service."""
    inner = database_door(threading.get_ident)
    outer = database_door(lambda: (async_to_sync(inner)(), threading.get_ident()))
    first, second = await asyncio.wait_for(outer(), PATIENCE)
    assert first == second


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


def handle() -> object:
    """The open connection of the thread."""
    connection.ensure_connection()
    return connection.connection


async def test_the_connection_to_a_file_is_kept_where_the_thread_lives_on():
    if connection.vendor != "sqlite":
        pytest.skip("a pool keeps those of a server")
    first = await database_door(handle)()
    assert await database_door(handle)() is first
    assert await polling_door(handle)() is not first


async def test_a_connection_that_has_failed_is_not_used_again():
    def fail() -> object:
        used = handle()
        with suppress(DatabaseError), connection.cursor() as cursor:
            cursor.execute("SELECT nonsense")
        return used

    failed = await database_door(fail)()
    assert await database_door(handle)() is not failed


async def test_a_request_leaves_no_connection_behind():
    async with ThreadSensitiveContext():
        used = await database_door(handle)()
        assert await database_door(lambda: connection.connection)() is None
    if connection.vendor == "sqlite":
        with pytest.raises(ProgrammingError):
            used.execute("SELECT 1")
