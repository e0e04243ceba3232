"""Turns on a provider's chat model through the services: what the database and the watchers get."""

import asyncio
import base64
import json
import re
from dataclasses import replace
from io import BytesIO
from uuid import UUID

import pytest
from django.contrib.auth.models import Permission
from django.test import AsyncClient
from django.urls import reverse

from tests.files_to_attach import image, keep_files
from tests.support import PATIENCE
from tests.turns.chat_models.dialects import GOOGLE, KEY, OPENAI, PIECED, RESPONSES
from tests.turns.chat_models.servers import Break, Hold, Response, completions, responses
from tests.turns.support import in_database
from tests.turns.tools_of_servers import many_tools
from turns import selectors, services
from turns.chat_models.catalog import get_chat_model
from turns.core import runner
from turns.history.histories import CACHE, Settled
from turns.models import Message

pytestmark = pytest.mark.django_db(transaction=True)

UNAVAILABLE = Response([b"{}"], status="503 Service Unavailable")


@pytest.mark.parametrize("dialect", PIECED, indirect=True)
async def test_a_turn_with_tools_and_a_retry_is_told_stored_and_valid(serve, dialect, on):
    calls = (
        dialect.wire.call(1, "call_a", "quick", text="sunny"),
        dialect.wire.call(2, "call_b", "quick", raw='{"text": "ra'),
        dialect.wire.call(3, "call_c", "teleport", place="Mars"),
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
    good, bad, unknown = (await on.calls(turn.id)).values()
    assert (good.status, good.result) == ("succeeded", "sunny")
    assert (bad.status, bad.error_type) == ("failed", "invalid_input")
    assert (unknown.status, unknown.error_type) == ("failed", "unknown_tool")
    read = str(server.requests[2].body).partition("Mars")[2]
    places = [read.index(said) for said in ("sunny", "not valid JSON", "teleport")]
    assert places == sorted(places)


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
    next_turn = await on.run("What was that?")

    assert (turn.status, next_turn.status) == ("cancelled", "completed")
    first, second = (request.body for request in server.requests)
    for part in ("system", "systemInstruction", "tools"):  # a cache begins with these
        assert second.get(part) == first.get(part)
    said_before, note, _ = str(second).partition("[INTERRUPTED] The previous turn")  # H5
    assert note
    assert "Tell me a story" in said_before  # and goes on with what was said
    assert ("Once upon a" in said_before) == (place == "in the text")


async def test_what_the_provider_said_is_stored_short_and_without_the_key(serve, dialect, on):
    said = f"Unknown parameter; the key was {KEY}. ".encode() + b"word " * 1000
    await serve(Response([said], status="400 Bad Request"))

    turn = await on.run("Hello")

    assert turn.error_code == "chat_model_rejected"
    assert "Unknown parameter" in turn.error_detail
    assert KEY not in turn.error_detail
    assert len(turn.error_detail) == 1_000
    assert "Unknown parameter" not in str(on.sink.events)


USAGE_WORDS = re.compile(rb'"(\w*[tT]okens|\w*TokenCount)": ?\d+')
MODEL_WORDS = re.compile(rb'"(model|modelVersion)": ?"[^"]*"')


@pytest.mark.filterwarnings("ignore")  # those of the vendors' packages
@pytest.mark.parametrize(("reported", "stored"), [("-5", 0), (str(10**30), 10**9), ('"lots"', 0)])
async def test_whatever_a_provider_reports_as_usage_is_stored_and_added_up(
    serve, dialect, on, reported, stored
):
    def lying(part):
        part = MODEL_WORDS.sub(rb'"\1": "m\\u0000' + b"x" * 10_000 + b'"', part)
        return USAGE_WORDS.sub(rb'"\1": ' + reported.encode(), part)

    answer = dialect.answer(dialect.text("Hello."))
    # A third one for the summary that a model is asked for whose window seems to be full.
    await serve(*[replace(answer, parts=[*map(lying, answer.parts)])] * 3)

    turns = [await on.run("Hello"), await on.run("Again")]

    if dialect is GOOGLE and reported != "-5":
        assert {turn.status for turn in turns} <= {"completed", "failed"}
        return
    assert [turn.error_message for turn in turns] == ["", ""]
    assert turns[0].usage.get("output_tokens", 0) == stored
    sums = await in_database(lambda: selectors.usage_per("conversation"))
    assert sums[on.id].get("output_tokens", 0) in {2 * stored, 3 * stored}
    message = await Message.objects.filter(turn=turns[0].pk, role="assistant").aget()
    assert len(message.usage["model"]) <= 200


@pytest.mark.parametrize("dialect", [RESPONSES])
@pytest.mark.parametrize(
    ("parts", "code", "advice"),
    [
        (responses.refusal(f"No. \u202e{KEY}"), "chat_model_declined", "Rephrase"),
        ([responses.failed("invalid_prompt", f"No. \u202e{KEY}")], "chat_model_rejected", "admin"),
    ],
    ids=["refusal", "failure"],
)
async def test_the_admin_reads_on_the_page_of_the_turn_what_the_responses_api_said(
    serve, dialect, on, parts, code, advice, operator
):
    await serve(dialect.answer(*parts))
    turn = await on.run("Hello")
    assert turn.error_code == code
    told = on.sink.find("error", code=code)["message"]
    assert advice in told
    assert "new conversation" not in told or code == "chat_model_declined"

    reader = AsyncClient()
    address = reverse("admin:turns_turn_change", args=[turn.pk])
    for allowed in (False, True):
        if allowed:
            content = await Permission.objects.aget(codename="view_content")
            await operator.user_permissions.aadd(content)
        await reader.aforce_login(operator)
        page = (await reader.get(address)).content.decode()
        assert ("No. \\u{202e}***" in page) == allowed
        assert KEY not in page


async def test_after_a_refusal_the_model_reads_that_it_declined(serve, dialect, on):
    reason = {"anthropic": "refusal", "google": "SAFETY"}.get(dialect.provider, "content_filter")
    server = await serve(
        dialect.ended_by(reason, dialect.text("I would")),
        dialect.answer(dialect.text("Yes.")),
    )

    assert (await on.run("Do it")).error_code == "chat_model_declined"
    await on.run("Then something else")

    assert "the chat model declined to answer" in str(server.requests[1].body)


@pytest.mark.parametrize(
    ("whose", "is_repeated"), [("none", False), ("sub-agents", False), ("all", True)]
)
async def test_an_answer_that_breaks_off_is_dropped_and_asked_for_again(
    serve, dialect, on, settings, monkeypatch, whose, is_repeated
):
    settings.TURNS_REPEAT_STEPS = whose
    monkeypatch.setattr(runner, "REPEAT_PAUSE", 0.01)
    server = await serve(
        dialect.unfinished(*dialect.open_text("Once upon a"), Break()),
        dialect.answer(dialect.text("There was a king.")),
    )

    turn = await on.run("Tell me a story")

    said = [message.texts[0].text for message in await on.history()][1:]
    assert len(server.requests) == 1 + is_repeated
    if not is_repeated:
        assert (turn.error_code, said) == ("chat_model_dropped", ["Once upon a"])
        assert on.sink.find("error", code="chat_model_dropped")["message"].startswith("The conn")
        assert (await on.run("go on")).status == "completed"
        return
    assert (turn.status, turn.steps, said) == ("completed", 2, ["There was a king."])
    pieces = [
        (piece["step"], piece["text"]) for piece in on.sink.events if piece["type"] == "text_delta"
    ]
    assert pieces[-2:] == [(1, ""), (2, "There was a king.")]
    notice = on.sink.find("error", code="retrying")
    assert notice["message"] == (
        "The connection to the model was lost, in the middle of an answer. The text so far is dropped; retrying in 0.01 s."
    )
    stored = Message.objects.filter(turn=turn.id, role="assistant")
    assert await stored.acount() == 1


@pytest.mark.parametrize("dialect", [OPENAI])
async def test_a_turn_gives_up_after_three_answers_in_a_row_that_broke_off(
    serve, on, settings, dialect, monkeypatch
):
    monkeypatch.setattr(runner, "REPEAT_PAUSE", 0.01)
    settings.TURNS_REPEAT_STEPS = "all"
    broken = dialect.unfinished(*dialect.open_text("Once upon a"), Break())
    server = await serve(*[broken] * 5)

    turn = await on.run("Tell me a story")

    assert (turn.error_code, len(server.requests)) == ("chat_model_dropped", 4)
    assert [message.texts[0].text for message in await on.history()][1:] == ["Once upon a"]


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
        assert "at most 128" in notice["message"]


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


async def test_a_thinking_model_gets_its_reasoning_back_in_the_turn_and_in_the_next_one(
    serve, chat, settings, monkeypatch
):
    """The rule of DeepSeek and Kimi, which refuse a request without it; the second turn reads it from the database."""
    thought = completions.reasoning("Let me", " see.")
    called = completions.call(1, "call_a", "quick", text="sunny")
    server = await serve(
        OPENAI.answer(thought, called, calls=True),
        *[OPENAI.answer(completions.text("Sunny."))] * 2,
    )
    monkeypatch.setenv("DEEPSEEK_API_KEY", KEY)
    monkeypatch.setenv("DEEPSEEK_BASE_URL", f"{server.url}/v1")
    settings.TURNS_CHAT_MODEL = "deepseek:deepseek-v4-pro"
    get_chat_model.cache_clear()

    turn = await chat.run("How is the weather?")
    CACHE.put(chat.id, Settled(version=-1))  # another process reads it
    await chat.run("And now?")

    for request in server.requests[1:]:
        called = [said for said in request.body["messages"] if said.get("tool_calls")]
        assert [said["reasoning_content"] for said in called] == ["Let me see."]
    assert turn.usage["requests"] == 2
