"""Calls that were given up: when they end, everybody is told; what is listed as running still is (T11, B4)."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from governance import LateSettlement, recorder
from governance.models import ToolCall
from tests.turns.row_factory import RowFactory
from tests.turns.support import ChatDriver, FakeTools, RecordingSink, in_database, row
from turns import selectors, services
from turns.calls import late_settlements
from turns.models import CancelRequest, Process, Turn
from turns.processes import process_registry
from turns.running import runtime
from turns.testing import call, text
from webchat.exports import as_markdown

pytestmark = pytest.mark.django_db(transaction=True)

Make = Callable[..., Awaitable[Process]]


@pytest.fixture
async def gone(transactional_db: None) -> Process:
    """A process that was registered and has really ended."""
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", "input()", stdin=-1)
    ticks = await in_database(lambda: process_registry.start_ticks(child.pid))
    child.kill()
    await child.wait()
    return await _process(pid=child.pid, start_ticks=ticks, ended_at=timezone.now())


async def _process(**fields: Any) -> Process:
    def create() -> Process:
        here = {
            "boot_id": process_registry.boot_id(),
            "pid_namespace": process_registry.pid_namespace(),
        }
        return Process.objects.create(**{"host": "here", **here, **fields})

    return await in_database(create)


async def given_up(
    chat: ChatDriver,
    owner: Process | None,
    *,
    tool_name: str = "quick",
    ago: timedelta = timedelta(0),
) -> ToolCall:
    """Plant a call that was given up in an ended turn of a process."""

    def plant() -> ToolCall:
        factory = RowFactory(
            conversation=Turn.conversation.field.related_model.objects.get(pk=chat.id)
        )
        turn = factory.turn("cancelled", owner=owner)
        return factory.call(
            turn, f"c{turn.number}", "abandoned", tool_name=tool_name, ended_at=timezone.now() - ago
        )

    return await in_database(plant)


@pytest.fixture
async def admin_client(operator) -> Client:
    def sign_in() -> Client:
        operator.is_superuser = True
        operator.save()
        client = Client()
        client.force_login(operator)
        return client

    return await in_database(sign_in)


async def listed(admin_client: Client, happened: str) -> set[str]:
    """The calls that the admin lists."""
    url = reverse("admin:governance_toolcall_changelist")
    response = await in_database(lambda: admin_client.get(url, {"happened": happened}))
    return {call.call_id for call in response.context["cl"].result_list}


async def text_of(admin_client: Client, page: str) -> str:
    response = await in_database(lambda: admin_client.get(page))
    return str(response.content.decode())


async def test_the_end_of_a_call_that_was_given_up_is_told_after_the_turns_end(
    chat: ChatDriver, fake_tools: FakeTools, admin_client: Client
):
    turn_id = await chat.begin([call("a", "blocked")])
    await chat.cancel(turn_id)
    await chat.ended(turn_id)
    assert await listed(admin_client, "abandoned") == {"a"}
    pages = [
        reverse("admin:turns_turn_change", args=[turn_id]),
        reverse(
            "admin:turns_cancelledturn_change", args=[(await row(CancelRequest, turn=turn_id)).pk]
        ),
    ]
    for page in pages:
        assert "abandoned, may still be running" in await text_of(admin_client, page)
    fake_tools.open("a")
    told = await chat.sink.until("tool_settled", turn_id=str(turn_id), tool_id="a")
    assert (told["tool_name"], told["status"], told["kind"]) == ("blocked", "abandoned", "returned")
    assert told["after_ms"] >= 0
    log = await selectors.conversation_events(conversation_id=chat.id, after=0)
    assert [event["type"] for event in log][-2:] == ["turn_end", "tool_settled"]
    await chat.check()
    assert await listed(admin_client, "abandoned") == set()
    assert await listed(admin_client, "late") == {"a"}
    for page in pages:
        html = await text_of(admin_client, page)
        assert "abandoned, may still be running" not in html
        assert "has since ended" in html
    export = await selectors.export(conversation_id=chat.id, user=chat.user)
    assert "### `blocked` · abandoned, has since ended" in as_markdown(export)
    (shown,) = (await selectors.get_turn(turn_id=turn_id, user=chat.user))["calls"]
    assert shown["late"] == {"kind": "returned", "after_ms": told["after_ms"]}


async def test_a_call_may_end_late_while_its_turn_goes_on(chat: ChatDriver, fake_tools: FakeTools):
    turn_id = await chat.begin([call("a", "blocked")], [call("b", "held")], [text("Fine.")])
    await services.set_deadline(turn_id=turn_id, tool_id="a", user=chat.user, timeout_ms=30)
    await chat.running(turn_id, "b")
    fake_tools.open("a")
    await chat.sink.until("tool_settled", tool_id="a")
    fake_tools.open("b")
    assert (await chat.ended(turn_id)).status == "completed"


async def test_what_was_in_a_process_that_is_gone_has_ended_with_it(
    chat: ChatDriver, gone: Process, sink: RecordingSink, admin_client: Client
):
    left = await given_up(chat, gone)
    assert await listed(admin_client, "abandoned") == {left.call_id}
    await runtime.ensure_started()
    told = await sink.until("tool_settled", tool_id=left.call_id)
    assert told["kind"] == "process_ended"
    assert await listed(admin_client, "abandoned") == set()


async def test_what_ended_long_ago_is_noted_without_a_word(chat: ChatDriver, gone: Process):
    old = [await given_up(chat, gone, ago=timedelta(hours=2)) for _ in range(3)]
    assert await in_database(late_settlements.settle_of_dead_processes) == []
    for made in old:
        assert (await row(ToolCall, pk=made.pk)).late_kind == "process_ended"
    assert chat.sink.find("tool_settled") is None


async def test_what_may_run_elsewhere_is_never_said_to_have_ended(chat: ChatDriver, gone: Process):
    fresh = await given_up(chat, gone, tool_name="tool_of_a_server")
    old = await given_up(chat, gone, tool_name="tool_of_a_server", ago=timedelta(hours=2))
    assert await in_database(late_settlements.settle_of_dead_processes) == []
    assert (await row(ToolCall, pk=fresh.pk)).late_kind == ""
    assert (await row(ToolCall, pk=old.pk)).late_kind == recorder.UNWATCHED
    (shown,) = (await selectors.get_turn(turn_id=(await row(Turn, number=2)).pk, user=chat.user))[
        "calls"
    ]
    assert shown["late"] is None


async def test_a_process_that_lives_or_cannot_be_seen_proves_nothing(chat: ChatDriver):
    pid = os.getpid()
    alive = {
        "pid": pid,
        "start_ticks": await in_database(lambda: process_registry.start_ticks(pid)),
    }
    for owner in (
        await _process(**alive),
        await _process(**alive, ended_at=timezone.now()),  # it has lost its lease, and goes on
        await _process(pid=1, ended_at=timezone.now(), pid_namespace="elsewhere", boot_id="other"),
    ):
        made = await given_up(chat, owner)
        assert await in_database(late_settlements.settle_of_dead_processes) == []
        assert (await row(ToolCall, pk=made.pk)).late_kind == ""


async def test_what_is_not_watched_any_more_may_still_be_seen_to_end(chat: ChatDriver):
    made = await given_up(chat, None, ago=timedelta(hours=2))
    await in_database(late_settlements.settle_of_dead_processes)
    assert (await row(ToolCall, pk=made.pk)).late_kind == recorder.UNWATCHED
    late = LateSettlement(kind="returned", text="after all", after=9.0)
    turn = await row(Turn, number=1)
    assert await in_database(lambda: late_settlements.settle(turn.pk, made.call_id, late))
    assert (await row(ToolCall, pk=made.pk)).late_kind == "returned"
    assert await in_database(lambda: late_settlements.settle(turn.pk, made.call_id, late)) is None


async def test_calls_of_others_are_left_alone(chat: ChatDriver):
    made = await given_up(chat, None, ago=timedelta(hours=2))
    await in_database(lambda: ToolCall.objects.filter(pk=made.pk).update(group="a script"))
    assert await in_database(late_settlements.settle_of_dead_processes) == []
    assert (await row(ToolCall, pk=made.pk)).late_kind == ""
