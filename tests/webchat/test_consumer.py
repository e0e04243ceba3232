"""The WebSocket through the real ASGI application, with turns that really run."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any
from uuid import UUID, uuid4

import pytest
from channels.layers import InMemoryChannelLayer, get_channel_layer
from django.contrib.auth.models import Permission, User
from django.contrib.sessions.models import Session
from django.test import AsyncClient
from django.urls import reverse
from django.utils import timezone
from pydantic import TypeAdapter

from governance import make_tool, registry
from governance.db import run_in_db_thread
from tests.support import PATIENCE, eventually
from tests.turns.statements import Asked
from tests.webchat.sockets import TIMEOUT, Frame, Socket
from tests.webchat.staff import make_staff, session_of, signed_in
from turns import services
from turns.core.chat_model import ChatDelta, ChatRequest
from turns.events import sinks
from turns.models import Agent, Conversation, Turn, Viewer
from turns.running import runtime
from turns.services import ConversationSummary
from webchat import api_tokens, open_sockets, operations
from webchat.protocol.generators import type_of
from webchat.protocol.server_frames import ANSWERS, event_frames

pytestmark = pytest.mark.usefixtures("site")

Connect = Callable[..., Socket]
EVENT_SHAPES = {type_of(frame): TypeAdapter(frame) for frame in event_frames()}
ANSWER_SHAPES: dict[str, TypeAdapter[Any]] = {
    type_of(frame): TypeAdapter(frame) for frame in ANSWERS
}
THREE = "wait 60\nwait 60\nwait 60"


def is_for(op_id: str) -> Callable[[Frame], bool]:
    return lambda frame: frame["op_id"] == op_id


async def start(socket: Socket, text: str, *, tools: int = 1) -> tuple[str, list[Frame]]:
    """Send a message; return its turn's id and the first tool_start events."""
    await socket.send(type="message", client_id=str(uuid4()), text=text)
    turn_id = (await socket.read("message_result"))["turn_id"]
    seen = [
        event
        for event in socket.events
        if event["type"] == "tool_start" and event["turn_id"] == turn_id
    ]
    while len(seen) < tools:
        seen.append(await socket.read("tool_start"))
    return turn_id, seen


async def operate(socket: Socket, kind: str, **fields: Any) -> str:
    """Send an operation; return its outcome."""
    op_id = fields.setdefault("op_id", str(uuid4()))
    await socket.send(type=kind, **fields)
    outcome: str = (await socket.read("op_result", is_for(op_id)))["outcome"]
    return outcome


# Who may come in


async def test_without_a_session_the_socket_is_closed_with_4401(connect: Connect):
    assert await connect(session=None).close_code_after_connecting() == 4401
    assert await connect(session="nonsense").close_code_after_connecting() == 4401


async def test_what_is_not_ones_own_does_not_exist(connect: Connect, stranger: User):
    client = await signed_in(stranger)
    eve = session_of(client)
    assert await connect(session=eve).close_code_after_connecting() == 4404
    for unknown in (uuid4(), "nonsense", "a/b/c"):
        assert await connect(conversation_id=unknown).close_code_after_connecting() == 4404


async def test_staff_who_may_see_all_may_look(connect: Connect, stranger: User):
    await make_staff(stranger, "view_all")
    client = await signed_in(stranger)
    socket = await connect(session=session_of(client)).open()
    assert (await socket.next())["type"] == "snapshot"
    await socket.send(type="message", client_id="c", text="hi")
    problem = await socket.read("error")
    assert (problem["code"], problem["client_id"]) == ("not_yours", "c")
    assert (await socket.ping())["last_seq"] == 0


async def test_a_program_needs_a_token_and_no_origin(connect: Connect, person: User):
    _, token = await run_in_db_thread(api_tokens.issue)(user=person, name="script")
    program = await connect(session=None, token=token, origin=None).open()
    assert (await program.next())["type"] == "snapshot"
    for credentials in ({"session": None, "token": token}, {}):
        socket = connect(**credentials, origin="http://evil.example")
        assert await socket.connect() is False
    assert await connect(origin=None).connect() is False  # a browser's session needs an origin
    assert await connect(token="tk_wrong", origin=None).close_code_after_connecting() == 4401


@pytest.mark.parametrize(
    "first",
    [
        '{"type":"ping"}',
        '{"type":"hello","protocol":2}',
        '{"type":"hello"}',
        "x",
        '{"type":"hello","protocol":1,"after":"1"}',
    ],
)
async def test_a_bad_first_frame_is_answered_and_closes_with_4400(connect: Connect, first: str):
    socket = connect()
    assert await socket.connect()
    await socket.send_text(first)
    assert (await socket.next())["type"] == "error"
    assert await socket.close_code() == 4400


async def test_who_says_nothing_is_let_go(connect: Connect, settings: Any):
    settings.WEBCHAT_HELLO_TIMEOUT = 0.05
    assert await connect().close_code_after_connecting() == 4400


# The stream


async def test_a_turn_comes_as_a_gapless_series_of_frames_that_fit_their_schemas(connect: Connect):
    socket = await connect().open()
    welcome = socket.seen[0]
    assert (welcome["protocol"], welcome["user"]) == (1, "ada")
    snapshot = await socket.next()
    assert (snapshot["type"], snapshot["seq"], snapshot["messages"]) == (
        "snapshot",
        welcome["last_seq"],
        [],
    )
    turn_id, _ = await start(socket, "wait 0.01")
    end = await socket.read("turn_end")
    await socket.ping()
    assert end["status"] == "completed"
    types = [event["type"] for event in socket.events]
    for earlier, later in (
        ("turn_start", "tool_start"),
        ("tool_start", "tool_result"),
        ("tool_result", "turn_end"),
    ):
        assert types.index(earlier) < types.index(later)
    assert types.count("tool_result") == types.count("turn_end") == 1
    assert socket.seqs == list(range(1, len(socket.seqs) + 1))
    assert {event["turn_id"] for event in socket.events} == {turn_id}
    for frame in socket.seen:
        shapes = EVENT_SHAPES if frame in socket.events else ANSWER_SHAPES
        shapes[frame["type"]].validate_python(frame)


async def test_streamed_text_is_the_text_of_the_message_that_follows(connect: Connect):
    socket = await connect().open()
    await socket.send(type="message", client_id="c", text="help")
    await socket.read("turn_end")
    deltas = [frame for frame in socket.seen if frame["type"] == "text_delta"]
    text = ""
    for delta in deltas:
        assert delta["offset"] == len(text)
        text += delta["text"]
    message = next(
        event
        for event in socket.events
        if event["type"] == "message" and event["role"] == "assistant"
    )
    assert text == message["content"][0]["text"] != ""
    assert "<code>" in message["html"]


async def test_what_a_person_typed_is_shown_as_typed(connect: Connect):
    socket = await connect().open()
    await socket.send(
        type="message", client_id="c", text="<b>help</b>\n![x](http://evil.example/x.png)"
    )
    await socket.read("turn_end")
    again = await connect().open()
    shown = (await again.read("snapshot"))["messages"]
    users = next(message for message in shown if message["role"] == "user")
    assert users["html"] == "<p>&lt;b&gt;help&lt;/b&gt;<br>![x](http://evil.example/x.png)</p>"


async def test_a_second_tab_in_the_middle_of_a_turn_sees_the_rest_and_closing_it_cancels_nothing(
    connect: Connect,
):
    first = await connect().open()
    turn_id, (tool,) = await start(first, "wait 60")
    second = await connect().open()
    snapshot = await second.read("snapshot")
    await first.ping()
    assert tool["seq"] <= snapshot["seq"] <= max(first.seqs)
    (active,) = snapshot["active_turns"]
    assert active["turn_id"] == turn_id
    assert [(call["tool_id"], call["status"]) for call in active["calls"]] == [
        (tool["tool_id"], "running")
    ]
    await first.leave()
    heartbeat = await second.ping()
    assert heartbeat["active"] == [turn_id]
    assert await operate(second, "cancel_turn", turn_id=turn_id) == "accepted"
    assert (await second.read("turn_end"))["status"] == "cancelled"
    assert second.seqs == list(range(snapshot["seq"] + 1, max(second.seqs) + 1))


async def test_streamed_text_waits_for_no_database(
    connect: Connect, conversation: ConversationSummary
):
    socket = await connect().open()
    await socket.ping()  # the hello has been answered to its end
    held, may_go = threading.Event(), threading.Event()

    def stand_still() -> None:
        held.set()
        assert may_go.wait(TIMEOUT)

    standing = asyncio.create_task(run_in_db_thread(stand_still)())
    try:
        await eventually(held.is_set)
        delta = {"type": "text_delta", "turn_id": str(uuid4()), "text": "At once.", "offset": 0}
        sinks.push(conversation.id, delta)
        assert (await socket.read("text_delta"))["text"] == "At once."
        assert not standing.done()
    finally:
        may_go.set()
        await standing


async def test_a_piece_of_text_that_comes_after_its_message_is_not_sent(
    connect: Connect, conversation: ConversationSummary
):
    socket = await connect().open()
    turn_id, _ = await start(socket, "wait 60")  # the message of step 1 is complete
    seen = len(socket.seen)
    for step, text in ((1, "late"), (2, "next")):
        delta = {"type": "text_delta", "turn_id": turn_id, "text": text, "offset": 0, "step": step}
        sinks.push(conversation.id, delta)
    await socket.read("text_delta", lambda frame: frame["text"] == "next")
    assert all(frame.get("text") != "late" for frame in socket.seen[seen:])


async def test_who_comes_back_gets_what_was_missed_once_and_in_order(connect: Connect):
    first = await connect().open()
    await start(first, "wait 0.3")
    known = max(first.seqs)
    await first.leave()
    second = await connect().open(after=known)
    await second.read("turn_end")
    await second.ping()
    assert all(frame["type"] != "snapshot" for frame in second.seen)
    assert second.seqs == list(range(known + 1, max(second.seqs) + 1))
    third = await connect().open(after=max(second.seqs))
    await third.ping()
    assert third.seqs == []


async def test_a_number_that_the_log_never_gave_is_answered_by_a_snapshot(connect: Connect):
    socket = await connect().open(after=10_000)
    assert (await socket.next())["type"] == "snapshot"


@pytest.mark.usefixtures("through_layer")
async def test_messages_that_the_layer_loses_are_read_from_the_log(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
):
    socket = await connect().open()
    send = InMemoryChannelLayer.group_send
    lost: list[str] = []

    async def leaky(self: InMemoryChannelLayer, group: str, message: dict[str, Any]) -> None:
        kind = message.get("event", {}).get("type", "")
        if kind in {"turn_start", "message", "tool_start", "turn_end"}:
            lost.append(kind)
            return
        await send(self, group, message)

    monkeypatch.setattr(InMemoryChannelLayer, "group_send", leaky)
    turn_id, _ = await start(socket, "wait 0.01")

    async def has_ended() -> bool:
        return "turn_end" in lost and turn_id not in (await socket.ping())["active"]

    await eventually(has_ended)
    await socket.ping()
    assert {"turn_start", "tool_start"} <= set(lost)
    assert socket.seqs == list(range(1, len(socket.seqs) + 1))
    assert socket.events[-1]["type"] == "turn_end"


@pytest.mark.usefixtures("through_layer")
async def test_large_events_go_by_number_and_arrive_whole(connect: Connect, settings: Any):
    settings.WEBCHAT_MAX_INLINE_EVENT_BYTES = 10
    socket = await connect().open()
    await start(socket, "wait 0.01")
    await socket.read("turn_end")
    assert socket.seqs == list(range(1, len(socket.seqs) + 1))
    assert "input" in next(event for event in socket.events if event["type"] == "tool_start")


async def test_arguments_come_as_text_with_the_very_digits_that_the_tool_gets(connect: Connect):
    """Clients in JavaScript hold numbers up to 2^53 exactly, and print 1.0 as 1."""
    socket = await connect().open()
    exact = [
        {"name": "seconds", "value": "0.0", "is_text": False},
        {"name": "_meta", "value": '{\n  "order": 9007199254740993\n}', "is_text": False},
    ]
    await start(socket, 'call wait {"seconds": 0.0, "_meta": {"order": 9007199254740993}}')
    await socket.read("turn_end")
    again = await connect().open()
    snapshot = await again.read("snapshot")
    uses = [
        block
        for message in (*socket.events, *snapshot["messages"])
        for block in message.get("content", ())
        if block["type"] == "tool_use"
    ]
    starts = [event for event in socket.events if event["type"] == "tool_start"]
    assert [each["arguments"] for each in (*uses, *starts, *snapshot["calls"])] == [exact] * 4


@pytest.mark.usefixtures("through_layer")
async def test_a_heartbeat_comes_by_itself_and_brings_what_was_missed(
    connect: Connect, settings: Any, monkeypatch: pytest.MonkeyPatch
):
    settings.WEBCHAT_HEARTBEAT_INTERVAL = 0.05

    async def dead(*_: Any) -> None:
        raise ConnectionError("no broker")

    socket = await connect().open()
    monkeypatch.setattr(InMemoryChannelLayer, "group_send", dead)
    await start(socket, "wait 0.01")
    end = await socket.read("turn_end")
    heartbeat = await socket.read("heartbeat", lambda frame: frame["last_seq"] >= end["seq"])
    assert heartbeat["active"] == []
    assert socket.seqs == list(range(1, len(socket.seqs) + 1))


async def test_what_an_idle_socket_asks_of_the_database(
    connect: Connect, settings: Any, monkeypatch: pytest.MonkeyPatch
):
    settings.WEBCHAT_LOG_CHECK_INTERVAL = settings.TURNS_SWEEP_INTERVAL = 3600.0
    settings.TURNS_POLL_INTERVAL = 3600.0
    socket = await connect().open()
    await socket.ping()
    asked = Asked(monkeypatch)
    await socket.ping()
    asked.assert_at_most(
        4, 0
    )  # its session, its user, the conversation, the turns that are not over


async def test_resync_gives_the_whole_text_and_nothing_of_others(connect: Connect, stranger: User):
    socket = await connect().open()
    turn_id, _ = await start(socket, "wait 60")
    await socket.send(type="resync", turn_id=turn_id)
    delta = await socket.read("text_delta", lambda frame: frame["offset"] == 0)
    assert (delta["turn_id"], delta["text"]) == (turn_id, "")  # what was said is a message already
    foreign = await services.create_conversation(user=stranger)
    other = (
        await services.receive_message(conversation_id=foreign.id, user=stranger, text="wait 60")
    ).turn_id
    seen = len(socket.seen)
    await socket.send(type="resync", turn_id=str(other))
    await socket.send(type="resync", turn_id="nonsense")
    await socket.ping()
    assert all(frame["type"] != "text_delta" for frame in socket.seen[seen:])


async def test_a_text_for_which_there_is_no_room_is_sent_when_there_is(
    connect: Connect, settings: Any
):
    settings.WEBCHAT_OUTBOX_FRAMES = 1
    socket = await connect(room=1).open()
    turn_id, _ = await start(socket, "wait 60")
    await socket.ping()
    known = open_sockets.overflow_count()  # before the last read: only a read makes room again
    await socket.ping()  # all has left by then, and who was behind is so no more
    for _answer in ("taken", "on its way", "queued"):
        await socket.send(type="ping")
    await socket.send(type="resync", turn_id=turn_id)
    await eventually(lambda: open_sockets.overflow_count() > known)
    delta = await socket.read("text_delta", lambda frame: frame["offset"] == 0)
    assert delta["turn_id"] == turn_id


async def test_a_socket_ends_although_its_server_waits_for_room_even_to_close_it(
    connect: Connect, settings: Any
):
    settings.WEBCHAT_SEND_TIMEOUT = 0.2
    socket = await connect(room=1).open()
    assert await Viewer.objects.acount() == 1
    for _answer in ("taken", "on its way"):
        await socket.send(type="ping")
    assert socket.wire.future is not None
    await eventually(socket.wire.future.done)
    assert await Viewer.objects.acount() == open_sockets.count() == 0


# What people do


async def test_a_cancel_is_answered_while_the_turn_runs_and_again_with_the_same_answer(
    connect: Connect,
):
    socket = await connect().open()
    turn_id, tools = await start(socket, THREE, tools=3)
    assert len({tool["tool_id"] for tool in tools}) == 3
    assert await operate(socket, "cancel_turn", turn_id=turn_id, op_id="one") == "accepted"
    abort = await socket.read("turn_abort")
    assert (abort["reason"], abort["source"], abort["by"]) == ("user", "button", "ada")
    assert (await socket.read("turn_end"))["status"] == "cancelled"
    results = [event for event in socket.events if event["type"] == "tool_result"]
    assert sorted(result["tool_id"] for result in results) == sorted(
        tool["tool_id"] for tool in tools
    )
    assert await operate(socket, "cancel_turn", turn_id=turn_id, op_id="one") == "accepted"
    assert await operate(socket, "cancel_turn", turn_id=turn_id, op_id="two") == "already_finished"
    aborts = [event for event in socket.events if event["type"] == "turn_abort"]
    assert len(aborts) == 1


async def test_one_of_three_calls_is_cancelled_and_the_others_go_on(connect: Connect):
    socket = await connect().open()
    turn_id, tools = await start(socket, THREE, tools=3)
    victim = tools[1]["tool_id"]
    assert await operate(socket, "cancel_tool", turn_id=turn_id, tool_id=victim) == "accepted"
    result = await socket.read("tool_result")
    assert (result["tool_id"], result["status"], result["ended_by"]["source"]) == (
        victim,
        "cancelled",
        "button",
    )
    assert (
        await operate(socket, "cancel_tool", turn_id=turn_id, tool_id=victim) == "already_finished"
    )
    assert (await socket.ping())["active"] == [turn_id]
    for tool in (tools[0], tools[2]):
        assert (
            await operate(socket, "cancel_tool", turn_id=turn_id, tool_id=tool["tool_id"])
            == "accepted"
        )
    assert (await socket.read("turn_end"))["status"] == "completed"


async def test_a_limit_is_moved_while_the_call_runs(connect: Connect):
    socket = await connect().open()
    turn_id, (tool,) = await start(socket, "wait 60")
    call = {"turn_id": turn_id, "tool_id": tool["tool_id"]}
    assert await operate(socket, "set_deadline", **call, timeout_ms=90_000) == "accepted"
    moved = await socket.read("tool_deadline")
    assert (moved["timeout_ms"], moved["changed_by"]) == (90_000, "ada")
    assert await operate(socket, "set_deadline", **call, timeout_ms=1) == "accepted"
    assert (await socket.read("tool_result"))["status"] == "timed_out"
    assert [event["type"] for event in socket.events].count("tool_timeout") == 1


@pytest.mark.parametrize("turn_id", ["nonsense", str(UUID(int=7))])
async def test_what_is_not_there_is_not_found(connect: Connect, turn_id: str):
    socket = await connect().open()
    assert await operate(socket, "cancel_turn", turn_id=turn_id) == "not_found"
    assert await operate(socket, "cancel_tool", turn_id=turn_id, tool_id="t") == "not_found"
    assert (
        await operate(socket, "set_deadline", turn_id=turn_id, tool_id="t", timeout_ms=1)
        == "not_found"
    )


@pytest.mark.parametrize(("source", "recorded"), [("typed", "typed"), ("voice", "voice")])
async def test_a_cancel_word_ends_the_turn(connect: Connect, source: str, recorded: str):
    socket = await connect().open()
    turn_id, _ = await start(socket, "wait 60")
    await socket.send(type="message", client_id="c", text="stop", source="voice", is_final=False)
    assert (await socket.ping())["active"] == [turn_id]
    await socket.send(type="message", client_id="c", text="Please stop.", source=source)
    answer = await socket.read("message_result")
    assert answer == {
        "type": "message_result",
        "client_id": "c",
        "turn_id": turn_id,
        "cancelled": True,
    }
    await socket.read("turn_end")
    abort = next(event for event in socket.events if event["type"] == "turn_abort")
    assert abort["source"] == recorded
    answer = await socket.read("cancel_acknowledged")
    said = {"typed": "Cancelled.", "voice": "Okay, it has stopped."}[source]
    assert (answer["turn_id"], answer["said"], answer["text"]) == (turn_id, "Please stop.", said)
    again = await connect().open()
    (turn,) = (await again.read("snapshot"))["turns"]
    told = {"said": "Please stop.", "text": said, "source": source}
    assert turn["acknowledgements"] == [told]


async def test_a_call_that_was_given_up_is_seen_to_end_after_its_turn(connect: Connect):
    begun, ended = threading.Event(), threading.Event()

    def hung() -> str:
        """Hang in a thread."""
        begun.set()
        ended.wait()
        return "after all"

    registry.register(make_tool(hung))
    try:
        socket = await connect().open()
        turn_id, (told,) = await start(socket, "call hung {}")
        await asyncio.to_thread(begun.wait, PATIENCE)
        assert await operate(socket, "cancel_turn", turn_id=turn_id) == "accepted"
        await socket.read("turn_end")
        ended.set()
        settled = await socket.read("tool_settled")
    finally:
        ended.set()
        registry.unregister("hung")
    assert (settled["turn_id"], settled["tool_id"]) == (turn_id, told["tool_id"])
    assert (settled["status"], settled["kind"]) == ("abandoned", "returned")
    (call,) = (await (await connect().open()).read("snapshot"))["calls"]
    assert call["late"] == {"kind": "returned", "after_ms": settled["after_ms"]}


async def test_an_edited_message_is_seen_by_all_who_look_and_refused_in_words(connect: Connect):
    socket, other = await connect().open(), await connect().open()
    await socket.send(type="message", client_id="c", text="say tulips")
    first = await socket.read("turn_end")
    edited = {"type": "message", "client_id": "e", "text": "say roses"}
    await socket.send(**edited, replaces=first["turn_id"])
    for one in (socket, other):
        queued = await one.read("turn_queued", lambda frame: frame["version"] == 2)
        assert queued["replaces"] == first["turn_id"]
        await one.read("turn_end")
    late = await (await connect().open()).read("snapshot")
    assert [turn["replaced_by"] for turn in late["turns"]] == [queued["turn_id"], None]
    for named, code in ((first["turn_id"], "already_replaced"), ("no id", "cannot_replace")):
        await socket.send(type="message", client_id=code, text="better", replaces=named)
        error = await socket.read("error")
        assert (error["code"], error["client_id"]) == (code, code)


async def test_a_message_to_an_agent_that_was_switched_off_says_what_to_do(
    connect: Connect, conversation: ConversationSummary
):
    def switch_off() -> None:
        Agent.objects.create(name="librarian", is_enabled=False)
        Conversation.objects.filter(pk=conversation.id).update(agent="librarian")

    await run_in_db_thread(switch_off)()
    socket = await connect().open()
    await socket.send(type="message", client_id="c", text="hello")

    error = await socket.read("error")
    assert (error["code"], error["client_id"]) == ("agent_unavailable", "c")
    assert "Start a new conversation" in error["message"]


# What goes wrong


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("x", "invalid_json"),
        ("[]", "invalid_frame"),
        ('{"type":"nonsense"}', "unknown_type"),
        ('{"type":"cancel_turn","turn_id":"t"}', "invalid_field"),
        ('{"type":"hello","protocol":1}', "already_greeted"),
        ('{"type":"message","client_id":"c","text":"' + "x" * 65_536 + '"}', "frame_too_large"),
    ],
)
async def test_a_bad_frame_is_answered_and_the_socket_stays_open(
    connect: Connect, text: str, code: str
):
    socket = await connect().open()
    await socket.send_text(text)
    assert (await socket.read("error"))["code"] == code
    await socket.ping()


async def test_bytes_are_no_frame(connect: Connect):
    socket = await connect().open()
    await socket.wire.send_to(bytes_data=b'{"type":"ping"}')
    assert (await socket.read("error"))["code"] == "invalid_json"


@pytest.mark.parametrize(
    ("limit", "most", "frame"),
    [("MAX_BAD_FRAMES", 3, "x"), ("MAX_FRAMES_PER_MINUTE", 4, '{"type": "ping"}')],
)
async def test_too_many_frames_close_with_4429(
    connect: Connect, settings: Any, limit: str, most: int, frame: str
):
    setattr(settings, f"WEBCHAT_{limit}", most)
    socket = await connect().open()
    for _ in range(most + 1):
        await socket.send_text(frame)
    assert await socket.close_code() == 4429


async def test_a_failure_inside_is_said_without_its_text(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
):
    async def broken(**_: Any) -> None:
        raise ValueError("password=hunter2")

    socket = await connect().open()
    monkeypatch.setattr(operations.services, "receive_message", broken)
    await socket.send(type="message", client_id="c", text="hi")
    error = await socket.read("error")
    assert error["code"] == "server_error"
    assert "hunter2" not in str(error)
    await socket.ping()


# Who has to go


async def test_a_session_that_was_deleted_is_noticed_by_the_heartbeat(
    connect: Connect, settings: Any
):
    settings.WEBCHAT_HEARTBEAT_INTERVAL = 0.05
    socket = await connect().open()
    await Session.objects.all().adelete()
    assert await socket.close_code() == 4401


@pytest.mark.parametrize("text", ["hello", "stop"])
async def test_nothing_is_taken_from_a_session_that_was_deleted(connect: Connect, text: str):
    socket = await connect().open()
    await Session.objects.all().adelete()
    await socket.send(type="message", client_id="c", text=text)
    assert await socket.close_code() == 4401
    assert not await Turn.objects.aexists()


async def test_who_may_not_look_any_more_is_let_go_by_the_heartbeat(
    connect: Connect, stranger: User, settings: Any
):
    @run_in_db_thread
    def set_staff(is_staff: bool) -> None:
        stranger.is_staff = is_staff
        stranger.save()
        stranger.user_permissions.set(Permission.objects.filter(codename="view_all"))

    await set_staff(True)
    client = await signed_in(stranger)
    settings.WEBCHAT_HEARTBEAT_INTERVAL = 0.05
    socket = await connect(session=session_of(client)).open()
    await socket.read("heartbeat")
    await set_staff(False)
    assert await socket.close_code() == 4404


async def test_signing_out_closes_the_sockets_of_that_session_only(
    connect: Connect, user_client: AsyncClient, person: User
):
    elsewhere = await signed_in(person)
    mine = await connect().open()
    other = await connect(session=session_of(elsewhere)).open()
    await user_client.post(reverse("webchat:logout"))
    assert await mine.close_code() == 4401
    await other.ping()


async def test_when_the_server_goes_down_clients_are_told_to_come_back(connect: Connect):
    socket = await connect().open()
    closing = asyncio.create_task(open_sockets.close_all())
    assert await socket.close_code() == 1012
    assert not closing.done()
    await socket.leave()
    await closing
    assert await connect().close_code_after_connecting() == 1012


async def test_what_the_log_has_is_sent_before_the_server_goes_down(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
):
    async def dead(*_: Any) -> None:
        raise ConnectionError("no broker")

    socket = await connect().open()
    monkeypatch.setattr(InMemoryChannelLayer, "group_send", dead)
    await socket.send(type="message", client_id="c", text="wait 60")
    await socket.read("message_result")
    await runtime.stop(grace=0)
    closing = asyncio.create_task(open_sockets.close_all())
    assert await socket.close_code() == 1012
    assert socket.events[-1]["type"] == "turn_end"
    await socket.leave()
    await closing


async def test_a_socket_leaves_no_task_and_no_membership_behind(connect: Connect):
    await runtime.ensure_started()
    before = {task.get_name() for task in asyncio.all_tasks()}
    socket = await connect().open()
    layer = get_channel_layer()
    assert layer is not None

    def memberships() -> set[str]:
        return {name for name in layer.groups if name.startswith(("conversation.", "user."))}

    assert len(memberships()) == 2
    await socket.leave()
    assert not memberships()
    assert {task.get_name() for task in asyncio.all_tasks()} <= before


async def test_what_was_said_in_another_conversation_is_not_heard_here(
    connect: Connect, person: User, conversation: ConversationSummary
):
    other = await services.create_conversation(user=person)
    here, there = await connect().open(), await connect(conversation_id=other.id).open()
    await start(there, "wait 0.01")
    await there.read("turn_end")
    assert (await here.ping())["last_seq"] == 0
    assert here.events == []


# Going on


async def test_a_socket_continues_what_was_interrupted_and_lets_a_parked_conversation_go_on(
    connect: Connect, conversation: ConversationSummary
):
    @run_in_db_thread
    def plant() -> str:
        now = timezone.now()
        turn = Turn.objects.create(
            conversation_id=conversation.id,
            number=1,
            user_message="work",
            status="interrupted",
            queued_at=now,
            started_at=now,
            ended_at=now,
        )
        Conversation.objects.filter(pk=conversation.id).update(last_number=1, parked_at=now)
        return str(turn.pk)

    turn_id = await plant()
    socket = await connect().open()
    assert (await socket.read("snapshot"))["parked"] is not None
    await socket.send(type="continue_turn", op_id="a", turn_id=turn_id)
    refused = await socket.read("error")
    assert (refused["code"], refused["op_id"]) == ("conversation_parked", "a")
    assert await operate(socket, "resume_conversation", op_id="b") == "accepted"
    assert await operate(socket, "resume_conversation", op_id="b") == "accepted"
    assert any(event["type"] == "conversation_resumed" for event in socket.events)
    assert await operate(socket, "continue_turn", op_id="c", turn_id=turn_id) == "accepted"
    assert await operate(socket, "continue_turn", op_id="d", turn_id=turn_id) == "accepted"
    assert await operate(socket, "continue_turn", turn_id=str(uuid4())) == "not_found"
    queued = [event for event in socket.events if event["type"] == "turn_queued"]
    assert [event["source"] for event in queued] == ["continue"]


async def test_the_pages_of_a_deleted_conversation_learn_at_once_that_it_is_gone(
    connect: Connect, user_client: AsyncClient, conversation: services.ConversationSummary
):
    socket = await connect().open()
    answer = await user_client.delete(f"/api/conversations/{conversation.id}")
    assert answer.status_code == 200
    assert await socket.close_code() == 4404


class Wordless:
    """A host's own chat model that ends its answer at once."""

    async def stream(self, _request: ChatRequest) -> AsyncIterator[ChatDelta]:
        said: tuple[ChatDelta, ...] = ()
        for delta in said:
            yield delta


async def test_a_chat_model_of_ones_own_that_says_nothing_is_told_live_and_later(
    connect: Connect, settings: Any
):
    settings.TURNS_CHAT_MODEL = f"{__name__}:{Wordless.__name__}"
    socket = await connect().open()
    await socket.send(type="message", client_id=str(uuid4()), text="Hello")
    told = await socket.read("error")
    assert told["code"] == "answer_empty"
    assert (await socket.read("turn_end"))["status"] == "completed"
    later = await connect().open()
    [turn] = (await later.read("snapshot"))["turns"]
    assert (turn["notice"]["code"], turn["notice"]["message"]) == (told["code"], told["message"])
