"""Decisions on calls through the doors: HTTP and WebSocket, at once, late, by others, and wrongly put (D2, D4)."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import AsyncClient
from pydantic import TypeAdapter

from tests.webchat.sockets import Frame, Socket
from tests.webchat.staff import make_staff, signed_in
from turns import EVENTS
from turns.services import ConversationSummary
from webchat import api_schemas
from webchat.protocol import server_frames

Connect = Callable[..., Socket]
TOOL_APPROVAL = server_frames.frame_of(EVENTS["tool_approval"])
TOOL_DECISION = server_frames.frame_of(EVENTS["tool_decision"])


@pytest.fixture(autouse=True)
def _waiting_is_asked_about(settings):
    settings.GOVERNANCE_APPROVAL = {"wait": "once_per_conversation"}


@pytest.fixture
async def asked(connect: Connect) -> tuple[Socket, Frame]:
    """Return a socket, and the question that it has seen."""
    socket = await connect().open()
    await socket.send(type="message", client_id="m", text="wait 0")
    question = await socket.read("tool_approval")
    TypeAdapter(TOOL_APPROVAL).validate_python(question)
    return socket, question


async def decide(client: AsyncClient, question: Frame, **body: Any) -> tuple[int, Any]:
    path = f"/api/turns/{question['turn_id']}/tools/{question['tool_id']}/decision"
    answer = await client.post(path, json.dumps(body), content_type="application/json")
    return answer.status_code, answer.json()


def frame(question: Frame, op_id: str, decision: str = "approve", **more: Any) -> dict[str, Any]:
    ids = {name: question[name] for name in ("turn_id", "tool_id")}
    return {"type": "decide_tool", "op_id": op_id, "decision": decision, **ids, **more}


async def test_a_socket_approves_and_every_tab_sees_it(asked: Any, connect: Connect):
    socket, question = asked
    tab = await connect().open()
    snapshot = await tab.read("snapshot")
    (shown,) = snapshot["active_turns"][0]["calls"]
    assert shown["approval"]["expires_at"] == question["expires_at"]
    await socket.send(**frame(question, "op", remember="conversation"))
    result = await socket.read("op_result")
    assert (result["op_id"], result["outcome"]) == ("op", "accepted")
    for seen in (socket, tab):
        decided = next((f for f in seen.seen if f["type"] == "tool_decision"), None)
        decided = decided or await seen.read("tool_decision")
        TypeAdapter(TOOL_DECISION).validate_python(decided)
        assert (decided["decision"], decided["by"], decided["remember"]) == (
            "approved",
            "ada",
            True,
        )
        assert (await seen.read("tool_result"))["status"] == "succeeded"


async def test_http_denies_with_a_reason_and_the_second_word_is_too_late(
    asked: Any, user_client: AsyncClient
):
    socket, question = asked
    denied = await decide(user_client, question, decision="deny", reason="no", op_id="one")
    assert denied == (200, {"ok": True, "status": "denied"})
    assert await decide(user_client, question, decision="deny", op_id="one") == denied
    status, body = await decide(user_client, question, decision="approve")
    TypeAdapter(api_schemas.DecidedAnswer).validate_python(body)
    assert (status, body["code"], body["status"]) == (409, "already_decided", "denied")
    assert "denied" in body["error"]
    await socket.send(**frame(question, "late"))
    assert (await socket.read("op_result"))["outcome"] == "already_finished"


async def test_page_and_api_at_once_are_one_decision(asked: Any, user_client: AsyncClient):
    socket, question = asked
    (status, _), _ = await asyncio.gather(
        decide(user_client, question, decision="approve"),
        socket.send(**frame(question, "op", "deny")),
    )
    outcome = (await socket.read("op_result"))["outcome"]
    assert (status, outcome) in ((200, "already_finished"), (409, "accepted"))
    ended = await socket.read("turn_end")
    assert ended["status"] == "completed"
    decisions = [f for f in socket.seen if f["type"] == "tool_decision"]
    assert [d["decision"] for d in decisions] == ["approved" if status == 200 else "denied"]


async def test_strangers_and_unknown_calls_are_not_found(
    asked: Any, user_client: AsyncClient, stranger: User
):
    _socket, question = asked
    other = AsyncClient()
    await other.aforce_login(stranger)
    assert (await decide(other, question, decision="approve"))[0] == 404
    unknown = {**question, "tool_id": "nobody"}
    status, body = await decide(user_client, unknown, decision="approve")
    assert (status, body["code"]) == (404, "tool_call_not_found")
    assert (await decide(user_client, {**question, "turn_id": "x"}, decision="deny"))[0] == 404


async def test_staff_may_decide_with_the_permission(asked: Any, stranger: User):
    _socket, question = asked
    await make_staff(stranger, "decide_any")
    client = await signed_in(stranger)
    assert (await decide(client, question, decision="approve"))[0] == 200


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"decision": "maybe"},
        {"decision": True},
        {"decision": "approve", "remember": "for ever"},
        {"decision": "deny", "reason": "x" * 501},
        {"decision": "deny", "reason": "\0"},
        {"decision": "deny", "op_id": ""},
    ],
)
async def test_what_makes_no_sense_is_refused_in_words(
    asked: Any, user_client: AsyncClient, wrong: dict[str, Any]
):
    socket, question = asked
    status, body = await decide(user_client, question, **wrong)
    assert (status, body["code"]) == (422, "invalid_field")
    sent = {**frame(question, "op"), **wrong}
    if not wrong:
        del sent["decision"]
    await socket.send(**sent)
    assert (await socket.read("error"))["code"] == "invalid_field"


async def test_a_waiting_call_is_among_the_active_ones(
    asked: Any, user_client: AsyncClient, conversation: ConversationSummary
):
    answer = await user_client.get("/api/turns/active")
    body = TypeAdapter(api_schemas.ActiveTurnsAnswer).validate_python(answer.json())
    assert [tool["status"] for tool in body.turns[0]["current_tools"]] == ["awaiting_approval"]


async def test_a_question_has_the_title_of_its_tool_and_the_next_call_names_who_allowed_it(
    asked: Any, connect: Connect
):
    socket, question = asked
    assert (question["tool_title"], question["tool_server"]) == ("Wait", "")
    (said,) = (f for f in socket.seen if f["type"] == "message")
    assert said["content"][-1]["title"] == "Wait"
    await socket.send(**frame(question, "op", remember="conversation"))
    started = await socket.read("tool_start")
    assert (started["tool_title"], started["allowed_earlier_by"]) == ("Wait", "")
    await socket.read("turn_end")
    await socket.send(type="message", client_id="again", text="wait 0")
    assert (await socket.read("tool_start"))["allowed_earlier_by"] == "ada"
    await socket.read("turn_end")
    calls = (await (await connect().open()).read("snapshot"))["calls"]
    assert [call["allowed_earlier_by"] for call in calls] == ["", "ada"]
    assert {call["tool_title"] for call in calls} == {"Wait"}
