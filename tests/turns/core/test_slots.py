"""The limit of busy turns in one process (P4): who waits, in which order, and who takes no room."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from governance import tool
from tests.support import PATIENCE, eventually
from tests.turns.core.test_supervisor import House
from turns.testing import call, gate, text


@pytest.fixture
async def house() -> AsyncIterator[House]:
    house = House(max_live=2)
    yield house
    await house.close()


async def test_what_comes_on_top_waits_and_begins_in_order_when_there_is_room(house: House):
    gates = [asyncio.Event() for _ in range(4)]
    turns = [
        house.queue(str(number), [gate(passed), text("Done.")])
        for number, passed in enumerate(gates)
    ]
    for turn in turns:
        house.supervisor.wake(turn.conversation_id)
    await eventually(lambda: len(house.supervisor.live_turns) == 2)
    assert house.store.claims == [turn.id for turn in turns[:2]]
    assert not house.supervisor.has_room
    gates[1].set()
    await eventually(lambda: len(house.store.claims) == 3)
    assert house.store.claims[2] == turns[2].id
    gates[0].set()
    gates[2].set()
    gates[3].set()
    await house.store.until_ended(*turns)
    assert house.store.claims[3] == turns[3].id
    await asyncio.wait_for(house.supervisor.until_room(), PATIENCE)


async def test_a_free_place_goes_to_the_turn_that_the_store_names_and_nobody_is_forgotten():
    house = House(max_live=1)
    try:
        first = house.queue("first", [text("1")])  # nobody has woken this process for it
        second = house.queue("second", [text("2")])
        house.supervisor.wake(second.conversation_id)
        await house.store.until_ended(first, second)
        assert house.store.claims == [first.id, second.id]
    finally:
        await house.close()


async def test_a_turn_that_waits_for_another_turn_takes_no_room():
    house = House(max_live=1)
    try:
        parent = house.queue("parent", [call("c1", "sessions_ask")], [text("Thanks.")])
        child = house.queue("child", [text("Here.")])
        answered = asyncio.Event()

        async def sessions_ask() -> str:
            """Wait for the other turn."""
            house.supervisor.wake(child.conversation_id)
            await answered.wait()
            return "here"

        tool(sessions_ask, only_waits=True, register=house.stage.registry)
        house.supervisor.wake(parent.conversation_id)
        await house.store.until_ended(child)
        answered.set()
        await house.store.until_ended(parent)
    finally:
        await house.close()


async def test_a_process_without_room_for_any_claims_nothing():
    house = House(max_live=0)
    turn = house.queue("hello", [text("Hi.")])
    house.supervisor.start()
    house.supervisor.wake(turn.conversation_id)
    assert not house.supervisor.has_room
    await house.close()
    assert house.store.claims == []
