"""What becomes of the turn where a page closes or reloads, with a second tab, after a restart (C11)."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.db.models import F
from django.test import AsyncClient

from governance.db import run_in_db_thread
from tests.support import eventually
from tests.webchat.sockets import Socket
from tests.webchat.staff import make_staff, session_of, signed_in
from turns import selectors, services
from turns.models import Conversation, Turn, Viewer
from turns.presence import disconnects, viewers
from turns.running import runtime
from turns.services import ConversationSummary
from webchat import open_sockets

pytestmark = pytest.mark.usefixtures("site")

Connect = Callable[..., Socket]
set_policy = run_in_db_thread(disconnects.save)


async def begin(socket: Socket, text: str = "wait 60") -> str:
    await socket.send(type="message", client_id=str(uuid4()), text=text)
    await socket.read("tool_start")
    turn_id: str = next(e["turn_id"] for e in socket.events if e["type"] == "tool_start")
    return turn_id


async def is_unattended(conversation: ConversationSummary) -> bool:
    row = await Conversation.objects.aget(pk=conversation.id)
    return row.unattended_since is not None


async def pass_time(conversation: ConversationSummary, **span: float) -> None:
    """Let the conversation have been alone for longer, and the next sweep come."""
    moved = F("unattended_since") - timedelta(**span)
    await Conversation.objects.filter(pk=conversation.id).aupdate(unattended_since=moved)
    await (await runtime.ensure_started()).presence.sweep()


async def ended(turn_id: str) -> Turn:
    async def over() -> Turn | None:
        return await Turn.objects.filter(pk=turn_id, ended_at__isnull=False).afirst()

    turn: Turn = await eventually(over)
    return turn


async def test_a_reload_within_the_grace_keeps_the_turn_and_misses_nothing(
    connect: Connect, conversation: ConversationSummary
):
    page = await connect().open()
    turn_id = await begin(page)
    await page.leave()
    assert await is_unattended(conversation)
    await pass_time(conversation, seconds=15)
    page = await connect().open(after=max(page.seqs))
    assert not await is_unattended(conversation)
    await pass_time(conversation, minutes=10)
    assert (await page.ping())["active"] == [turn_id]
    assert page.seqs == []


async def test_after_the_grace_it_is_cancelled_and_the_next_load_says_why(
    connect: Connect, conversation: ConversationSummary
):
    page = await connect().open()
    turn_id = await begin(page)
    seen = max(page.seqs)
    await page.leave()
    await pass_time(conversation, seconds=31)
    turn = await ended(turn_id)
    assert (turn.status, turn.ended_by_reason, turn.ended_by_source) == (
        "cancelled",
        "disconnect",
        "policy",
    )
    page = await connect().open(after=seen)
    abort = await page.read("turn_abort")
    assert (abort["reason"], abort["source"]) == ("disconnect", "policy")
    result = next(event for event in page.events if event["type"] == "tool_result")
    assert result["ended_by"]["reason"] == "disconnect"


async def test_the_supervisors_poll_sweeps_by_itself(
    connect: Connect, settings: Any, monkeypatch: pytest.MonkeyPatch
):
    settings.TURNS_POLL_INTERVAL = 0.02
    monkeypatch.setattr(viewers, "SWEEP_INTERVAL", 0.02)
    await set_policy({"grace_ms": 50})
    page = await connect().open()
    turn_id = await begin(page)
    await page.leave()
    assert (await ended(turn_id)).ended_by_reason == "disconnect"


async def test_of_two_tabs_the_first_to_close_cancels_nothing(
    connect: Connect, conversation: ConversationSummary
):
    await set_policy({"policy": "cancel_at_once"})
    one, two = await connect().open(), await connect().open()
    turn_id = await begin(one)
    await one.leave()
    assert not await is_unattended(conversation)
    assert (await two.ping())["active"] == [turn_id]
    await two.leave()
    assert (await ended(turn_id)).ended_by_reason == "disconnect"


async def test_a_page_that_says_it_comes_back_is_waited_for_even_if_the_policy_is_to_cancel_at_once(
    connect: Connect, conversation: ConversationSummary
):
    await set_policy({"policy": "cancel_at_once"})
    page = await connect().open()
    turn_id = await begin(page)
    await page.leave(4000)
    await pass_time(conversation, seconds=1)
    page = await connect().open()
    assert (await page.ping())["active"] == [turn_id]
    await page.leave(4000)
    await pass_time(conversation, seconds=11)
    assert (await ended(turn_id)).ended_by_reason == "disconnect"


async def test_a_detached_turn_answers_nobody_and_can_still_be_cancelled(
    connect: Connect, conversation: ConversationSummary, user_client: AsyncClient
):
    await set_policy({"policy": "detach"})
    page = await connect().open()
    await begin(page, "wait 0.05")
    await page.leave()
    turn = await Turn.objects.aget(conversation=conversation.id)
    assert (await ended(str(turn.pk))).status == "completed"
    page = await connect().open()
    snapshot = await page.read("snapshot")
    assert [message["role"] for message in snapshot["messages"]][-1] == "assistant"
    turn_id = await begin(page)
    await page.leave()
    await pass_time(conversation, minutes=50)
    answer = await user_client.post(f"/api/turns/{turn_id}/abort", {}, "application/json")
    assert answer.status_code == 200
    assert (await ended(turn_id)).ended_by_reason == "user"


async def test_a_turn_of_a_program_is_nobodys_page(conversation: ConversationSummary, person: User):
    await services.receive_message(conversation_id=conversation.id, user=person, text="wait 60")
    await pass_time(conversation, days=1)
    assert not await is_unattended(conversation)
    assert await selectors.active_turn_ids(conversation_id=conversation.id)


async def test_an_operator_who_looks_and_leaves_changes_nothing(
    connect: Connect, conversation: ConversationSummary, person: User, stranger: User
):
    await make_staff(stranger, "view_all")
    client = await signed_in(stranger)
    await services.receive_message(conversation_id=conversation.id, user=person, text="wait 60")
    operator = await connect(session=session_of(client)).open()
    assert not await Viewer.objects.aexists()
    await operator.leave()
    assert not await is_unattended(conversation)


async def test_a_server_that_restarts_is_no_disconnect_and_its_successor_begins_the_grace(
    connect: Connect, conversation: ConversationSummary
):
    page = await connect().open()
    await begin(page)
    closing = asyncio.create_task(open_sockets.close_all())
    assert await page.close_code() == 1012
    await page.leave()
    await closing
    assert not await is_unattended(conversation)
    assert await Viewer.objects.acount() == 1
    await runtime.stop(grace=0)
    waiting = await Turn.objects.acreate(
        conversation_id=conversation.id,
        number=1000,
        user_message="wait 60",
        queued_at=(await Turn.objects.afirst()).queued_at,
    )
    await Conversation.objects.filter(pk=conversation.id).aupdate(last_number=1000)
    await (await runtime.ensure_started()).presence.sweep()
    assert not await Viewer.objects.aexists()
    assert await is_unattended(conversation)
    await pass_time(conversation, seconds=31)
    assert (await ended(str(waiting.pk))).ended_by_reason == "disconnect"


async def test_a_departure_that_cannot_be_written_is_made_good_by_the_sweep(
    connect: Connect, conversation: ConversationSummary, monkeypatch: pytest.MonkeyPatch
):
    async def lost(_key: str, **_: Any) -> None:
        raise OSError("no database")

    monkeypatch.setattr(viewers, "SWEEP_INTERVAL", 3_600)  # it comes when the test says so
    page = await connect().open()
    await begin(page)
    with monkeypatch.context() as patch:
        patch.setattr(viewers, "_leave", lost)
        await page.leave()
    assert not await is_unattended(conversation)
    await (await runtime.ensure_started()).presence.sweep()
    assert await is_unattended(conversation)


async def test_a_viewer_that_others_took_for_dead_is_written_down_again(
    connect: Connect, conversation: ConversationSummary
):
    page = await connect().open()
    await begin(page)
    await Viewer.objects.all().adelete()
    await (await runtime.ensure_started()).presence.sweep()
    assert await Viewer.objects.acount() == 1
    await page.leave()
    assert await is_unattended(conversation)


async def test_a_socket_that_is_cancelled_while_it_arrives_leaves_no_viewer(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
):
    """A server cancels a socket whose client has left and which does not end in time."""
    arriving, may_arrive = asyncio.Event(), asyncio.Event()
    join = viewers._join

    async def join_late(*arguments: Any, **facts: Any) -> bool:
        arriving.set()
        await may_arrive.wait()
        return await join(*arguments, **facts)

    monkeypatch.setattr(viewers, "_join", join_late)
    page = connect()
    assert await page.connect()
    await page.send(type="hello", protocol=1)
    await arriving.wait()
    serving = page.wire.future
    assert serving is not None
    serving.cancel()
    await asyncio.wait({serving})
    may_arrive.set()
    await (await runtime.ensure_started()).presence.sweep()
    assert not await Viewer.objects.aexists()
