"""Crossings to the database: in threads of our own, with usable connections, one SQLite writer after the other."""

import asyncio
import threading
from contextlib import suppress
from contextvars import ContextVar

import pytest
from asgiref.sync import ThreadSensitiveContext, async_to_sync, sync_to_async
from django.db import DatabaseError, OperationalError, connection, connections, transaction

from governance.db import (
    read_snapshot,
    run_in_db_thread,
    run_in_poll_thread,
    run_in_pool_thread,
    run_in_probe_thread,
    run_in_query_thread,
    without_lock_wait,
)
from governance.models import ToolPolicy
from tests.support import eventually

pytestmark = pytest.mark.django_db(transaction=True)

PATIENCE = 20.0
CROSSINGS = [
    run_in_db_thread,
    run_in_query_thread,
    run_in_pool_thread,
    run_in_poll_thread,
    run_in_probe_thread,
]


async def test_a_sqlite_database_has_one_writer_at_a_time():
    inside: set[int] = set()
    most: list[int] = []

    def cross(number: int) -> None:
        inside.add(number)
        most.append(len(inside))
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
        inside.discard(number)

    async def request(number: int) -> None:
        async with ThreadSensitiveContext():
            await run_in_db_thread(cross)(number)

    await asyncio.gather(*map(request, range(20)))
    assert max(most) == 1 or connection.vendor != "sqlite"


@pytest.mark.parametrize("crossing", CROSSINGS)
async def test_a_crossing_waits_for_neither_djangos_thread_nor_the_loops_executor(crossing):
    may_go = threading.Event()
    loop = asyncio.get_running_loop()
    holding = [loop.run_in_executor(None, may_go.wait, PATIENCE) for _ in range(40)]
    holding.append(asyncio.ensure_future(sync_to_async(may_go.wait)(PATIENCE)))
    try:
        assert await asyncio.wait_for(crossing(ToolPolicy.objects.count)(), PATIENCE / 2) == 0
    finally:
        may_go.set()
        await asyncio.gather(*holding)


async def test_a_failure_reaches_the_caller_and_leaves_the_thread_usable():
    def fail() -> None:
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        await run_in_db_thread(fail)()
    assert await asyncio.wait_for(run_in_db_thread(lambda: True)(), PATIENCE)


async def test_a_receiver_may_cross_again_by_way_of_a_coroutine():
    """As the receiver of a signal does that calls a service."""
    inner = run_in_db_thread(threading.get_ident)
    outer = run_in_db_thread(lambda: (async_to_sync(inner)(), threading.get_ident()))
    first, second = await asyncio.wait_for(outer(), PATIENCE)
    assert first == second


@pytest.mark.parametrize("crossing", CROSSINGS[:-1])  # a probe needs no rows of its caller
def test_a_synchronous_caller_is_served_in_its_own_transaction(crossing):
    with transaction.atomic():
        ToolPolicy.objects.create(tool_name="wait")
        assert async_to_sync(crossing(ToolPolicy.objects.count))() == 1
        assert not connection.needs_rollback
    assert connection.connection is not None


@pytest.mark.parametrize("crossing", CROSSINGS)
async def test_a_crossing_returns_the_result_and_takes_the_context_along(crossing):
    variable: ContextVar[str] = ContextVar("variable", default="")
    variable.set("here")
    assert await crossing(lambda *a, **k: (variable.get(), a, k))(1, b=2) == (
        "here",
        (1,),
        {"b": 2},
    )


async def test_a_reader_does_not_wait_for_a_writer():
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
