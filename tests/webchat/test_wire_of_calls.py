"""A call on the wire, byte for byte: its events, the snapshot, the API and the export, for every status of a call.

The table is `wire_of_calls.txt`. A field may be added to it, never renamed or removed.
"""

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import AsyncClient

from governance import CallStatus, make_tool, registry
from governance.db import run_in_db_thread
from governance.models import ToolCall as CallRow
from tests.turns.row_factory import RowFactory, make_process, make_question, said
from tests.webchat.sockets import Socket
from turns import selectors
from turns.calls import serializers
from turns.core.events import TurnEvent
from turns.events import log, sinks
from turns.models import Conversation, Turn

TABLE = Path(__file__).with_name("wire_of_calls.txt")
LIVE, ENDED, CHILD = (UUID(int=number) for number in (1, 2, 3))
AT = datetime(2026, 3, 1, 12, tzinfo=UTC)

STARTED: dict[str, Any] = {
    "started_at": AT,
    "queued_ms": 12,
    "timeout_ms": 30_000,
    "timeout_source": "override",
    "idle_timeout_ms": 5_000,
    "asked_timeout_ms": 90_000,
    "effects": "possible",
}
BY_ADA = {"ended_by_reason": "user", "ended_by_source": "button", "ended_by_name": "ada"}
IMAGE = {"id": str(UUID(int=9)), "name": "a.png", "media_type": "image/png", "size": 7}
CALLS: dict[str, dict[str, Any]] = {
    "pending": {"waits_for": {"kind": "call", "tool_id": "running", "tool_name": "look"}},
    "awaiting_approval": {"tool_title": "Look", "tool_server": "shop"},
    "running": {
        **STARTED,
        "allowed_earlier_by": "ada",
        "progress": {"message": "half", "progress": 1, "total": 2.5, "tail": "last\n"},
        "deadline_changes": [
            {"from_ms": 1, "to_ms": 2, "from_idle_ms": 0, "to_idle_ms": 0, "by": "eve"},
            {"from_ms": 2, "to_ms": 2, "from_idle_ms": 9, "to_idle_ms": 0, "by": ""},
        ],
    },
    "cancelling": {**STARTED, "timeout_ms": 0, "idle_timeout_ms": 0, "isolation": "thread"},
    "succeeded": {
        **STARTED,
        "tool_name": "expected",
        "result": "é" * 2_001,
        "duration_ms": 1_234,
        "disposition": "settled",
        "images": [{**IMAGE, "width": 3, "height": 4}],
        "ended_at": AT,
    },
    "failed": {
        **STARTED,
        "result": "[ERROR] no",
        "is_error": True,
        "error_type": "execution_error",
        "disposition": "settled",
        "detail": "never shown",
        "duration_ms": 5,
    },
    "timed_out": {
        **STARTED,
        "is_error": True,
        "error_type": "timeout",
        "limit_reached": "idle",
        "disposition": "settled",
        "duration_ms": 5_001,
    },
    "cancelled": {
        **STARTED,
        **BY_ADA,
        "is_error": True,
        "error_type": "cancelled",
        "disposition": "settled",
        "effects": "cut",
        "duration_ms": 77,
    },
    "denied": {"is_error": True, "error_type": "denied", "disposition": "not_started"},
    "expired": {
        "is_error": True,
        "error_type": "expired",
        "limit_reached": "approval",
        "disposition": "not_started",
    },
    "not_started": {**BY_ADA, "is_error": True, "disposition": "not_started", "effects": "none"},
    "abandoned": {
        **STARTED,
        "is_error": True,
        "error_type": "timeout",
        "limit_reached": "total",
        "disposition": "indeterminate",
        "late_kind": "returned",
        "late_text": "never shown",
        "late_after_ms": 40,
    },
    "repaired": {
        **STARTED,
        "is_error": True,
        "error_type": "interrupted",
        "disposition": "indeterminate",
        "late_kind": "unwatched",
    },
}
DECISIONS = {
    "awaiting_approval": {"decision": ""},
    "running": {"decision": "approved", "by_name": "ada", "remember": True},
    "denied": {"decision": "denied", "by_name": "ada", "reason": "Too dear."},
    "expired": {"decision": "expired"},
}


@pytest.fixture
def expected_tool() -> Iterator[None]:
    """A tool that usually takes two seconds."""
    registry.register(make_tool(_look, name="expected", expected_duration=2))
    yield
    registry.unregister("expected")


async def _look(place: str) -> str:
    """Look."""
    return place


async def test_every_status_of_a_call_has_todays_bytes_on_the_wire(
    user_client: AsyncClient, person: User, expected_tool: None, connect: Any, tmp_path: Path
):
    conversation = await run_in_db_thread(_plant)(person)
    socket: Socket = await connect(conversation_id=conversation.pk).open(after=0)
    shown: dict[str, list[tuple[str, Any]]] = {status: [] for status in CALLS}
    for status, frame in await _sent(socket, conversation):
        shown[status].append((f"event {frame['type']}", frame))
    snapshot = (await user_client.get(f"/api/conversations/{conversation.pk}/messages")).json()
    of_live = snapshot["active_turns"][0]
    export = await selectors.export(conversation_id=conversation.pk, user=person)
    answers = [(await user_client.get(f"/api/turns/{turn_id}")).json() for turn_id in (LIVE, ENDED)]
    for place, calls in (
        ("snapshot", [*of_live["calls"], *snapshot["calls"]]),
        ("current tool", of_live["current_tools"]),
        ("api", [call for answer in answers for call in answer["calls"]]),
        ("export", [call for turn in export["turns"] for call in turn["calls"]]),
    ):
        for call in calls:
            shown[call["tool_id"]].append((place, call))
    table = "".join(
        f"{status} | {place} | {_stable(json.dumps(value, ensure_ascii=False))}\n"
        for status, values in shown.items()
        for place, value in values
    )
    actual = tmp_path / TABLE.name
    actual.write_text(table, "utf-8")
    assert set(CALLS) == {status.value for status in CallStatus}
    known = TABLE.read_text("utf-8")
    assert _comparable(table) == _comparable(known), f"if this was intended: cp {actual} {TABLE}"


def _stable(text: str) -> str:
    """Return it without what differs in each run: the time that a call has run for."""
    return re.sub(r'"elapsed_ms": \d+', '"elapsed_ms": 0', text)


def _comparable(table: str) -> list[str]:
    """Return its lines; only SQLite keeps the order of the fields of an event that is read from the log."""
    lines = [line.split(" | ", 2) for line in table.splitlines()]
    is_ordered = connection.vendor == "sqlite"
    return [
        f"{status} | {place} | {value if is_ordered else json.dumps(json.loads(value), sort_keys=True)}"
        for status, place, value in lines
    ]


def _plant(person: User) -> Conversation:
    factory = RowFactory(conversation=Conversation.objects.create(pk=UUID(int=4), owner=person))
    owner = make_process(age=-3_600)  # so that no recovery ends its turns
    ended, live = factory.turn(id=ENDED), factory.turn("running", id=LIVE, owner=owner)
    factory.message(ended, "user", said("Look around."), step=0)
    child = Conversation.objects.create(pk=UUID(int=5), owner=person, parent=factory.conversation)
    RowFactory(conversation=child).turn(
        id=CHILD, agent="helper", parent=live, parent_tool_id="running", is_detached=True
    )
    for position, (status, fields) in enumerate(CALLS.items()):
        turn = ended if CallStatus(status).is_terminal else live
        given = {"tool_name": "look", "input": {"place": "here"}, "concurrency": "parallel"}
        factory.call(turn, status, status, **{**given, "position": position, **fields})
        if (decision := DECISIONS.get(status)) is not None:
            times = {"requested_at": AT, "expires_at": AT + timedelta(minutes=1)}
            rule = "once_per_conversation" if "remember" in decision else "always"
            make_question(turn, status, tool_name="look", rule=rule, **times, **decision)
    return factory.conversation


async def _sent(socket: Socket, conversation: Conversation) -> list[tuple[str, dict[str, Any]]]:
    """Publish the events of every call; return them as the socket gets them, each after the status of its call."""
    statuses, events = await run_in_db_thread(_append)(conversation.pk)
    await sinks.publish(conversation.pk, events)
    frames = [await _next_event(socket) for _ in statuses]
    return list(zip(statuses, frames, strict=True))


async def _next_event(socket: Socket) -> dict[str, Any]:
    while "seq" not in (frame := await socket.next()):
        pass
    return frame


def _append(conversation_id: UUID) -> tuple[list[str], list[log.WireEvent]]:
    turns = {str(turn.pk): turn for turn in Turn.objects.filter(conversation=conversation_id)}
    statuses: list[str] = []
    stored: list[log.WireEvent] = []
    for status in CALLS:
        row = CallRow.objects.get(call_id=status)
        conversation = Conversation.objects.get(pk=conversation_id)
        events = _events_of(row)
        stored += log.append(conversation, turns[row.group].pk, *events, at=AT)
        statuses += [status] * len(events)
    return statuses, stored


def _events_of(row: CallRow) -> list[TurnEvent]:
    match CallStatus(row.status):
        case CallStatus.PENDING:
            return [serializers.queued_event(row)]
        case CallStatus.RUNNING | CallStatus.CANCELLING:
            return [serializers.start_event(row)]
        case CallStatus.AWAITING_APPROVAL:
            return []  # its event shows the question, not the call
    return serializers.result_events(row)
