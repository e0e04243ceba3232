"""Turns on a provider's chat model through the services: what the database and the watchers get."""

import asyncio
import base64
import json
from io import BytesIO
from uuid import UUID

import pytest

from tests.files_to_attach import image, keep_files
from tests.support import PATIENCE
from tests.turns.chat_models.dialects import PIECED
from tests.turns.chat_models.servers import Break, Hold, Response
from tests.turns.support import ChatDriver
from tests.turns.tools_of_servers import many_tools
from turns import selectors, services
from turns.chat_models.catalog import get_chat_model

pytestmark = pytest.mark.django_db(transaction=True)

UNAVAILABLE = Response([b"{}"], status="503 Service Unavailable")


@pytest.fixture
def on(chat: ChatDriver, settings, dialect):
    """The conversation, with the provider's chat model answering."""
    get_chat_model.cache_clear()
    settings.TURNS_CHAT_MODEL = f"{dialect.provider}:{dialect.model_name}"
    settings.TURNS_CHAT_MODEL_RETRY_MAX_WAIT = 0.05
    yield chat
    get_chat_model.cache_clear()


@pytest.mark.parametrize("dialect", PIECED, indirect=True)
async def test_a_turn_with_tools_and_a_retry_is_told_stored_and_valid(serve, dialect, on):
    calls = (
        dialect.wire.call(1, "call_a", "quick", text="sunny"),
        dialect.wire.call(2, "call_b", "quick", raw='{"text": "ra'),
    )
    server = await serve(
        UNAVAILABLE, dialect.answer(*calls, calls=True), dialect.answer(dialect.text("Sunny."))
    )

    turn = await on.run("How is the weather?")

    assert (turn.status, turn.steps) == ("completed", 2)
    told = on.sink.find("error", code="retrying")
    assert told["message"] == "The model is not available; retrying in 1 s."
    assert told["reason"] == "The model is not available"
    assert told["wait_ms"] == 50
    assert told["seq"]
    good, bad = (await on.calls(turn.id)).values()
    assert (good.status, good.result) == ("succeeded", "sunny")
    assert (bad.status, bad.error_type) == ("failed", "invalid_input")
    assert "not valid JSON" in str(server.requests[2].body["messages"])


async def test_a_page_that_is_opened_while_a_request_is_repeated_learns_it(serve, dialect, on):
    hold = Hold()
    await serve(UNAVAILABLE, Response(before=[hold]))
    turn_id = await on.say("Hello")
    async with asyncio.timeout(PATIENCE):
        await on.sink.until("error", code="retrying")
        await hold.reached.wait()

    seen = await selectors.snapshot(conversation_id=on.id, user=on.user)
    (active,) = seen["active_turns"]
    assert active["notice"]["code"] == "retrying"
    assert active["notice"]["wait_ms"] == 0  # the request is on its way again

    await on.cancel(turn_id)
    await on.ended(turn_id)


@pytest.mark.parametrize("place", ["before the headers", "in the text"])
async def test_a_cancel_closes_the_providers_socket_and_the_next_turn_knows(
    serve, dialect, on, place
):
    hold = Hold()
    held = (
        Response(before=[hold])
        if place == "before the headers"
        else dialect.unfinished(*dialect.open_text("Once upon a"), hold)
    )
    server = await serve(held, dialect.answer(dialect.text("I was interrupted.")))
    turn_id = await on.say("Tell me a story")
    async with asyncio.timeout(PATIENCE):
        await hold.reached.wait()
        if place == "in the text":
            await on.sink.until("text_delta", offset=0)

    await on.cancel(turn_id)
    async with asyncio.timeout(PATIENCE):  # C1
        await server.left.wait()
    turn = await on.ended(turn_id)
    await on.run("What was that?")

    assert turn.status == "cancelled"
    first, second = (request.body for request in server.requests)
    for part in ("system", "systemInstruction", "tools"):  # a cache begins with these
        assert second.get(part) == first.get(part)
    said_before, note, _ = str(second).partition("[INTERRUPTED] The previous turn")  # H5
    assert note
    assert "Tell me a story" in said_before  # and goes on with what was said
    assert ("Once upon a" in said_before) == (place == "in the text")


async def test_a_failure_ends_the_turn_with_its_code_and_keeps_what_was_said(serve, dialect, on):
    await serve(
        dialect.unfinished(*dialect.open_text("Once upon a"), Break()),
        dialect.answer(dialect.text("Again.")),
    )

    turn = await on.run("Tell me a story")

    assert (turn.status, turn.error_code) == ("failed", "chat_model_dropped")
    assert on.sink.find("error", code="chat_model_dropped")["message"].startswith("The conn")
    history = await on.history()
    assert history[-1].texts[0].text == "Once upon a"
    assert (await on.run("go on")).status == "completed"


async def test_an_answer_without_a_word_is_said_live_and_later(serve, dialect, on):
    await serve(UNAVAILABLE, dialect.answer())

    turn = await on.run("Hello")

    told = on.sink.find("error", code="answer_empty")
    seen = await selectors.snapshot(conversation_id=on.id, user=on.user)
    notice = {"code": "answer_empty", "message": told["message"], "reason": ""}
    assert [ended["notice"] for ended in seen["turns"]] == [notice]
    assert (await selectors.get_turn(turn_id=turn.id, user=on.user))["notice"] == notice


async def test_what_ended_a_turn_is_no_note_of_it(serve, dialect, on):
    await serve(*[UNAVAILABLE] * 4)

    turn = await on.run("Hello")

    seen = await selectors.get_turn(turn_id=turn.id, user=on.user)
    assert (seen["error_code"], seen["notice"]) == ("chat_model_unavailable", None)


async def test_a_missing_key_is_told_in_the_chat(on):
    turn = await on.run("Hello")

    assert (turn.status, turn.error_code) == ("failed", "chat_model_key_missing")
    assert "_API_KEY" in on.sink.find("error", code="chat_model_key_missing")["message"]


@pytest.mark.parametrize("dialect", PIECED, indirect=True)
async def test_a_request_has_no_more_tools_than_its_provider_takes(serve, dialect, on):
    server = await serve(dialect.answer(dialect.text("Hello.")))

    with many_tools(200) as crowd:
        turn = await on.run("Hello")

    assert turn.status == "completed"
    offered = str(server.requests[0].body["tools"])
    assert "read_file" in offered
    notice = on.sink.find("error", code="tools_left_out")
    if dialect.provider == "anthropic":
        assert notice is None
        assert crowd[-1] in offered
    else:
        assert len(server.requests[0].body["tools"]) == 128
        assert crowd[-1] not in offered
        assert "offered 128 of them" in notice["message"]


@pytest.mark.parametrize("dialect", PIECED, indirect=True)
async def test_an_image_reaches_the_provider_as_it_is_stored(
    serve, dialect, on, settings, tmp_path
):
    settings.TURNS_CHAT_MODEL_MEDIA = ["image", "pdf"]
    keep_files(settings, tmp_path)
    block = await services.add_attachment(user=on.user, name="a.png", source=BytesIO(image()))
    server = await serve(dialect.answer(dialect.text("A red one.")))
    turn = await on.run("What is it?", attachments=[UUID(block["attachment_id"])])
    assert turn.status == "completed"
    stored = await selectors.attached_file(attachment_id=UUID(block["attachment_id"]), user=on.user)
    asked = json.dumps(server.requests[0].body)
    assert base64.b64encode(stored.content).decode() in asked
    assert "What is it?" in asked
