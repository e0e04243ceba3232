"""The most that is asked of the database, in statements and transactions of turns, cancels, snapshots and lists.

A ceiling that a change goes through is a price that somebody pays with every turn. It is lowered when less is asked, and
raised only on purpose.
"""

from typing import Any
from uuid import UUID

import pytest
from asgiref.sync import async_to_sync
from django.contrib import admin
from django.contrib.auth.models import AbstractUser
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from tests.support import eventually
from tests.turns.row_factory import RowFactory, said, use
from tests.turns.statements import Asked
from tests.turns.support import ChatDriver, until_begun
from tests.turns.tools.scripted_agents import ask, use_scripts
from turns import selectors
from turns.running import runtime
from turns.testing import call, text

pytestmark = pytest.mark.django_db(transaction=True)

APPS = ("governance", "turns")


@pytest.fixture
def nothing_else(settings: Any) -> None:
    """What looks every few seconds would be counted, too."""
    settings.TURNS_SWEEP_INTERVAL = settings.TURNS_POLL_INTERVAL = 3600.0
    settings.GOVERNANCE_PROGRESS_INTERVAL = 3600.0
    settings.TURNS_LEASE_RENEW_INTERVAL = 1200.0
    settings.TURNS_LEASE_FENCE_AFTER, settings.TURNS_LEASE_TTL = 2400.0, 3600.0


@pytest.fixture
def asked(nothing_else: None, monkeypatch: pytest.MonkeyPatch) -> Asked:
    return Asked(monkeypatch)


async def all_is_quiet() -> None:
    """Wait until no turn runs here any more: what follows an ending is a part of its price."""

    async def is_quiet() -> bool:
        return not runtime.live_count()

    await eventually(is_quiet)


def locks(count: int) -> int:
    """How many statements lock rows: PostgreSQL has some of their own for that."""
    return count if connection.features.has_select_for_update else 0


async def test_a_turn_of_three_calls(asked: Asked, chat: ChatDriver):
    for _ in range(2):  # the first one loads what stays loaded
        chat.use_script([call(name, "quick") for name in "abc"], [text("Done.")])
        asked.reset()
        assert (await chat.run()).status == "completed"
        await all_is_quiet()
    # Calls whose starts or ends differ by a millisecond are written by a statement each. Two are the test's own.
    asked.assert_at_most(39 + 2 * 3 + locks(3), 5)


async def test_a_cancel_of_a_turn_that_runs_a_call(asked: Asked, chat: ChatDriver):
    turn_id = await chat.begin([call("a", "held")])
    asked.reset()
    await chat.cancel(turn_id)
    assert (await chat.ended(turn_id)).status == "cancelled"
    await all_is_quiet()
    asked.assert_at_most(20 + locks(3), 2)  # one of them is the activity, one closes what calls ask


async def test_a_cancel_of_a_turn_with_three_sub_agents(asked: Asked, chat: ChatDriver):
    # On a busy machine the endings do not come in one moment. What was read before the cancel is read after it.
    for attempt in range(12):
        await cancel_family(asked, chat, held=f"held-{attempt}")
        if len(asked.statements) <= 66 + locks(9) and asked.transactions <= 2:
            break
    # What the sub-agents do is read as it comes, so some reads of that may be counted.
    asked.assert_at_most(66 + locks(9), 2)


async def cancel_family(asked: Asked, chat: ChatDriver, *, held: str) -> None:
    """Cancel a turn with three sub-agents, and count from there until all is quiet."""
    names = ("one", "two", "three")
    scripts = {name: [[call(f"{held}-{name}", "held")]] for name in names}
    use_scripts(chat, go=[[ask(name, name) for name in names]], **scripts)
    turn_id = await chat.say()
    for name in names:
        told = await chat.sink.until("tool_start", tool_id=f"{held}-{name}")
        await until_begun(UUID(told["turn_id"]), told["tool_id"])
    asked.reset()
    await chat.cancel(turn_id)
    assert (await chat.ended(turn_id)).status == "cancelled"
    await all_is_quiet()


def test_a_snapshot(asked: Asked, ada: AbstractUser):
    factory = RowFactory(ada)
    turn = factory.turn("running")
    factory.message(turn, "user", said("question"))
    factory.message(turn, "assistant", said("answer"), use("a"))
    factory.call(turn, "a")
    asked.reset()
    async_to_sync(selectors.snapshot)(conversation_id=factory.id, user=ada)
    assert asked.statements
    asked.assert_at_most(9, 1)


MOST = {
    "governance.toolpolicy": 13,  # every tool with its figures, its last change, and where limits are in force
    "governance.toolcall": 9,  # what calls belong to is one more, for all of them, and the tools of other processes
    "governance.defaultpolicy": 12,
    "turns.disconnectpolicy": 10,
    "turns.process": 8,
    "turns.agent": 8,  # the groups of all of them are one more
    # The turns, their calls and questions, sub-agents, the choices of the filters, what could not be ended.
    "turns.runningturn": 14,
}
LISTS = [model._meta.label_lower for model in admin.site._registry if model._meta.app_label in APPS]


@pytest.mark.parametrize("label", LISTS)
def test_a_list_of_the_admin(ada: AbstractUser, admin_client: Client, label: str):
    for number in range(3):
        factory = RowFactory(ada)
        turn = factory.turn("running" if number else "completed")
        factory.call(turn, "a")
    address = reverse(f"admin:{label.replace('.', '_')}_changelist")
    admin_client.get(address)  # what a process looks up once
    with CaptureQueriesContext(connection) as queries:
        answer = admin_client.get(address, follow=True)  # a model of one row has no list
    assert answer.status_code == 200
    assert len(queries) <= MOST.get(label, 7), [query["sql"][:150] for query in queries]


def test_the_overview(ada: AbstractUser, admin_client: Client):
    for number in range(3):
        factory = RowFactory(ada)
        factory.call(factory.turn("running" if number else "timed_out"), "a")
    address = reverse("admin:turns_overview")
    admin_client.get(address)
    with CaptureQueriesContext(connection) as queries:
        assert admin_client.get(address).status_code == 200
    assert len(queries) <= 25, [query["sql"][:150] for query in queries]
