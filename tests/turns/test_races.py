"""Cancels, results and messages at the same moment, in many orders: one ending each, a log by the rules."""

import asyncio
import random

import pytest

from tests.support import PATIENCE
from tests.turns.support import PROMISED_MS, TERMINAL, ChatDriver, FakeTools, in_database, row
from turns.models import CancelRequest, Turn
from turns.services import OpOutcome
from turns.testing import call, gate, text

pytestmark = pytest.mark.django_db(transaction=True)


async def at_once(*actions) -> None:
    """Do everything at the same moment, in the order given."""
    await asyncio.gather(*(action() for action in actions))


def opening(hold):
    async def open_it() -> None:
        hold.opening.set()

    return open_it


@pytest.mark.parametrize("seed", range(8))
async def test_the_answers_end_and_a_cancel_at_once(chat: ChatDriver, seed: int):
    order = random.Random(seed)
    hold = gate()
    chat.use_script([text("Almost"), hold, text(" done.")], [text("Next.")])
    turn_id = await chat.say()
    await asyncio.wait_for(hold.reached.wait(), PATIENCE)
    receipts = []

    async def cancel() -> None:
        for _ in range(order.randrange(4)):
            await asyncio.sleep(0)
        receipts.append(await chat.cancel(turn_id))

    actions = [cancel, cancel, opening(hold)]
    order.shuffle(actions)
    await at_once(*actions)
    turn = await chat.ended(turn_id)
    outcomes = {receipt.outcome for receipt in receipts}
    if turn.status == "cancelled":
        assert OpOutcome.ACCEPTED in outcomes
        request = await chat.request(turn_id)
        assert (request.outcome, request.settled_ms <= PROMISED_MS) == ("cancelled", True)
    else:
        assert turn.status == "completed"
        assert outcomes == {OpOutcome.ALREADY_FINISHED}
    assert (await chat.run("and on")).status == "completed"
    await chat.history()


@pytest.mark.parametrize("seed", range(6))
async def test_results_and_cancels_of_calls_and_of_the_turn_at_once(
    chat: ChatDriver, fake_tools: FakeTools, seed: int
):
    order = random.Random(seed)
    names = ["a", "b", "c", "d"]
    tools = ["held", "stubborn", "graceful", "alone"]
    order.shuffle(tools)
    chat.use_script(
        [text("Go."), *(call(n, t) for n, t in zip(names, tools, strict=True))],
        [text("Fine.")],
    )
    turn_id = await chat.say()
    await chat.sink.until("tool_start", turn_id=str(turn_id))

    async def finish() -> None:
        fake_tools.open(order.choice(names))

    async def cancel_call() -> None:
        await chat.cancel_call(turn_id, order.choice(names))

    async def cancel() -> None:
        await chat.cancel(turn_id)

    async def ask_more() -> None:
        await chat.say("more")

    actions = [finish, finish, cancel_call, cancel_call, cancel, ask_more]
    order.shuffle(actions)
    await at_once(*actions)
    turn = await chat.ended(turn_id)
    assert turn.status == "cancelled"
    fake_tools.open_all()
    more = await row(Turn, number=2)
    if more.status not in TERMINAL:
        more = await chat.ended(more.pk)
    assert more.status in ("cancelled", "completed")
    calls = await chat.calls(turn_id)
    assert {made.status for made in calls.values()} <= {
        "succeeded",
        "cancelled",
        "abandoned",
        "not_started",
    }
    for name, made in calls.items():
        if made.status == "not_started":
            assert name not in fake_tools.started
        elif made.status == "succeeded":
            assert made.result in (
                f"{name} finished",
                "saved just in time",
                f"{name} finished late",
            )
    assert not await in_database(CancelRequest.objects.filter(settled_at=None).exists)
    await chat.history()
