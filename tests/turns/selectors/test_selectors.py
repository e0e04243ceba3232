"""What clients read: lists, snapshots and turns, of their own only, and as they are at this moment (V3, V5)."""

import uuid
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.utils import timezone

from tests.support import eventually
from tests.turns.row_factory import RowFactory, said, use
from tests.turns.support import ChatDriver, FakeTools
from turns import selectors, services
from turns.exceptions import ConversationNotFound, TurnNotFound
from turns.models import Conversation
from turns.testing import call, gate, text

pytestmark = pytest.mark.django_db(transaction=True)


async def test_a_running_turn_is_listed_with_what_its_tools_do(
    chat: ChatDriver, fake_tools: FakeTools, eve
):
    turn_id = await chat.begin(
        [call("a", "quick"), call("b", "held")], [text("Fine.")], running=["b"]
    )
    await chat.sink.until("tool_result", tool_id="a")
    queued = await chat.say("next")
    first, second = await selectors.active_turns(user=chat.user)
    assert (
        first.items()
        >= {
            "turn_id": str(turn_id),
            "conversation_id": str(chat.id),
            "status": "running",
            "tool_call_count": 2,
            "parent_turn_id": None,
        }.items()
    )
    assert first["elapsed_ms"] >= 0
    (tool,) = first["current_tools"]
    assert tool.keys() == {
        "tool_id",
        "tool_name",
        "status",
        "elapsed_ms",
        "timeout_ms",
        "idle_timeout_ms",
        "timeout_source",
        "waits_for",
    }
    assert (tool["tool_id"], tool["tool_name"], tool["timeout_ms"]) == ("b", "held", 120_000)
    assert (second["turn_id"], second["status"], second["elapsed_ms"]) == (
        str(queued),
        "queued",
        0,
    )
    assert await selectors.active_turns(user=eve) == []
    assert await selectors.active_turn_ids(conversation_id=chat.id) == [str(turn_id), str(queued)]
    await chat.cancel(turn_id)
    await chat.ended(turn_id)
    assert await selectors.active_turns(user=chat.user) == []


async def test_an_operator_sees_the_turns_of_everybody(
    chat: ChatDriver, fake_tools: FakeTools, operator
):
    turn_id = await chat.begin([call("a", "held")], [text("Fine.")])
    (listed,) = await selectors.active_turns(user=operator)
    assert listed["turn_id"] == str(turn_id)
    assert (await selectors.get_turn(turn_id=turn_id, user=operator))["status"] == "running"
    fake_tools.open("a")
    await chat.ended(turn_id)


async def test_somebody_elses_things_do_not_exist(chat: ChatDriver, eve):
    turn = await chat.play([text("Fine.")])
    reads: list[tuple[Any, Any, dict[str, Any]]] = [
        (ConversationNotFound, selectors.get_conversation, {"conversation_id": chat.id}),
        (ConversationNotFound, selectors.snapshot, {"conversation_id": chat.id}),
        (ConversationNotFound, selectors.history, {"conversation_id": chat.id}),
        (TurnNotFound, selectors.get_turn, {"turn_id": turn.pk}),
        (TurnNotFound, selectors.turn_events, {"turn_id": turn.pk, "after": 0}),
        (TurnNotFound, selectors.partial_text, {"turn_id": turn.pk}),
    ]
    for error, read, which in reads:
        await read(user=chat.user, **which)
        with pytest.raises(error):
            await read(user=eve, **which)
        with pytest.raises(error):
            await read(
                user=chat.user,
                **dict.fromkeys(which, uuid.uuid4())
                | {name: value for name, value in which.items() if name == "after"},
            )
    assert await selectors.list_conversations(user=eve) == []


async def test_a_snapshot_in_the_middle_of_a_turn_has_all_that_a_page_needs(
    chat: ChatDriver, fake_tools: FakeTools, settings
):
    hold = gate()
    chat.use_script(
        [text("First answer.")],
        [text("Looking."), call("a", "quick", text="x" * 3_000)],
        [text("So far, "), hold],
    )
    await chat.run("first")
    turn_id = await chat.say("second", client_id="m2")
    await chat.sink.until("text_delta", text="So far, ")
    snapshot = await selectors.snapshot(conversation_id=chat.id, user=chat.user)
    assert snapshot["seq"] == await selectors.last_seq(conversation_id=chat.id)
    roles = [(m["role"], m["interrupted"]) for m in snapshot["messages"]]
    assert roles == [("user", False), ("assistant", False), ("user", False), ("assistant", False)]
    (ended,) = snapshot["turns"]
    assert (ended["status"], ended["ended_by"], ended["error_code"]) == ("completed", None, None)
    (active,) = snapshot["active_turns"]
    assert (active["turn_id"], active["client_id"], active["turn_timeout_ms"]) == (
        str(turn_id),
        "m2",
        1_800_000,
    )
    (shown,) = active["calls"]
    assert (shown["status"], len(shown["result"]), shown["is_error"]) == ("succeeded", 2_000, False)
    assert snapshot["calls"] == []
    assert snapshot["has_earlier"] is False
    hold.opening.set()
    await chat.ended(turn_id)
    after = await selectors.snapshot(conversation_id=chat.id, user=chat.user)
    assert after["active_turns"] == []
    assert [c["tool_id"] for c in after["calls"]] == ["a"]


async def test_the_text_so_far_is_stored_for_whoever_comes_later(chat: ChatDriver):
    first, second = gate(), gate()
    chat.use_script([text("So far, "), first, text("so good."), second])
    turn_id = await chat.say()
    await chat.sink.until("text_delta", text="So far, ")

    async def stored() -> str:
        said, _step = await selectors.partial_text(turn_id=turn_id, user=chat.user)
        return said

    async def has(text: str) -> bool:
        return await stored() == text

    await eventually(lambda: has("So far, "))  # although nothing more is said
    first.opening.set()
    await eventually(lambda: has("So far, so good."))
    second.opening.set()
    await chat.ended(turn_id)
    assert await stored() == ""


def test_earlier_messages_are_read_page_by_page(ada, settings):
    settings.TURNS_SNAPSHOT_MESSAGES = 4
    factory = RowFactory(ada)
    for number in range(5):
        turn = factory.turn()
        factory.message(turn, "user", said(f"question {number}"))
        factory.message(turn, "assistant", said(f"answer {number}"), use(f"c{number}"))
        factory.call(turn, f"c{number}")
    read = async_to_sync(selectors.snapshot)
    page = read(conversation_id=factory.id, user=ada)
    texts = []
    while True:
        texts = [m["content"][0]["text"] for m in page["messages"]] + texts
        assert len(page["messages"]) == 2  # a call weighs as much as a message
        shown = {m["turn_id"] for m in page["messages"]}
        assert {turn["turn_id"] for turn in page["turns"]} == shown
        assert {c["turn_id"] for c in page["calls"]} == shown
        if not page["has_earlier"]:
            break
        before = page["messages"][0]["position"]
        page = read(conversation_id=factory.id, user=ada, before=before)
    assert texts == [f"{who} {n}" for n in range(5) for who in ("question", "answer")]


@pytest.mark.parametrize("earlier", [0, 1])
def test_the_message_that_began_a_turn_is_not_left_behind_alone(ada, settings, earlier):
    settings.TURNS_SNAPSHOT_MESSAGES = 3
    factory = RowFactory(ada)
    for _number in range(earlier):
        factory.message(factory.turn(), "user", said("before"))
    turn = factory.turn()
    factory.message(turn, "user", said("question"))
    for step in range(3):
        factory.message(turn, "assistant", said(f"step {step}"))
    page = async_to_sync(selectors.snapshot)(conversation_id=factory.id, user=ada)
    first = page["messages"][0]["content"][0]["text"]
    assert first == "question"
    assert page["has_earlier"] is bool(earlier)


def test_a_turn_ended_before_it_began_is_in_the_snapshot(ada):
    factory = RowFactory(ada)
    never = factory.turn("cancelled", started_at=None, ended_by_reason="user")
    snapshot = async_to_sync(selectors.snapshot)(conversation_id=factory.id, user=ada)
    (shown,) = snapshot["turns"]
    assert (shown["turn_id"], shown["started"], shown["user_message"]) == (
        str(never.pk),
        False,
        "planted",
    )


def test_conversations_are_listed_latest_first_with_what_is_active(ada, eve):
    old, new = RowFactory(ada), RowFactory(ada)
    RowFactory(eve)
    new.turn("queued")
    old.turn("completed")
    old.conversation.save()
    listed = async_to_sync(selectors.list_conversations)(user=ada)
    assert [(c.id, c.is_active) for c in listed] == [(old.id, False), (new.id, True)]


def test_pages_of_the_list_join_pinned_conversations_and_the_others(ada):
    rows = [RowFactory(ada).conversation for _ in range(7)]
    for row in (rows[4], rows[1], rows[5]):
        Conversation.objects.filter(pk=row.pk).update(pinned_at=timezone.now())
    listed = async_to_sync(selectors.list_conversations)
    whole = [row.id for row in listed(user=ada)]
    assert whole == [rows[number].pk for number in (5, 1, 4, 6, 3, 2, 0)]
    for limit in range(1, 9):
        for offset in range(9):
            page = listed(user=ada, offset=offset, limit=limit)
            assert [row.id for row in page] == whole[offset : offset + limit], (offset, limit)


def test_conversations_are_listed_of_the_agent_that_answers_there_now(ada):
    named, unnamed = RowFactory(ada), RowFactory(ada)
    named.conversation.agent = "librarian"
    named.conversation.save()
    listed = async_to_sync(selectors.list_conversations)
    assert [c.id for c in listed(user=ada, agent="librarian")] == [named.conversation.id]
    assert [c.id for c in listed(user=ada, agent="assistant")] == [unnamed.conversation.id]
    assert listed(user=ada, agent="nobody") == []


async def test_the_log_reaches_back_as_long_as_the_next_event_is_there(chat: ChatDriver):
    await chat.play([text("Fine.")])
    last = await selectors.last_seq(conversation_id=chat.id)
    for after, reaches in ((0, True), (last - 1, True), (last, True), (last + 1, False)):
        assert await selectors.reaches_back(conversation_id=chat.id, after=after) is reaches


async def test_one_turn_with_its_calls_and_how_it_ended(chat: ChatDriver, fake_tools: FakeTools):
    chat.use_script([call("a", "stubborn")])
    turn_id = await chat.say("do it")
    await chat.running(turn_id, "a")
    await chat.cancel(turn_id)
    await chat.ended(turn_id)
    turn = await selectors.get_turn(turn_id=turn_id, user=chat.user)
    assert (
        turn.items()
        >= {
            "status": "cancelled",
            "user_message": "do it",
            "ended_by": {"reason": "user", "source": "button", "by": "ada"},
            "current_tools": [],
        }.items()
    )
    (made,) = turn["calls"]
    assert (made["status"], made["disposition"], made["timeout_source"]) == (
        "abandoned",
        "indeterminate",
        "built_in",
    )
    events, last = await selectors.turn_events(turn_id=turn_id, user=chat.user, after=2)
    assert events[0]["seq"] == 3
    assert events[-1] == {**events[-1], "type": "turn_end", "seq": last}


async def test_a_new_conversation_is_empty(chat: ChatDriver):
    made = await services.create_conversation(user=chat.user, title="  Plans  ", agent="assistant")
    assert (made.title, made.agent) == ("Plans", "assistant")
    snapshot = await selectors.snapshot(conversation_id=made.id, user=chat.user)
    assert (snapshot["seq"], snapshot["messages"], snapshot["active_turns"]) == (0, [], [])
    assert await chat.history() == ()


async def test_the_events_of_a_long_turn_are_read_page_by_page_without_a_gap(
    chat: ChatDriver, monkeypatch: pytest.MonkeyPatch
):
    chat.use_script([text("One.")])
    turn_id = await chat.say()
    await chat.ended(turn_id)
    whole, last_seq = await selectors.turn_events(turn_id=turn_id, user=chat.user, after=0)
    assert last_seq == whole[-1]["seq"]

    monkeypatch.setattr(selectors.conversations, "EVENTS_LENGTH", 2)
    read: list[dict[str, Any]] = []
    after = 0
    while len(read) < len(whole):
        page, after = await selectors.turn_events(turn_id=turn_id, user=chat.user, after=after)
        assert page
        read += page
    assert read == whole
