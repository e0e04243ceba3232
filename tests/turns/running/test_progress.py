"""Progress: stored for all turns at once, in nobody's way, and never where it has no right to be (V1)."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from governance import ToolContext, make_tool, registry
from tests.support import PATIENCE, eventually
from tests.turns.row_factory import RowFactory
from tests.turns.support import ChatDriver, FakeTools, in_database
from turns.core.ports import ClaimedTurn
from turns.events import log
from turns.running import journal, runtime
from turns.running.journal import ProgressReport, store_progress
from turns.running.write_queue import Urgency
from turns.testing import call, text

pytestmark = pytest.mark.django_db(transaction=True)


def plant(owner: Any, *, status: str = "running") -> tuple[RowFactory, ClaimedTurn]:
    """A turn at work with one call in a status."""
    factory = RowFactory(owner)
    turn = factory.turn("running", epoch=7)
    factory.call(turn, "a", status)
    return factory, factory.claimed(turn)


def report(claimed: ClaimedTurn, **values: Any) -> ProgressReport:
    said = {"message": "half", "progress": 1.0, "total": 2.0}
    return ProgressReport(
        **{
            "turn": claimed,
            "tool_id": "a",
            "tool_name": "quick",
            "progress": said,
            "elapsed_ms": 9,
            **values,
        }
    )


def test_of_many_turns_is_stored_with_as_few_queries_as_of_one(ada):
    one = [report(plant(ada)[1])]
    many = [report(plant(ada)[1]) for _ in range(40)]
    with CaptureQueriesContext(connection) as few:
        store_progress(one)
    with CaptureQueriesContext(connection) as queries:
        batches = store_progress(many)
    assert len(queries) <= len(few)
    assert {place for place, _ in batches} == {it.turn.conversation_id for it in many}
    for it in many:
        [event] = log.read(it.turn.conversation_id, after=0)
        assert (event["type"], event["seq"], event["turn_id"]) == (
            "tool_progress",
            1,
            str(it.turn.id),
        )
        assert (event["message"], event["progress"], event["elapsed_ms"]) == ("half", 1.0, 9)


@pytest.mark.parametrize("status", ["pending", "awaiting_approval", "succeeded", "abandoned"])
def test_of_a_call_that_does_not_run_is_left_out(ada, status):
    _, claimed = plant(ada, status=status)
    assert store_progress([report(claimed)]) == []
    assert log.read(claimed.conversation_id, after=0) == []


def test_of_a_turn_that_another_process_owns_is_left_out(ada):
    factory, claimed = plant(ada)
    factory.conversation.turns.update(epoch=8)
    assert store_progress([report(claimed)]) == []
    assert factory.conversation.turns.get().pk == claimed.id
    assert log.read(factory.id, after=0) == []


async def test_waits_for_nobody_who_writes_the_conversation(chat: ChatDriver, ada):
    """Where the database can be asked so: on SQLite a writer holds the whole file."""
    if connection.vendor == "sqlite":
        pytest.skip("a writer holds the whole file")
    _, claimed = await in_database(lambda: plant(ada))
    _, other = await in_database(lambda: plant(ada))
    held, let_go = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def hold() -> None:
        with transaction.atomic():
            log.locked(claimed.conversation_id)
            loop.call_soon_threadsafe(held.set)
            asyncio.run_coroutine_threadsafe(let_go.wait(), loop).result()
        connection.close()

    holding = asyncio.create_task(asyncio.to_thread(hold))
    await held.wait()
    try:
        batches = await in_database(lambda: store_progress([report(claimed), report(other)]))
    finally:
        let_go.set()
        await holding
    assert [place for place, _ in batches] == [other.conversation_id]


@contextmanager
def registered(function: Callable[..., Any]) -> Iterator[None]:
    """Offer a function as a tool for as long as the block lasts."""
    tool = make_tool(function)
    registry.register(tool)
    try:
        yield
    finally:
        registry.unregister(tool.name)


async def test_a_write_that_took_long_does_not_silence_what_comes_next(
    chat: ChatDriver, fake_tools: FakeTools, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(journal, "PROGRESS_SHARE", 10**9)  # as if each write had taken years
    monkeypatch.setattr(journal, "LONGEST_PROGRESS_PAUSE", 0.01)
    is_told = asyncio.Event()

    async def chatty(context: ToolContext) -> str:
        context.progress("first")
        await is_told.wait()
        context.progress("second")
        await asyncio.Event().wait()
        return "never"

    with registered(chatty):
        chat.use_script([call("a", "chatty")], [text("Done.")])
        turn_id = await chat.say()
        await chat.sink.until("tool_progress", message="first")
        is_told.set()
        await chat.sink.until("tool_progress", message="second")
        await chat.cancel(turn_id)
        await chat.ended(turn_id)


async def test_does_not_keep_a_call_or_a_turn_from_its_end(chat: ChatDriver, fake_tools: FakeTools):
    """However long progress waits, an end that comes later is stored before it, and nothing of it after that."""
    reported = asyncio.Event()

    async def chatty(context: ToolContext) -> str:
        context.progress("working")
        reported.set()
        await asyncio.Event().wait()
        return "never"

    with registered(chatty):
        chat.use_script([call("a", "chatty")], [text("Done.")])
        turn_id = await chat.say()
        await asyncio.wait_for(reported.wait(), PATIENCE)
        running = await runtime.ensure_started()
        async with running.lock.acquired(Urgency.WORK):
            await eventually(lambda: running.progress._pending)
            receipt = await chat.cancel(turn_id)
            assert receipt.status == "cancelling"
        assert (await chat.ended(turn_id)).status == "cancelled"
        await eventually(lambda: not running.progress._pending)
        await chat.check()
