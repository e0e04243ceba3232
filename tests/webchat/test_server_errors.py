"""A frame that meets a fault of the server is answered under its id. Sent again it has its effect once."""

from collections.abc import Callable
from typing import Any

import pytest
from django.test import AsyncClient

from governance.db import run_in_db_thread
from tests.faulty_database import FaultyDatabase
from tests.webchat.sockets import Frame, Socket
from turns.models import Conversation, Event, Operation, Turn
from turns.services import ConversationSummary

Connect = Callable[..., Socket]

OPERATION = 'INSERT INTO "turns_operation"'
MESSAGE = 'INSERT INTO "turns_turn"'


def is_for(op_id: str) -> Callable[[Frame], bool]:
    return lambda frame: frame.get("op_id") == op_id


async def count(model: Any, **fields: Any) -> int:
    return int(await run_in_db_thread(model.objects.filter(**fields).count)())


@pytest.mark.parametrize("fault", ["lose_statement", "lose_commit"])
async def test_a_message_that_meets_a_server_error_is_answered_and_can_be_sent_again(
    connect: Connect, faulty_database: FaultyDatabase, fault: str
):
    socket = await connect().open()
    getattr(faulty_database, fault)(MESSAGE)
    message = {"type": "message", "client_id": "c1", "text": "say once"}
    await socket.send(**message)
    error = await socket.read("error")
    assert (error["code"], error["client_id"]) == ("unavailable", "c1")
    assert "hunter2" not in str(error)
    await socket.send(**message)
    result = await socket.read("message_result")
    assert result["client_id"] == "c1"
    await socket.read("turn_end")
    assert await count(Turn) == 1
    assert await count(Event, type="turn_queued") == 1


@pytest.mark.parametrize(
    ("kind", "fields", "fault"),
    [
        ("cancel_turn", {}, "lose_statement"),
        ("cancel_turn", {}, "lose_commit"),
        ("cancel_tool", {}, "lose_statement"),
        ("cancel_tool", {}, "lose_commit"),
        ("set_deadline", {"extend_ms": 60_000}, "lose_statement"),
        ("set_deadline", {"extend_ms": 60_000}, "lose_commit"),
        ("decide_tool", {"decision": "deny"}, "lose_statement"),
        ("decide_tool", {"decision": "deny"}, "lose_commit"),
    ],
)
async def test_an_operation_that_meets_a_server_error_is_answered_and_has_its_effect_once(
    connect: Connect,
    faulty_database: FaultyDatabase,
    settings: Any,
    kind: str,
    fields: dict[str, Any],
    fault: str,
):
    if kind == "decide_tool":
        settings.GOVERNANCE_APPROVAL = {"wait": "always"}
    socket = await connect().open()
    await socket.send(type="message", client_id="c", text="wait 60")
    begun = await socket.read("tool_approval" if kind == "decide_tool" else "tool_start")
    if kind != "cancel_turn":
        fields = {**fields, "tool_id": begun["tool_id"]}
    asked = {"type": kind, "op_id": "op", "turn_id": begun["turn_id"], **fields}
    getattr(faulty_database, fault)(OPERATION)
    await socket.send(**asked)
    if not kind.startswith(
        "cancel"
    ):  # what runs has obeyed a cancel by then, so it is stored again
        error = await socket.read("error")
        assert (error["code"], error["op_id"]) == ("unavailable", "op")
    for _again in range(2):
        await socket.send(**asked)
        result = await socket.read("op_result", is_for("op"))
        assert result["outcome"] == "accepted"
    assert await count(Operation, op_id="op") == 1
    effect = {"cancel_turn": "turn_end", "set_deadline": "tool_deadline"}.get(kind, "tool_result")
    if not any(event["type"] == effect for event in socket.events):
        await socket.read(effect)
    assert await count(Event, type=effect) == 1


async def test_going_on_meets_a_server_error_and_is_asked_for_again(
    connect: Connect, conversation: ConversationSummary, faulty_database: FaultyDatabase
):
    socket = await connect().open()
    await socket.send(type="message", client_id="c", text="say hi")
    turn_id = (await socket.read("turn_end"))["turn_id"]
    await run_in_db_thread(Turn.objects.filter(pk=turn_id).update)(status="interrupted")
    rows = Conversation.objects.filter(pk=conversation.id)
    await run_in_db_thread(rows.update)(parked_at="2026-01-01T00:00Z")
    resume = {"type": "resume_conversation", "op_id": "r"}
    go_on = {"type": "continue_turn", "op_id": "c", "turn_id": turn_id}
    for asked, lost in ((resume, 'UPDATE "turns_conversation"'), (go_on, MESSAGE)):
        faulty_database.lose_statement(lost)
        await socket.send(**asked)
        error = await socket.read("error")
        assert (error["code"], error["op_id"]) == ("unavailable", asked["op_id"])
        await socket.send(**asked)
        assert (await socket.read("op_result"))["outcome"] == "accepted"
    await socket.read("turn_end")
    assert await count(Turn) == 2


async def test_a_hello_that_meets_a_server_error_lets_the_client_come_back(
    connect: Connect, faulty_database: FaultyDatabase
):
    socket = connect()
    await socket.connect()
    faulty_database.lose_statement('FROM "turns_conversation"')
    await socket.send(type="hello", protocol=1)
    assert (await socket.read("error"))["code"] == "unavailable"
    assert await socket.close_code() == 1011
    await connect().open()


async def test_while_the_database_is_away_the_api_says_when_to_try_again(
    user_client: AsyncClient,
    conversation: ConversationSummary,
    faulty_database: FaultyDatabase,
    caplog: pytest.LogCaptureFixture,
):
    path = f"/api/conversations/{conversation.id}/messages"
    body = {"client_id": "c", "text": "say once"}
    for statement in (MESSAGE, 'FROM "django_session"'):
        faulty_database.lose_statement(statement)
        answer = await user_client.post(path, data=body, content_type="application/json")
        assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
        assert answer["Retry-After"] == "2"
        assert "hunter2" not in answer.content.decode()
    assert not [
        record for record in caplog.records if record.name.startswith("webchat") and record.exc_info
    ]
    answer = await user_client.post(path, data=body, content_type="application/json")
    assert answer.status_code in {200, 201, 202}
    assert await count(Turn) == 1
