"""The limit of busy turns in one process (P4): who waits, in which order, and who takes no room."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from governance import tool
from tests.support import eventually
from tests.turns.core.test_supervisor import SupervisorHarness
from turns.testing import call, gate, text


@pytest.fixture
async def harness() -> AsyncIterator[SupervisorHarness]:
    harness = SupervisorHarness(max_live=2)
    yield harness
    await harness.close()


async def test_what_comes_on_top_waits_and_begins_in_order_when_there_is_room(
    harness: SupervisorHarness,
):
    gates = [asyncio.Event() for _ in range(4)]
    turns = [
        harness.queue(str(number), [gate(passed), text("Done.")])
        for number, passed in enumerate(gates)
    ]
    for turn in turns:
        harness.supervisor.wake(turn.conversation_id)
    await eventually(lambda: len(harness.supervisor.live_turns) == 2)
    assert harness.store.claims == [turn.id for turn in turns[:2]]
    gates[1].set()
    await eventually(lambda: len(harness.store.claims) == 3)
    assert harness.store.claims[2] == turns[2].id
    gates[0].set()
    gates[2].set()
    gates[3].set()
    await harness.store.until_ended(*turns)
    assert harness.store.claims[3] == turns[3].id


async def test_a_free_place_goes_to_the_turn_that_the_store_names_and_nobody_is_forgotten():
    harness = SupervisorHarness(max_live=1)
    try:
        first = harness.queue("first", [text("1")])  # nobody has woken this process for it
        second = harness.queue("second", [text("2")])
        harness.supervisor.wake(second.conversation_id)
        await harness.store.until_ended(first, second)
        assert harness.store.claims == [first.id, second.id]
    finally:
        await harness.close()


async def test_a_process_that_was_full_looks_for_turns_that_it_was_not_told_of():
    harness = SupervisorHarness(max_live=1)
    try:
        passed = asyncio.Event()
        first = harness.queue("first", [gate(passed), text("1")])
        harness.supervisor.wake(first.conversation_id)
        await eventually(lambda: harness.store.claims == [first.id])
        others = [harness.queue(name, [text("2")]) for name in ("second", "third")]
        passed.set()
        await harness.store.until_ended(first, *others)
    finally:
        await harness.close()


async def test_a_turn_that_waits_for_another_turn_takes_no_room():
    harness = SupervisorHarness(max_live=1)
    try:
        parent = harness.queue("parent", [call("c1", "sessions_ask")], [text("Thanks.")])
        child = harness.queue("child", [text("Here.")])
        answered = asyncio.Event()

        async def sessions_ask() -> str:
            """Wait for the other turn."""
            harness.supervisor.wake(child.conversation_id)
            await answered.wait()
            return "here"

        tool(sessions_ask, only_waits=True, register=harness.harness.registry)
        harness.supervisor.wake(parent.conversation_id)
        await harness.store.until_ended(child)
        answered.set()
        await harness.store.until_ended(parent)
    finally:
        await harness.close()


async def test_a_process_without_room_for_any_claims_nothing():
    harness = SupervisorHarness(max_live=0)
    turn = harness.queue("hello", [text("Hi.")])
    harness.supervisor.start()
    harness.supervisor.wake(turn.conversation_id)
    await harness.close()
    assert harness.store.claims == []
