"""The HTTP API through the real site: who may, what comes back, the code and words of every error."""

import asyncio
import json
import threading
from collections.abc import Callable
from functools import partial
from typing import Any
from urllib.parse import quote
from uuid import UUID, uuid4

import pytest
from channels.layers import InMemoryChannelLayer
from django.contrib.auth.models import Permission, User
from django.db import DatabaseError
from django.test import AsyncClient, Client
from django.test.client import BOUNDARY, MULTIPART_CONTENT, encode_multipart
from django.utils import timezone
from markdown_it import MarkdownIt
from pydantic import TypeAdapter

from governance.db import run_in_db_thread
from governance.models import ToolCall
from tests.support import eventually
from tests.turns.support import until_begun
from tests.webchat.staff import make_staff, signed_in
from turns import wire
from turns.models import Agent, Conversation, Turn
from turns.running import runtime
from turns.services import ConversationSummary
from webchat import api, api_schemas, api_tokens, health, markdown, operations

Json = dict[str, Any]
pytestmark = pytest.mark.usefixtures("site")


async def post(
    client: AsyncClient, path: str, body: Any = None, **headers: str
) -> tuple[int, Json]:
    content: Json = (
        {"data": b"", "content_type": "application/octet-stream"}
        if body is None
        else {"data": json.dumps(body), "content_type": "application/json"}
    )
    answer = await client.post(path, **content, headers=headers or None)
    return answer.status_code, answer.json()


async def get(client: AsyncClient, path: str, **headers: str) -> tuple[int, Json]:
    answer = await client.get(path, headers=headers or None)
    return answer.status_code, answer.json()


def fits(shape: Any, body: Json) -> Json:
    """Return the body, which the API's description promises to have this shape."""
    TypeAdapter(shape).validate_python(body)
    return body


@pytest.fixture
async def say(user_client: AsyncClient, conversation: ConversationSummary) -> Callable[..., Any]:
    async def say_it(text: str, **more: str) -> Json:
        path = f"/api/conversations/{conversation.id}/messages"
        status, body = await post(user_client, path, {"text": text, **more})
        assert status == 202, body
        return fits(api_schemas.MessageAnswer, body)

    return say_it


@pytest.fixture
async def running(user_client: AsyncClient, say: Callable[..., Any]) -> Json:
    """Begin a turn that waits in a tool; return its row of the active turns."""
    turn_id = (await say("wait 60"))["turn_id"]

    async def row() -> Json | None:
        _, body = await get(user_client, "/api/turns/active")
        fits(api_schemas.ActiveTurnsAnswer, body)
        return next(
            (row for row in body["turns"] if row["turn_id"] == turn_id and row["current_tools"]),
            None,
        )

    running = await eventually(row)
    for call in running["current_tools"]:
        await until_begun(UUID(turn_id), call["tool_id"])
    return running


# Who may


async def test_without_session_or_token_everything_is_401(conversation: ConversationSummary):
    nobody = AsyncClient()
    for path in (
        "turns/active",
        f"turns/{uuid4()}",
        "agents",
        "conversations",
        f"conversations/{conversation.id}/history",
    ):
        status, body = await get(nobody, f"/api/{path}")
        assert (status, body["code"]) == (401, "signed_out")
    for path in (
        f"turns/{uuid4()}/abort",
        "conversations",
        f"conversations/{conversation.id}/messages",
    ):
        status, body = await post(nobody, f"/api/{path}", {"text": "hi"})
        assert (status, body["code"]) == (401, "signed_out")


async def test_a_session_needs_the_csrf_token_for_unsafe_methods(person: User):
    strict = AsyncClient(enforce_csrf_checks=True)
    await strict.aforce_login(person)
    assert (await get(strict, "/api/conversations"))[0] == 200
    status, body = await post(strict, "/api/conversations", {})
    assert (status, body["code"]) == (403, "csrf_failed")
    strict.cookies["csrftoken"] = "a" * 32
    status, _ = await post(strict, "/api/conversations", {}, **{"X-CSRFToken": "a" * 32})
    assert status == 201


async def test_a_token_needs_no_csrf_token(person: User):
    _, token = await run_in_db_thread(api_tokens.issue)(user=person, name="script")
    program = AsyncClient(enforce_csrf_checks=True)
    status, body = await post(
        program, "/api/conversations", {"title": "t"}, Authorization=f"Bearer {token}"
    )
    assert status == 201
    fits(api_schemas.ConversationAnswer, body)


async def test_a_wrong_token_is_refused_even_beside_a_good_session(user_client: AsyncClient):
    status, body = await get(user_client, "/api/conversations", Authorization="Bearer tk_wrong")
    assert (status, body["code"]) == (401, "invalid_token")


async def test_a_user_who_was_deactivated_is_signed_out(user_client: AsyncClient, person: User):
    person.is_active = False
    await person.asave()
    status, _ = await get(user_client, "/api/conversations")
    assert status == 401


async def test_what_belongs_to_somebody_else_does_not_exist(
    running: Json, conversation: ConversationSummary, stranger: User, user_client: AsyncClient
):
    other = AsyncClient()
    await other.aforce_login(stranger)
    turn = f"/api/turns/{running['turn_id']}"
    tool = running["current_tools"][0]["tool_id"]
    assert (await get(other, turn))[0] == 404
    assert (await get(other, f"{turn}/events"))[0] == 404
    assert await post(other, f"{turn}/abort") == (
        404,
        {"error": "Turn not found or already completed", "code": "turn_not_found"},
    )
    assert (await post(other, f"{turn}/abort-tool/{tool}"))[0] == 404
    assert (await post(other, f"{turn}/tools/{tool}/deadline", {"timeout_ms": 1}))[0] == 404
    assert (await get(other, f"{turn}/tools/{tool}/result"))[0] == 404
    for path in ("messages", "history"):
        assert (await get(other, f"/api/conversations/{conversation.id}/{path}"))[0] == 404
    assert (await post(other, f"/api/conversations/{conversation.id}/messages", {"text": "x"}))[
        0
    ] == 404
    assert (await get(other, "/api/turns/active"))[1] == {"turns": []}
    assert (await get(user_client, turn))[1]["status"] == "running"


async def test_staff_with_the_permissions_see_and_cancel_the_turns_of_others(
    running: Json, stranger: User
):
    await make_staff(stranger, "view_all", "cancel_any")
    operator = await signed_in(stranger)
    assert [row["turn_id"] for row in (await get(operator, "/api/turns/active"))[1]["turns"]] == [
        running["turn_id"]
    ]
    status, _ = await post(
        operator, f"/api/turns/{running['turn_id']}/abort", {"reason": "maintenance"}
    )
    assert status == 200
    abort = await eventually(lambda: _event(operator, running["turn_id"], "turn_abort"))
    assert (abort["reason"], abort["source"], abort["by"]) == ("admin", "api", "eve")


# Turns


async def test_a_turn_can_be_watched_and_cancelled(user_client: AsyncClient, running: Json):
    turn = f"/api/turns/{running['turn_id']}"
    assert running["current_tools"][0]["tool_name"]
    _, shown = await get(user_client, turn)
    fits(wire.TurnWithCalls, shown)
    assert [call["status"] for call in shown["calls"]] == ["running"]
    first = await post(user_client, f"{turn}/abort", {"op_id": "a"})
    assert first[0] == 200
    fits(operations.CancelAnswer, first[1])
    assert first[1] == {"ok": True, "turn_id": running["turn_id"], "status": "cancelling"}
    end = await eventually(lambda: _event(user_client, running["turn_id"], "turn_end"))
    assert end["status"] == "cancelled"
    abort = await _event(user_client, running["turn_id"], "turn_abort")
    assert (abort["reason"], abort["source"], abort["by"]) == ("user", "api", "ada")
    again = await post(user_client, f"{turn}/abort")
    assert again == (
        404,
        {"error": "Turn not found or already completed", "code": "turn_not_found"},
    )
    _, after = await get(user_client, f"{turn}/events?after={end['seq']}")
    assert after["events"] == []
    assert after["last_seq"] >= end["seq"]


@pytest.mark.parametrize("turn_id", ["nonsense", "00000000-0000-4000-8000-000000000000", "%00"])
async def test_an_unknown_turn_is_404_in_the_words_of_the_protocol(
    user_client: AsyncClient, turn_id: str
):
    said = (404, {"error": "Turn not found or already completed", "code": "turn_not_found"})
    assert await post(user_client, f"/api/turns/{turn_id}/abort") == said
    assert await get(user_client, f"/api/turns/{turn_id}") == said
    assert await get(user_client, f"/api/turns/{turn_id}/events") == said


async def test_one_call_is_cancelled_and_the_turn_goes_on(user_client: AsyncClient, running: Json):
    turn = f"/api/turns/{running['turn_id']}"
    tool = running["current_tools"][0]["tool_id"]
    assert (await post(user_client, f"{turn}/abort-tool/nobody"))[1][
        "code"
    ] == "tool_call_not_found"
    status, body = await post(user_client, f"{turn}/abort-tool/{tool}", {"reason": "too slow"})
    assert status == 200
    fits(operations.CancelToolAnswer, body)
    result = await eventually(lambda: _event(user_client, running["turn_id"], "tool_result"))
    assert (result["status"], result["ended_by"]["reason"], result["ended_by"]["by"]) == (
        "cancelled",
        "user",
        "ada",
    )
    end = await eventually(lambda: _event(user_client, running["turn_id"], "turn_end"))
    assert end["status"] == "completed"
    status, body = await post(user_client, f"{turn}/abort-tool/{tool}")
    assert (status, body["code"]) == (404, "tool_call_not_found")


async def test_the_limit_of_a_running_call_is_moved_and_capped(
    user_client: AsyncClient, running: Json
):
    path = (
        f"/api/turns/{running['turn_id']}/tools/{running['current_tools'][0]['tool_id']}/deadline"
    )
    status, body = await post(user_client, path, {"timeout_ms": 90_000})
    assert (status, body["timeout_ms"]) == (200, 90_000)
    fits(operations.DeadlineAnswer, body)
    assert (await post(user_client, path, {"extend_ms": 30_000}))[1]["timeout_ms"] == 120_000
    assert (await post(user_client, path, {"timeout_ms": 999_000_000}))[1][
        "timeout_ms"
    ] == 3_600_000
    for wrong in ({}, {"timeout_ms": 1, "extend_ms": 1}, {"timeout_ms": 0}, {"timeout_ms": "60"}):
        assert (await post(user_client, path, wrong))[0] == 422
    await post(user_client, path, {"timeout_ms": 1})
    result = await eventually(lambda: _event(user_client, running["turn_id"], "tool_result"))
    assert result["status"] == "timed_out"


# Conversations


async def test_conversations_are_made_and_listed(user_client: AsyncClient):
    status, made = await post(user_client, "/api/conversations", {"title": "Notes"})
    assert status == 201
    fits(api_schemas.ConversationAnswer, made)
    assert (await post(user_client, "/api/conversations"))[0] == 201
    _, listed = await get(user_client, "/api/conversations")
    fits(api_schemas.ConversationsAnswer, listed)
    assert made["conversation_id"] in {row["conversation_id"] for row in listed["conversations"]}


async def test_a_title_that_no_database_can_store_is_put_right(user_client: AsyncClient):
    status, made = await post(user_client, "/api/conversations", {"title": "a\ud800"})
    assert (status, made["title"]) == (201, "a?")


async def test_an_agent_whose_name_no_database_can_store_is_not_there(
    user_client: AsyncClient, conversation: ConversationSummary
):
    path = f"/api/conversations/{conversation.id}"
    status, answer = await change(user_client, path, {"agent": "a\ud800"})
    assert (status, answer["code"]) == (422, "agent_unavailable")
    for name in ("%00", "%ED%A0%80"):
        assert await get(user_client, f"/api/conversations?agent={name}") == (
            200,
            {"conversations": []},
        )


async def test_the_same_client_id_is_the_same_turn(say: Callable[..., Any]):
    first = await say("help", client_id="c1")
    assert await say("help", client_id="c1") == first
    assert (await say("help", client_id="c2"))["turn_id"] != first["turn_id"]


async def test_a_cancel_word_ends_what_is_active_and_is_a_message_otherwise(
    user_client: AsyncClient, running: Json, say: Callable[..., Any]
):
    assert await say("ok, never mind") == {
        "turn_id": running["turn_id"],
        "conversation_id": running["conversation_id"],
        "cancelled": True,
    }
    await eventually(lambda: _event(user_client, running["turn_id"], "turn_end"))
    assert (await _event(user_client, running["turn_id"], "turn_abort"))["source"] == "typed"
    assert (await say("stop"))["turn_id"] == running["turn_id"], "an impatient second one"
    helped = await say("help")
    await eventually(lambda: _event(user_client, helped["turn_id"], "turn_end"))
    again = await say("nvm")
    assert again["cancelled"] is False
    assert again["turn_id"] != running["turn_id"]


async def test_messages_and_history_can_be_read(
    user_client: AsyncClient, conversation: ConversationSummary, say: Callable[..., Any]
):
    turn_id = (await say("wait 0.01"))["turn_id"]
    await eventually(lambda: _event(user_client, turn_id, "turn_end"))
    _, shown = await get(user_client, f"/api/conversations/{conversation.id}/messages")
    fits(wire.Snapshot, shown)
    assert shown["messages"][0]["html"] == "<p>wait 0.01</p>"
    first = shown["messages"][0]["position"]
    _, earlier = await get(
        user_client, f"/api/conversations/{conversation.id}/messages?before={first}"
    )
    assert earlier["messages"] == []
    _, history = await get(user_client, f"/api/conversations/{conversation.id}/history")
    fits(wire.History, history)
    blocks = [block for message in history["messages"] for block in message["content"]]
    used = [block["id"] for block in blocks if block["type"] == "tool_use"]
    assert used
    assert used == [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]


@pytest.fixture
async def long_result(user_client: AsyncClient, say: Callable[..., Any]) -> Json:
    """Return the call of a turn whose tool has returned a long text, which looks like a page."""
    turn_id = (await say("wait 0.01"))["turn_id"]
    await eventually(lambda: _event(user_client, turn_id, "turn_end"))
    text = "<script>alert(1)</script> é\n" * 200
    call = await ToolCall.objects.aget(group=turn_id)
    await ToolCall.objects.filter(pk=call.pk).aupdate(
        result=text, call_id="a/../b c", tool_name="../../x"
    )
    path = f"/api/turns/{turn_id}/tools/{quote('a/../b c', safe='')}/result"
    return {"turn_id": turn_id, "path": path, "text": text}


async def test_a_long_result_says_its_length_and_has_an_address_for_the_whole(
    user_client: AsyncClient, long_result: Json
):
    _, turn = await get(user_client, f"/api/turns/{long_result['turn_id']}")
    (call,) = fits(wire.TurnWithCalls, turn)["calls"]
    text = long_result["text"]
    assert call["result"] == text[:2_000]
    assert call["result_length"] == len(text)
    answer = await user_client.get(long_result["path"])
    assert answer.content.decode() == text
    assert answer["Content-Disposition"] == 'inline; filename="x-a..b_c.txt"'
    kept = await user_client.get(f"{long_result['path']}?download=true")
    assert kept.content.decode() == text
    assert kept["Content-Disposition"].startswith("attachment; filename=")


async def test_a_result_is_never_taken_for_a_page(user_client: AsyncClient, long_result: Json):
    answer = await user_client.get(long_result["path"])
    assert answer["Content-Type"] == "text/plain; charset=utf-8"
    assert answer["X-Content-Type-Options"] == "nosniff"
    assert answer["Content-Security-Policy"] == "default-src 'none'; sandbox"
    assert "no-store" in answer["Cache-Control"]


async def test_a_result_is_for_those_who_may_see_its_conversation(
    long_result: Json, stranger: User
):
    assert (await get(AsyncClient(), long_result["path"]))[0] == 401
    other = AsyncClient()
    await other.aforce_login(stranger)
    assert await get(other, long_result["path"]) == (
        404,
        {"error": "Turn not found or already completed", "code": "turn_not_found"},
    )


async def test_a_call_that_runs_has_no_result_yet(user_client: AsyncClient, running: Json):
    tools = f"/api/turns/{running['turn_id']}/tools"
    tool = running["current_tools"][0]["tool_id"]
    status, body = await get(user_client, f"{tools}/{tool}/result")
    assert (status, body["code"]) == (409, "tool_call_not_ended")
    for unknown in ("nothing", "%00"):
        status, body = await get(user_client, f"{tools}/{unknown}/result")
        assert (status, body["code"]) == (404, "tool_call_not_found")


async def test_a_conversation_is_exported_whole_for_its_owner(
    user_client: AsyncClient,
    conversation: ConversationSummary,
    long_result: Json,
    stranger: User,
):
    path = f"/api/conversations/{conversation.id}/export"
    hostile = f"{long_result['text']}\n```\n# not a heading"
    await ToolCall.objects.filter(group=long_result["turn_id"]).aupdate(result=hostile)
    kept = await user_client.get(path)
    assert kept["Content-Disposition"].startswith("attachment; filename=")
    (turn,) = json.loads(kept.content)["turns"]
    assert [call["result"] for call in turn["calls"]] == [hostile]
    assert [message["role"] for message in turn["messages"]] == ["user", "assistant", "assistant"]
    page = await user_client.get(f"{path}?format=markdown")
    assert page["Content-Type"] == "text/markdown; charset=utf-8"
    assert "# wait 0.01\n" in page.content.decode()
    html = markdown.render_markdown(page.content.decode())
    assert "<h1>not a heading" not in html
    assert (await get(user_client, f"{path}?format=exe"))[0] == 422
    other = AsyncClient()
    await other.aforce_login(stranger)
    assert (await get(other, path))[0] == 404


@pytest.mark.parametrize(
    "said",
    ["```py\nx = 1", "~~~~\n~~~", "<!-- no end", "<PRE>\nno end", "- a\n  ```\n  b", "> ```\n> a"],
)
async def test_what_a_message_leaves_open_takes_in_nothing_that_follows(
    user_client: AsyncClient, conversation: ConversationSummary, say: Callable[..., Any], said: str
):
    for text in (said, "say the end"):
        turn_id = (await say(text))["turn_id"]
        await eventually(partial(_event, user_client, turn_id, "turn_end"))
    path = f"/api/conversations/{conversation.id}/export?format=markdown"
    page = (await user_client.get(path)).content.decode()
    assert said in page
    tokens = MarkdownIt("commonmark").parse(page)
    heads = [token for token in tokens if token.type == "heading_open" and token.tag == "h2"]
    assert len(heads) == 4


@pytest.mark.parametrize("answer", ["history", "export"])
async def test_a_whole_conversation_is_encoded_off_the_event_loop(
    user_client: AsyncClient,
    conversation: ConversationSummary,
    long_result: Json,
    monkeypatch: pytest.MonkeyPatch,
    answer: str,
):
    """Results have up to 100,000 characters each, and nothing bounds how many there are."""
    threads: list[int] = []
    encode = json.dumps

    def watched(*args: Any, **options: Any) -> str:
        threads.append(threading.get_ident())
        return encode(*args, **options)

    monkeypatch.setattr(json, "dumps", watched)
    found = await user_client.get(f"/api/conversations/{conversation.id}/{answer}")
    assert found.status_code == 200
    assert threads
    assert threading.get_ident() not in threads


async def test_an_edited_message_takes_the_place_of_what_was_said_since(
    user_client: AsyncClient,
    conversation: ConversationSummary,
    say: Callable[..., Any],
):
    async def ended(turn_id: str) -> None:
        async def is_over() -> bool:
            return bool(
                (await get(user_client, f"/api/turns/{turn_id}"))[1]["status"] == "completed"
            )

        await eventually(is_over)

    first = await say("say tulips")
    await ended(first["turn_id"])
    second = await say("say roses", replaces=first["turn_id"], client_id="e1")
    await ended(second["turn_id"])
    assert await say("say roses", replaces=first["turn_id"], client_id="e1") == second
    path = f"/api/conversations/{conversation.id}"
    _, history = await get(user_client, f"{path}/history")
    assert [message["content"][0]["text"] for message in history["messages"]] == [
        "say roses",
        "roses",
    ]
    _, page = await get(user_client, f"{path}/messages")
    shown = fits(wire.Snapshot, page)["turns"]
    assert [turn["replaced_by"] for turn in shown] == [second["turn_id"], None]
    _, turn = await get(user_client, f"/api/turns/{second['turn_id']}")
    assert (fits(wire.TurnWithCalls, turn)["version"], turn["replaced_by"]) == (2, None)
    kept = await user_client.get(f"{path}/export")
    facts = [
        (turn["user_message"], turn["replaced_by"]) for turn in json.loads(kept.content)["turns"]
    ]
    assert facts == [("say tulips", second["turn_id"]), ("say roses", None)]
    document = (await user_client.get(f"{path}/export?format=markdown")).content.decode()
    assert ("roses" in document, "tulips" in document.split("\n", 1)[1]) == (True, False)

    for named, code in (
        (first["turn_id"], "already_replaced"),
        (str(uuid4()), "cannot_replace"),
        ("no id", "cannot_replace"),
    ):
        body = {"text": "better", "replaces": named}
        status, refused = await post(user_client, f"{path}/messages", body)
        assert (status, refused["code"]) == (409, code)
    running = await say("wait 60")
    body = {"text": "better", "replaces": second["turn_id"]}
    status, refused = await post(user_client, f"{path}/messages", body)
    assert (status, refused["code"]) == (409, "conversation_busy")
    await post(user_client, f"/api/turns/{running['turn_id']}/abort", {})


async def change(client: AsyncClient, path: str, body: Json) -> tuple[int, Json]:
    answer = await client.patch(path, data=json.dumps(body), content_type="application/json")
    return answer.status_code, answer.json()


async def test_a_conversation_is_renamed_and_pinned(
    user_client: AsyncClient, conversation: ConversationSummary
):
    path = f"/api/conversations/{conversation.id}"
    _, other = await post(user_client, "/api/conversations", {"title": "newer"})
    status, body = await change(user_client, path, {"title": "  Plans \n for May "})
    assert (status, fits(api_schemas.ConversationAnswer, body)["title"]) == (200, "Plans for May")
    assert (await change(user_client, path, {"is_pinned": True}))[1]["is_pinned"] is True
    _, listed = await get(user_client, "/api/conversations")
    assert [row["title"] for row in listed["conversations"]] == ["Plans for May", "newer"]
    await change(user_client, path, {"is_pinned": False})
    _, listed = await get(user_client, "/api/conversations")
    assert [row["is_pinned"] for row in listed["conversations"]] == [False, False]
    assert listed["conversations"][0]["conversation_id"] == other["conversation_id"]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"title": " "}, "message_rejected"),
        ({"title": "x" * 201}, "invalid_field"),
        ({"title": "a\x00"}, "invalid_field"),
        ({"is_pinned": 1}, "invalid_field"),
        ({"agent": "nobody"}, "agent_unavailable"),
    ],
)
async def test_an_edit_that_cannot_be_is_422_in_words(
    user_client: AsyncClient, conversation: ConversationSummary, body: Json, code: str
):
    status, answer = await change(user_client, f"/api/conversations/{conversation.id}", body)
    assert (status, answer["code"]) == (422, code)
    assert answer["error"]


async def test_another_agent_answers_from_the_next_turn_on(
    user_client: AsyncClient,
    conversation: ConversationSummary,
    librarian: Agent,
    say: Callable[..., Any],
):
    before = (await say("wait 0.01"))["turn_id"]
    await eventually(lambda: _event(user_client, before, "turn_end"))
    path = f"/api/conversations/{conversation.id}"
    assert (await change(user_client, path, {"agent": librarian.name}))[1]["agent"] == "librarian"
    after = (await say("wait 0.01"))["turn_id"]
    assert (await get(user_client, f"/api/turns/{after}"))[1]["agent"] == "librarian"
    assert (await get(user_client, f"/api/turns/{before}"))[1]["agent"] != "librarian"


async def test_a_conversation_is_deleted_with_what_runs_in_it(
    user_client: AsyncClient, conversation: ConversationSummary, running: Json
):
    path = f"/api/conversations/{conversation.id}"
    answer = await user_client.delete(path)
    assert fits(api_schemas.DeletionAnswer, answer.json()) == {
        "ok": True,
        "conversation_id": str(conversation.id),
        "cancelled": 1,
    }
    assert (await get(user_client, "/api/conversations"))[1] == {"conversations": []}
    assert (await get(user_client, "/api/turns/active"))[1] == {"turns": []}
    assert (await get(user_client, f"{path}/messages"))[0] == 404
    assert (await get(user_client, f"/api/turns/{running['turn_id']}"))[0] == 404
    assert (await user_client.delete(path)).status_code == 404


async def test_nobody_else_edits_or_deletes_a_conversation(
    conversation: ConversationSummary, stranger: User, person: User
):
    path = f"/api/conversations/{conversation.id}"
    operator = await run_in_db_thread(User.objects.create_user)("olga", is_staff=True)
    seeing = await Permission.objects.aget(codename="view_all")
    await operator.user_permissions.aadd(seeing)
    for user in (stranger, operator):
        other = AsyncClient()
        await other.aforce_login(user)
        assert (await change(other, path, {"title": "mine"}))[0] == 404
        assert (await other.delete(path)).status_code == 404
    strict = AsyncClient(enforce_csrf_checks=True)
    await strict.aforce_login(person)
    assert (await strict.delete(path)).status_code == 403
    assert (await change(strict, path, {"title": "x"}))[0] == 403
    assert await Conversation.objects.filter(title="", deleted_at=None).acount() == 1


@pytest.mark.parametrize(
    "body", [{}, {"text": 7}, {"text": "  "}, {"text": "x" * 60_000}, {"text": "a\x00"}, []]
)
async def test_a_message_that_cannot_be_taken_is_422_in_words(
    user_client: AsyncClient, conversation: ConversationSummary, body: Any
):
    status, said = await post(user_client, f"/api/conversations/{conversation.id}/messages", body)
    assert status == 422
    assert said["code"] in {"invalid_field", "message_rejected"}
    assert said["error"].endswith(".")


@pytest.mark.usefixtures("running")
async def test_beyond_the_limit_of_waiting_messages_one_more_is_429_and_says_what_to_do(
    user_client: AsyncClient, conversation: ConversationSummary, settings: Any
):
    settings.TURNS_MAX_QUEUED = 1
    path = f"/api/conversations/{conversation.id}/messages"
    answers = [
        await post(user_client, path, {"text": "help", "client_id": f"m{n}"}) for n in range(2)
    ]
    assert [status for status, _body in answers] == [202, 429]
    assert answers[1][1]["code"] == "queue_full"
    assert "Wait for an answer or cancel the task" in answers[1][1]["error"]
    assert await post(user_client, path, {"text": "help", "client_id": "m0"}) == answers[0]


# Errors


@pytest.mark.parametrize("path", ["", "nowhere", "turns/", "turns/1/2/3/4", "docs/x"])
async def test_an_unknown_address_is_a_json_404(user_client: AsyncClient, path: str):
    assert (await get(user_client, f"/api/{path}"))[1]["code"] == "not_found"


async def test_a_wrong_method_is_a_json_405_that_says_what_is_right(user_client: AsyncClient):
    answer = await user_client.delete("/api/conversations")
    assert (answer.status_code, answer.json()["code"]) == (405, "method_not_allowed")
    assert {word.strip() for word in answer["Allow"].split(",")} >= {"GET"}


async def test_a_body_that_is_not_json_is_refused(
    user_client: AsyncClient, conversation: ConversationSummary
):
    path = f"/api/conversations/{conversation.id}/messages"
    broken = await user_client.post(path, data="{", content_type="application/json")
    assert (broken.status_code, broken.json()["code"]) == (400, "invalid_json")
    form = await user_client.post(
        path, data="text=hi", content_type="application/x-www-form-urlencoded"
    )
    assert (form.status_code, form.json()["code"]) == (415, "unsupported_media_type")
    large = await user_client.post(
        path, data=json.dumps({"text": "x" * 3_000_000}), content_type="application/json"
    )
    assert (large.status_code, large.json()["code"]) == (413, "body_too_large")


@pytest.mark.parametrize("path", ["conversations", "attachments", f"turns/{UUID(int=7)}/abort"])
async def test_a_form_is_refused_unread_also_where_its_token_is_right(person: User, path: str):
    browser = AsyncClient(enforce_csrf_checks=True)
    await browser.aforce_login(person)
    browser.cookies["csrftoken"] = "a" * 32
    for fields in ({"title": "x"}, {}):
        answer = await browser.post(f"/api/{path}", fields, headers={"X-CSRFToken": "a" * 32})
        assert (answer.status_code, answer.json()["code"]) == (415, "unsupported_media_type")
    assert not await Conversation.objects.aexists()


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (MULTIPART_CONTENT, encode_multipart(BOUNDARY, {"title": "x"})),
        ("application/x-www-form-urlencoded", b"title=x"),
    ],
    ids=["multipart", "urlencoded"],
)
async def test_a_form_of_a_program_is_not_taken_for_an_empty_body(
    conversation: ConversationSummary, person: User, kind: str, body: bytes
):
    _, token = await run_in_db_thread(api_tokens.issue)(user=person, name="script")
    for method, path in (("POST", ""), ("PATCH", f"/{conversation.id}")):
        answer = await AsyncClient().generic(
            method,
            f"/api/conversations{path}",
            data=body,
            content_type=kind,
            headers={"Authorization": f"Bearer {token}"},
        )
        assert (answer.status_code, answer.json()["code"]) == (415, "unsupported_media_type")


async def test_a_failure_inside_is_a_500_without_its_text(
    user_client: AsyncClient, monkeypatch: pytest.MonkeyPatch
):
    async def broken(**_: Any) -> None:
        raise DatabaseError("password=hunter2")

    monkeypatch.setattr(api.selectors, "list_conversations", broken)
    answer = await user_client.get("/api/conversations")
    assert (answer.status_code, answer.json()["code"]) == (500, "server_error")
    assert "hunter2" not in answer.content.decode()


# The description, and signs of life


async def test_the_description_asks_nobody_but_this_server(user_client: AsyncClient):
    page = (await user_client.get("/api/docs")).content.decode()
    assert "//" not in page.replace("<!", "").replace("/**", "").split("<body")[1].replace(
        '"/api/openapi.json"', ""
    )
    assert "<script>" not in page
    _, described = await get(user_client, "/api/openapi.json")
    assert "/api/turns/{turn_id}/abort" in described["paths"]
    assert described["paths"]["/api/turns/active"]["get"]["security"]


def test_signs_of_life(db: None, monkeypatch: pytest.MonkeyPatch):
    client = Client()
    assert client.get("/healthz").json() == {"ok": True}
    facts = {
        "database": True,
        "missing_migrations": [],
        "channel_layer": True,
        "takes_work": True,
    }
    ready = {"ok": True, **facts, "draining": False}
    assert client.get("/readyz").json() == ready

    async def unreachable(*_: Any) -> None:
        raise ConnectionError("redis://secret@host")

    monkeypatch.setattr(InMemoryChannelLayer, "group_send", unreachable)
    answer = client.get("/readyz")
    assert answer.status_code == 200
    assert answer.json() == {**ready, "channel_layer": False}


async def test_a_process_that_goes_down_is_not_ready_but_still_obeys(
    user_client: AsyncClient, running: Json
):
    stopping = asyncio.create_task(runtime.stop(grace=30))
    await eventually(runtime.is_draining)
    answer = await user_client.get("/readyz")
    assert (answer.status_code, answer.json()) == (503, {"ok": False, "draining": True})
    assert (await user_client.get("/healthz")).status_code == 200
    status, _ = await post(user_client, f"/api/turns/{running['turn_id']}/abort", {})
    assert status == 200
    await stopping
    _, turn = await get(user_client, f"/api/turns/{running['turn_id']}")
    assert (turn["status"], turn["ended_by"]["reason"]) == ("cancelled", "user")


async def test_readiness_is_bounded(settings: Any, monkeypatch: pytest.MonkeyPatch):
    settings.WEBCHAT_READY_TIMEOUT = 0.05

    async def hangs(*_: Any) -> None:
        await __import__("asyncio").Event().wait()

    monkeypatch.setattr(InMemoryChannelLayer, "group_send", hangs)
    answer = await AsyncClient().get("/readyz")
    assert (answer.status_code, answer.json()["channel_layer"]) == (200, False)
    assert health.get_channel_layer() is not None


async def test_a_process_that_runs_turns_without_its_lease_is_not_ready(user_client: AsyncClient):
    lease = (await runtime.ensure_started()).ownership.lease
    await lease.close()
    lease._held_until = 0.0
    answer = await user_client.get("/readyz")
    body = answer.json()
    assert (answer.status_code, body["database"], body["takes_work"]) == (503, True, False)


async def _event(client: AsyncClient, turn_id: str, kind: str) -> Json | None:
    _, body = await get(client, f"/api/turns/{turn_id}/events")
    fits(api_schemas.EventsAnswer, body)
    return next((event for event in body["events"] if event["type"] == kind), None)


# Agents


@pytest.fixture
async def librarian(site: None) -> Agent:
    return await run_in_db_thread(Agent.objects.create)(
        name="librarian", description="Knows books.", chat_model="some.module.factory"
    )


async def test_the_agents_that_may_be_chosen_are_listed(user_client: AsyncClient, librarian: Agent):
    await run_in_db_thread(Agent.objects.create)(name="retired", is_enabled=False)

    status, body = await get(user_client, "/api/agents")

    assert status == 200
    first, second = fits(api_schemas.AgentsAnswer, body)["agents"]
    assert (first["name"], first["chat_model"], first["is_default"]) == ("assistant", "local", True)
    assert second == {
        "name": "librarian",
        "description": "Knows books.",
        "chat_model": None,  # a path inside the site's code
        "is_default": False,
    }


async def test_a_conversation_begins_with_the_agent_that_was_chosen(
    user_client: AsyncClient, librarian: Agent
):
    status, made = await post(user_client, "/api/conversations", {"agent": "librarian"})
    _, default = await post(user_client, "/api/conversations")

    assert (status, made["agent"], default["agent"]) == (201, "librarian", "assistant")
    _, listed = await get(user_client, "/api/conversations")
    assert {row["agent"] for row in listed["conversations"]} == {"librarian", "assistant"}


async def test_an_agent_that_is_not_there_is_refused_with_words(
    user_client: AsyncClient, librarian: Agent
):
    status, body = await post(user_client, "/api/conversations", {"agent": "nobody"})
    assert (status, body["code"]) == (422, "agent_unavailable")
    assert "“nobody”" in body["error"]

    _, made = await post(user_client, "/api/conversations", {"agent": "librarian"})
    await run_in_db_thread(librarian.delete)()
    path = f"/api/conversations/{made['conversation_id']}/messages"
    status, body = await post(user_client, path, {"text": "hello"})
    assert (status, body["code"]) == (422, "agent_unavailable")


# Going on


async def interrupt(conversation: ConversationSummary) -> str:
    """Plant a turn that lost its process; return its id."""

    @run_in_db_thread
    def plant() -> str:
        turn = Turn.objects.create(
            conversation_id=conversation.id,
            number=1,
            user_message="work",
            status="interrupted",
            queued_at=timezone.now(),
            started_at=timezone.now(),
            ended_at=timezone.now(),
        )
        Conversation.objects.filter(pk=conversation.id).update(last_number=1)
        return str(turn.pk)

    return await plant()


async def test_an_interrupted_turn_is_continued_once(
    user_client: AsyncClient, conversation: ConversationSummary, stranger: User
):
    turn_id = await interrupt(conversation)
    status, body = await post(user_client, f"/api/turns/{turn_id}/continue")
    assert status == 202
    continued = fits(api_schemas.MessageAnswer, body)["turn_id"]
    assert await post(user_client, f"/api/turns/{turn_id}/continue") == (202, body)
    assert (await post(user_client, f"/api/turns/{uuid4()}/continue"))[0] == 404
    other = AsyncClient()
    await other.aforce_login(stranger)
    assert (await post(other, f"/api/turns/{turn_id}/continue"))[0] == 404

    async def has_ended() -> bool:
        return (await get(user_client, f"/api/turns/{continued}"))[1]["status"] == "completed"

    await eventually(has_ended)
    status, body = await post(user_client, f"/api/turns/{continued}/continue")
    assert (status, body["code"]) == (409, "cannot_continue")


async def test_a_parked_conversation_says_so_until_a_person_lets_it_go_on(
    user_client: AsyncClient, conversation: ConversationSummary, stranger: User
):
    parked = Conversation.objects.filter(pk=conversation.id)
    await run_in_db_thread(parked.update)(parked_at=timezone.now(), parked_reason="owner_deaths")
    path = f"/api/conversations/{conversation.id}"
    status, body = await post(user_client, f"{path}/messages", {"text": "hello"})
    assert (status, body["code"]) == (409, "conversation_parked")
    _status, snapshot = await get(user_client, f"{path}/messages")
    assert snapshot["parked"]["reason"] == "owner_deaths"
    other = AsyncClient()
    await other.aforce_login(stranger)
    assert (await post(other, f"{path}/resume"))[0] == 404
    await run_in_db_thread(Turn.objects.create)(
        conversation_id=conversation.id, number=1, user_message="x", queued_at=timezone.now()
    )
    status, body = await post(user_client, f"{path}/resume")
    assert (status, fits(operations.ResumeAnswer, body)["resumed"]) == (200, True)
    assert (await post(user_client, f"{path}/resume"))[1]["resumed"] is False
    assert (await get(user_client, f"{path}/messages"))[1]["parked"] is None
