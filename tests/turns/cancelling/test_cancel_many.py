"""Cancelling a turn with many calls: that is a few transactions, however many calls they are (C1)."""

import time
from collections import Counter
from typing import Any

import pytest

from tests.support import LONG_PATIENCE, eventually, with_room
from tests.turns.statements import Asked
from tests.turns.support import ChatDriver, FakeTools
from turns.testing import call, text

pytestmark = pytest.mark.django_db(transaction=True)

MANY = 200
# Seconds for all that happens between the cancel of so many calls and the end of the turn.
CPU_BOUND = with_room(1.0)


@pytest.fixture(autouse=True)
def _so_many_are_allowed(settings: Any) -> None:
    settings.TURNS_MAX_CALLS_PER_ANSWER = MANY
    settings.GOVERNANCE_MAX_RUNNING = MANY
    settings.TURNS_SWEEP_INTERVAL = settings.TURNS_POLL_INTERVAL = 600.0  # nobody else asks
    settings.GOVERNANCE_PROGRESS_INTERVAL = 600.0


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    return Asked(monkeypatch)


@pytest.mark.parametrize("at_once", [16, MANY])
async def test_the_end_of_many_calls_is_one_write(
    asked: Asked, chat: ChatDriver, fake_tools: FakeTools, settings, at_once
):
    settings.GOVERNANCE_MAX_RUNNING_PER_SCOPE = at_once
    await cancel(asked, chat, fake_tools, calls=1, running=1)
    statements, transactions = len(asked.statements), asked.transactions
    await cancel(asked, chat, fake_tools, calls=MANY, running=at_once)
    # Ends that come while a transaction runs share the next one. A slow machine sees a few more of them, never 200.
    # The row of each call that has run is written by a statement of its own.
    asked.assert_at_most(statements + 80 + MANY, transactions + 8)


async def test_a_cancel_is_two_transactions_of_a_few_statements(
    asked: Asked, chat: ChatDriver, fake_tools: FakeTools
):
    """The request, and the results with the ending; a database that locks rows has a statement more in each."""
    await cancel(asked, chat, fake_tools, calls=3, running=3)
    asked.assert_at_most(20 + 2, 2)


async def cancel(
    asked: Asked, chat: ChatDriver, fake_tools: FakeTools, *, calls: int, running: int
) -> None:
    """Cancel a turn with so many calls, and count from there to its end."""
    fake_tools.started.clear()
    chat.use_script([call(f"c{number}", "held") for number in range(calls)])
    turn_id = await chat.say()
    await eventually(lambda: len(fake_tools.started) == running, timeout=LONG_PATIENCE)
    asked.reset()
    spent = time.process_time()
    await chat.cancel(turn_id)
    await chat.sink.until_ended(turn_id)
    asked.stop()
    assert time.process_time() - spent < CPU_BOUND
    turn = await chat.ended(turn_id)
    assert turn.status == "cancelled"
    ended = await chat.calls(turn_id)
    statuses = {"cancelled": running, "not_started": calls - running}
    assert Counter(row.status for row in ended.values()) == +Counter(statuses)
    settled = {row.disposition for row in ended.values() if row.status == "cancelled"}
    assert settled == {"settled"}


async def test_many_calls_of_a_step_start_and_end_together(
    asked: Asked, chat: ChatDriver, fake_tools: FakeTools, settings
):
    settings.GOVERNANCE_MAX_RUNNING_PER_SCOPE = MANY
    chat.use_script(
        [call(f"c{number}", "held", gate="all") for number in range(MANY)], [text("Done.")]
    )
    turn_id = await chat.say()
    asked.reset()
    await eventually(lambda: len(fake_tools.started) == MANY, timeout=LONG_PATIENCE)
    fake_tools.open("all")
    await chat.sink.until_ended(turn_id)
    assert asked.transactions < 20
    ended = await chat.calls(turn_id)
    assert Counter(row.status for row in ended.values()) == {"succeeded": MANY}
    await chat.check()
