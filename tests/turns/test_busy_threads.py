"""A tool's slow query, and threads that hang, hold up nobody else: no limit, no cancel, no message (T1, C1)."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth import get_user_model
from django.contrib.auth.models import AbstractUser
from django.db import connection

from governance import make_tool, registry
from tests.support import PATIENCE, eventually
from tests.turns.support import ChatDriver, FakeTools
from turns import services
from turns.testing import call, text

SOON = 4.0  # seconds; far below what hangs


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """What the slow tools wait for, in whatever thread."""
    gate = threading.Event()
    yield gate
    gate.set()


@pytest.fixture
async def eve_chat(chat: ChatDriver, eve: AbstractUser) -> ChatDriver:
    conversation = await services.create_conversation(user=eve)
    return ChatDriver(user=eve, conversation_id=conversation.id, sink=chat.sink)


@pytest.fixture
def tools(fake_tools: FakeTools, gate: threading.Event) -> Iterator[FakeTools]:
    async def slow_query() -> str:
        def ask() -> None:
            get_user_model().objects.count()
            gate.wait(PATIENCE)

        await sync_to_async(ask)()
        return "done"

    async def slow_thread() -> str:
        await asyncio.to_thread(gate.wait, PATIENCE)
        return "done"

    async def count_users() -> str:
        return f"{await get_user_model().objects.acount()} users"

    made = [
        make_tool(slow_query, description="Hang in the ORM.", timeout=0.5),
        make_tool(slow_thread, description="Hang in a thread.", timeout=0.5),
        make_tool(count_users, description="Ask the ORM."),
    ]
    for tool in made:
        registry.register(tool)
    yield fake_tools
    for tool in made:
        registry.unregister(tool.name)


@pytest.mark.parametrize("tool", ["slow_query", "slow_thread"])
async def test_calls_that_hang_reach_their_limits_and_hold_up_nobody(
    chat: ChatDriver, eve_chat: ChatDriver, tools: FakeTools, gate: threading.Event, tool: str
):
    chat.use_script([call("held", "held")])
    cancelled = await eve_chat.say()
    await eve_chat.running(cancelled, "held")

    hanging = await chat.begin(
        [call(f"c{number}", tool) for number in range(12)],
        [text("Done.")],
        running=[*(f"c{number}" for number in range(12))],
    )

    await eve_chat.cancel(cancelled)
    turn = await eve_chat.ended(cancelled, within=SOON)
    assert turn.status == "cancelled"
    chat.use_script([call("c", "count_users")], [text("Done.")])
    turn = await eve_chat.ended(await eve_chat.say(), within=SOON)
    assert turn.status == "completed"

    turn = await chat.ended(hanging, within=SOON * 3)
    rows = (await chat.calls(hanging)).values()
    assert {row.error_type for row in rows} == {"timeout"}
    # On a busy machine a function may not have begun before the limit, and then it never does.
    left = [row for row in rows if row.status == "abandoned"]
    assert left
    assert {row.disposition for row in left} == {"indeterminate"}

    gate.set()

    async def are_known_to_have_ended() -> bool:
        calls = await chat.calls(hanging)
        return all(calls[row.call_id].late_kind for row in left)

    await eventually(are_known_to_have_ended)


async def test_a_host_that_fills_djangos_thread_and_the_loops_executor_holds_up_no_turn(
    chat: ChatDriver, tools: FakeTools, gate: threading.Event
):
    loop = asyncio.get_running_loop()
    hanging: list[Any] = [asyncio.ensure_future(sync_to_async(gate.wait)(PATIENCE))]
    hanging += [loop.run_in_executor(None, gate.wait, PATIENCE) for _ in range(64)]
    try:
        chat.use_script([call("a", "count_users"), call("b", "held")], [text("Done.")])
        turn_id = await asyncio.wait_for(chat.say(), SOON)
        await asyncio.wait_for(chat.running(turn_id, "b"), SOON)
        await chat.sink.until("tool_result", within=SOON, tool_id="a")
        await asyncio.wait_for(chat.cancel(turn_id), SOON)
        await chat.sink.until_ended(turn_id, within=SOON)
        assert (await chat.calls(turn_id))["a"].status == "succeeded"
    finally:
        gate.set()
        await asyncio.gather(*hanging)


async def test_the_threads_and_connections_of_many_calls_end_with_them(
    chat: ChatDriver, tools: FakeTools
):
    def of_tools() -> list[str]:
        return [
            one.name
            for one in threading.enumerate()
            if one.name.startswith("database of count_users")
        ]

    calls = [call(f"c{number}", "count_users") for number in range(100)]
    turn = await chat.play(calls, calls_again(calls), [text("Done.")])
    assert turn.status == "completed"
    rows = await chat.calls(turn.pk)
    assert len(rows) == 200
    assert {row.status for row in rows.values()} == {"succeeded"}
    await eventually(lambda: not of_tools())
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
            )
            assert cursor.fetchone()[0] < 30


def calls_again(calls: list[Any]) -> list[Any]:
    return [call(f"again{number}", "count_users") for number in range(len(calls))]
