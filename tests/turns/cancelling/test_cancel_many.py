"""Cancelling a turn with many calls: what it asks of the database does not grow with them (C1)."""

import time
from collections import Counter
from typing import Any

import pytest
from django.db import connection

from tests.support import LONG_PATIENCE, eventually, with_room
from tests.turns.support import ChatDriver, FakeTools, in_database
from turns.core import chat_model
from turns.testing import call, text

pytestmark = pytest.mark.django_db(transaction=True)

MANY = 200
# Seconds for all that happens between the cancel of so many calls and the end of the turn.
CPU_BOUND = with_room(1.0)


class Traffic:
    """Counts what passes the thread of the database: statements and transactions."""

    def __init__(self) -> None:
        self.statements = 0
        self.transactions = 0

    def __call__(self, execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if sql.startswith(("INSERT", "SELECT", "UPDATE")):
            self.statements += 1
        return execute(sql, params, many, context)

    async def watch(self) -> None:
        await in_database(self._watch)

    async def leave(self) -> None:
        await in_database(self._leave)

    def _watch(self) -> None:
        commit = connection.commit

        def counting() -> None:
            self.transactions += 1
            commit()

        connection.execute_wrappers.append(self)
        connection.commit = counting  # type: ignore[method-assign]

    def _leave(self) -> None:
        connection.execute_wrappers.remove(self)
        del connection.commit


@pytest.fixture(autouse=True)
def _so_many_are_allowed(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    monkeypatch.setattr(chat_model, "MOST_CALLS", MANY)
    settings.GOVERNANCE_MAX_RUNNING = MANY
    settings.TURNS_SWEEP_INTERVAL = settings.TURNS_POLL_INTERVAL = 600.0  # nobody else asks
    settings.GOVERNANCE_PROGRESS_INTERVAL = 600.0


@pytest.mark.parametrize("at_once", [16, MANY])
async def test_the_end_of_many_calls_is_one_write(
    chat: ChatDriver, fake_tools: FakeTools, settings, at_once
):
    settings.GOVERNANCE_MAX_RUNNING_PER_SCOPE = at_once
    one = await traffic_of_a_cancel(chat, fake_tools, calls=1, running=1)
    many = await traffic_of_a_cancel(chat, fake_tools, calls=MANY, running=at_once)
    # Ends that come while a transaction runs share the next one. A slow machine sees a few more of them, never 200.
    assert many.transactions <= one.transactions + 8
    assert many.statements <= one.statements + 80


async def test_a_cancel_is_two_transactions_of_a_few_statements(
    chat: ChatDriver, fake_tools: FakeTools
):
    """The request, and the results with the ending; a database that locks rows has a statement more in each."""
    await traffic_of_a_cancel(chat, fake_tools, calls=1, running=1)  # prepares the statements
    traffic = await traffic_of_a_cancel(chat, fake_tools, calls=3, running=3)
    assert traffic.transactions == 2
    assert traffic.statements <= 20 + 2


async def traffic_of_a_cancel(
    chat: ChatDriver, fake_tools: FakeTools, *, calls: int, running: int
) -> Traffic:
    fake_tools.started.clear()
    chat.use_script([call(f"c{number}", "held") for number in range(calls)])
    turn_id = await chat.say()
    await eventually(lambda: len(fake_tools.started) == running, timeout=LONG_PATIENCE)
    traffic, spent = Traffic(), time.process_time()
    await traffic.watch()
    try:
        await chat.cancel(turn_id)
        await chat.sink.until_ended(turn_id)
    finally:
        await traffic.leave()
    assert time.process_time() - spent < CPU_BOUND
    turn = await chat.ended(turn_id)
    assert turn.status == "cancelled"
    ended = await chat.calls(turn_id)
    statuses = {"cancelled": running, "not_started": calls - running}
    assert Counter(row.status for row in ended.values()) == +Counter(statuses)
    settled = {row.disposition for row in ended.values() if row.status == "cancelled"}
    assert settled == {"settled"}
    return traffic


async def test_many_calls_of_a_step_start_and_end_together(
    chat: ChatDriver, fake_tools: FakeTools, settings
):
    settings.GOVERNANCE_MAX_RUNNING_PER_SCOPE = MANY
    chat.use_script(
        [call(f"c{number}", "held", gate="all") for number in range(MANY)], [text("Done.")]
    )
    traffic = Traffic()
    turn_id = await chat.say()
    await traffic.watch()
    try:
        await eventually(lambda: len(fake_tools.started) == MANY, timeout=LONG_PATIENCE)
        fake_tools.open("all")
        await chat.sink.until_ended(turn_id)
    finally:
        await traffic.leave()
    assert traffic.transactions < 20
    ended = await chat.calls(turn_id)
    assert Counter(row.status for row in ended.values()) == {"succeeded": MANY}
    await chat.check()
