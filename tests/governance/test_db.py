"""Crossings to the database: with whole connections, and on SQLite those of one process wait in line for each other."""

import asyncio
import threading
from contextlib import suppress
from contextvars import ContextVar
from sqlite3 import ProgrammingError
from typing import Any

import pytest
from asgiref.sync import ThreadSensitiveContext, async_to_sync
from django.db import DatabaseError, OperationalError, connection, connections, transaction

from governance.db import (
    MAX_LOCK_WAIT,
    read_snapshot,
    run_in_db_thread,
    run_in_db_thread_plainly,
    run_in_poll_thread,
    run_in_query_thread,
    without_lock_wait,
)
from governance.models import ToolPolicy
from tests.support import eventually

pytestmark = pytest.mark.django_db(transaction=True)

PATIENCE = MAX_LOCK_WAIT / 2  # who waits longer was let through by the end of the line


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
            return await run_in_db_thread(cross)(number)

    threads = await asyncio.gather(*map(request, range(20)))
    assert len(set(threads)) > 1
    assert max(most) == 1 or connection.vendor != "sqlite"


async def test_a_place_in_the_line_is_given_back_after_a_failure():
    def fail() -> None:
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        await run_in_db_thread(fail)()
    assert await asyncio.wait_for(run_in_db_thread(lambda: True)(), PATIENCE)


async def test_who_is_through_may_cross_again_by_way_of_a_coroutine():
    """As the receiver of a signal does that calls a service."""
    inner = run_in_db_thread(threading.get_ident)
    outer = run_in_db_thread(lambda: (async_to_sync(inner)(), threading.get_ident()))
    first, second = await asyncio.wait_for(outer(), PATIENCE)
    assert first == second


@pytest.mark.parametrize("door", [run_in_db_thread, run_in_db_thread_plainly])
async def test_both_ways_lead_to_the_same_thread(door):
    """To that of the process, of a request, or of whoever waits for the coroutine."""
    cross = door(threading.get_ident)

    async def request() -> tuple[int, int]:
        async with ThreadSensitiveContext():
            return await cross(), await run_in_db_thread(threading.get_ident)()

    assert await cross() == await run_in_db_thread(threading.get_ident)()
    of_request, own = await request()
    assert own != await cross()
    opens_no_file = door is run_in_db_thread_plainly and connection.vendor == "sqlite"
    assert of_request == (await cross() if opens_no_file else own)
    waiting = await asyncio.to_thread(lambda: (async_to_sync(cross)(), threading.get_ident()))
    assert waiting[0] == waiting[1]


@pytest.mark.parametrize(
    ("door", "threads"),
    [(run_in_db_thread_plainly, 1), (run_in_query_thread, 2), (run_in_poll_thread, 1)],
)
async def test_requests_leave_the_connections_of_the_process_open(door, threads):
    if connection.vendor != "sqlite":
        pytest.skip("a server's connection is that of the request")
    ask = door(handle)

    async def request() -> Any:
        async with ThreadSensitiveContext():
            return await ask()

    of_process = await ask()
    kept = {id(used): used for used in [await request() for _ in range(2 * threads + 2)]}
    assert len({id(of_process), *kept}) <= threads


@pytest.mark.parametrize("door", [run_in_db_thread_plainly, run_in_poll_thread])
async def test_a_plain_way_brings_back_what_it_came_to_and_what_was_bound(door):
    bound: ContextVar[str] = ContextVar("bound", default="")
    bound.set("here")
    assert await door(lambda *a, **k: (bound.get(), a, k))(1, b=2) == ("here", (1,), {"b": 2})
    with pytest.raises(KeyError, match="nothing"):
        await door({}.__getitem__)("nothing")


async def test_a_poll_of_a_request_has_the_thread_of_polls():
    ask = run_in_poll_thread(threading.get_ident)

    async def request() -> int:
        async with ThreadSensitiveContext():
            return await ask()

    assert await request() == await ask() != threading.get_ident()


async def test_who_is_cancelled_on_a_plain_way_does_not_wait_and_begins_nothing():
    is_inside, may_leave, begun = threading.Event(), threading.Event(), []

    def hold() -> None:
        is_inside.set()
        may_leave.wait(PATIENCE)
        begun.append("first")

    holding = asyncio.create_task(run_in_db_thread_plainly(hold)())
    await eventually(is_inside.is_set)
    behind = asyncio.create_task(run_in_db_thread_plainly(lambda: begun.append("second"))())
    await asyncio.sleep(0)
    for task in (holding, behind):
        task.cancel()
    await asyncio.wait({holding, behind}, timeout=PATIENCE)
    assert holding.cancelled()
    assert behind.cancelled()
    may_leave.set()
    await run_in_db_thread_plainly(lambda: None)()
    assert begun == ["first"]


async def test_who_only_reads_goes_past_those_who_stand_in_line():
    if connection.vendor != "sqlite":
        pytest.skip("nobody stands in line where readers and writers do not meet")
    is_inside, may_leave = threading.Event(), threading.Event()

    def write() -> None:
        is_inside.set()
        may_leave.wait(PATIENCE)

    writing = asyncio.create_task(run_in_db_thread(write)())
    await eventually(is_inside.is_set)
    assert await asyncio.wait_for(run_in_query_thread(lambda: "read")(), PATIENCE) == "read"
    may_leave.set()
    await writing


@pytest.mark.parametrize(
    ("name", "goes_past"),
    [("file:memorydb_default?mode=memory&cache=shared", False), (":memory:", False), (None, True)],
)
async def test_a_test_in_a_transaction_sees_what_it_has_written_where_the_database_is_in_memory(
    monkeypatch, name, goes_past
):
    if connection.vendor != "sqlite":
        pytest.skip("a server has no database in memory")
    if name is not None:
        monkeypatch.setitem(connections.settings["default"], "NAME", name)
    writing, reading = (
        run_in_db_thread(threading.get_ident),
        run_in_query_thread(threading.get_ident),
    )
    assert (await writing() != await reading()) is goes_past


async def test_one_moment_is_read_and_an_unimportant_write_fails_at_once_while_somebody_writes():
    if connection.vendor != "sqlite":
        pytest.skip("a writer holds the whole file")
    is_inside, may_leave = threading.Event(), threading.Event()

    def write() -> None:
        with transaction.atomic():
            is_inside.set()
            may_leave.wait(PATIENCE)

    def read() -> int:
        with read_snapshot():
            return ToolPolicy.objects.count()

    def note() -> None:
        with without_lock_wait():
            ToolPolicy.objects.create(tool_name="wait")

    writing = asyncio.create_task(run_in_db_thread(write)())
    await eventually(is_inside.is_set)
    assert await asyncio.wait_for(run_in_query_thread(read)(), PATIENCE) == 0
    with pytest.raises(OperationalError, match="locked"):
        await asyncio.wait_for(run_in_query_thread(note)(), PATIENCE)
    may_leave.set()
    await writing
    await run_in_query_thread(note)()
    assert await run_in_query_thread(read)() == 1


async def test_whoever_waits_too_long_lets_the_database_decide(monkeypatch):
    if connection.vendor != "sqlite":
        pytest.skip("nobody waits in line")
    monkeypatch.setattr("governance.db.MAX_LOCK_WAIT", 0.01)
    held, may_go = threading.Event(), threading.Event()

    def stand_still() -> None:
        held.set()
        assert may_go.wait(PATIENCE)

    async def request(function) -> object:
        async with ThreadSensitiveContext():
            return await run_in_db_thread(function)()

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
    first = await run_in_db_thread(handle)()
    assert await run_in_db_thread(handle)() is first
    assert await run_in_poll_thread(handle)() is not first


async def test_a_connection_that_has_failed_is_not_used_again():
    def fail() -> object:
        used = handle()
        with suppress(DatabaseError), connection.cursor() as cursor:
            cursor.execute("SELECT nonsense")
        return used

    failed = await run_in_db_thread(fail)()
    assert await run_in_db_thread(handle)() is not failed


async def test_a_request_leaves_no_connection_behind():
    async with ThreadSensitiveContext():
        used = await run_in_db_thread(handle)()
        assert await run_in_db_thread(lambda: connection.connection)() is None
    if connection.vendor == "sqlite":
        with pytest.raises(ProgrammingError):
            used.execute("SELECT 1")
