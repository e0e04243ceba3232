"""What a person is told when a provider fails, without the provider's words, and what is repeated."""

import asyncio
import gzip
import json
import logging
from dataclasses import replace

import pytest

from tests.support import PATIENCE, eventually
from tests.turns.chat_models.dialects import ANTHROPIC, GOOGLE, KEY, OPENAI, model_of
from tests.turns.chat_models.servers import (
    Break,
    Hold,
    Response,
    completions,
    gemini,
    messages,
    refusal,
    sse,
)
from tests.turns.chat_models.test_providers import ASKED, deltas, reply_of
from turns.chat_models.catalog import get_chat_model
from turns.chat_models.failures import FailureKind, ProviderFailure, Subject, failure, span
from turns.chat_models.providers import close_connections
from turns.chat_models.vendors import http
from turns.core.chat_model import Notice, Stop, StopReason, StreamLimits, TextDelta, Usage

THEIR_WORDS = f"Incorrect API key provided: {KEY}; internal trace 0xC0FFEE"


async def failed(model, said=None, request=ASKED):
    """Stream until it fails; what came before is put into `said`."""
    said = [] if said is None else said

    async def consume():
        async for delta in model.stream(request):
            said.append(delta)

    with pytest.raises(ProviderFailure) as raised:
        await consume()
    return raised.value


BAD_KEY = {
    "@type": "type.googleapis.com/google.rpc.ErrorInfo",
    "reason": "API_KEY_INVALID",
    "domain": "googleapis.com",
    "metadata": {"service": "generativelanguage.googleapis.com"},
}


def of(dialect, responses):
    """The response of this dialect's provider; OpenAI says the same by both its doors."""
    by_provider = dict(zip(("anthropic", "openai", "google"), responses, strict=True))
    return by_provider[dialect.provider.removesuffix("-responses")]


REFUSALS = {
    "401": (
        messages.error("401 Unauthorized", "authentication_error", THEIR_WORDS),
        completions.error("401 Unauthorized", THEIR_WORDS, code="invalid_api_key"),
        gemini.error("400 Bad Request", THEIR_WORDS, "INVALID_ARGUMENT", details=[BAD_KEY]),
        "chat_model_key_refused",
        "_API_KEY",
    ),
    "403": (
        messages.error("403 Forbidden", "permission_error", THEIR_WORDS),
        completions.error("403 Forbidden", THEIR_WORDS),
        gemini.error("403 Forbidden", THEIR_WORDS, "PERMISSION_DENIED"),
        "chat_model_key_refused",
        "_API_KEY",
    ),
    "404": (
        messages.error("404 Not Found", "not_found_error", "model: claude-sonnet-5-5"),
        completions.error("404 Not Found", THEIR_WORDS, code="model_not_found"),
        gemini.error("404 Not Found", THEIR_WORDS, "NOT_FOUND"),
        "chat_model_not_found",
        "correct its name",
    ),
    "400": (
        messages.error("400 Bad Request", "invalid_request_error", THEIR_WORDS),
        completions.error("400 Bad Request", THEIR_WORDS, type="invalid_request_error"),
        gemini.error("400 Bad Request", THEIR_WORDS, "INVALID_ARGUMENT"),
        "chat_model_rejected",
        "read the provider's message in the admin",
    ),
    "no tools": (
        None,
        completions.error(
            "400 Bad Request",
            "registry.ollama.ai/library/gemma3:4b does not support tools; 0xC0FFEE",
            type="api_error",
        ),
        None,
        "chat_model_without_tools",
        "give the agent no tools",
    ),
    "no images": (
        None,
        completions.error(
            "400 Bad Request", "/models/text-only is not a multimodal model; 0xC0FFEE"
        ),
        None,
        "chat_model_without_media",
        "Start a new conversation without it",
    ),
    "too long": (
        messages.error(
            "400 Bad Request",
            "invalid_request_error",
            "prompt is too long: 213464 tokens > 200000 maximum",
        ),
        completions.error(
            "400 Bad Request",
            "This model's maximum context length is 128000 tokens. However, your messages resulted in 140339 tokens.",
            type="invalid_request_error",
            param="messages",
            code="context_length_exceeded",
        ),
        gemini.error(
            "400 Bad Request",
            "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
            "INVALID_ARGUMENT",
        ),
        "context_too_long",
        "a shorter message",
    ),
    "413": (
        messages.error("413 Request Entity Too Large", "request_too_large", THEIR_WORDS),
        completions.error("413 Request Entity Too Large", THEIR_WORDS),
        gemini.error("413 Request Entity Too Large", THEIR_WORDS, "INVALID_ARGUMENT"),
        "chat_model_request_too_large",
        "shorter message",
    ),
    "405": (
        *[Response([b"<html>0xC0FFEE</html>"], status="405 Method Not Allowed")] * 3,
        "chat_model_rejected",
        "read the provider's message in the admin",
    ),
    "no credit": (
        messages.error(
            "400 Bad Request",
            "invalid_request_error",
            "Your credit balance is too low to access the Anthropic API.",
        ),
        completions.error(
            "429 Too Many Requests",
            "You exceeded your current quota, please check your plan and billing details.",
            type="insufficient_quota",
            code="insufficient_quota",
        ),
        None,  # Google says the same of a quota for a minute and of one for a month: it is busy
        "chat_model_quota",
        "credit",
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
async def test_a_refusal_is_told_with_what_to_do_and_asked_only_once(serve, dialect, case, caplog):
    *responses, code, advice = REFUSALS[case]
    response = of(dialect, responses)
    if response is None:
        return
    server = await serve(response)

    with caplog.at_level(logging.INFO):
        failure = await failed(model_of(dialect))

    assert failure.code == code
    assert advice in failure.message
    assert len(server.requests) == 1
    for where in (failure.message, caplog.text):
        assert KEY not in where
        assert "0xC0FFEE" not in where
    assert KEY not in failure.detail
    assert "0xC0FFEE" in failure.detail or "0xC0FFEE" not in str(response.parts)


@pytest.mark.parametrize(
    "said",
    [
        "the request exceeds the available context size, try increasing it",
        "Trying to keep the first 5000 tokens. However, the model is loaded with context length of only 4096 tokens, "
        "which is not enough; the number of tokens is greater than the context length",
        "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 4000 `inputs` tokens",
    ],
    ids=["llama.cpp", "LM Studio", "TGI"],
)
async def test_servers_of_ones_own_refuse_a_long_prompt_in_other_words(serve, said):
    await serve(completions.error("400 Bad Request", said))
    refused = await failed(model_of(OPENAI))
    assert refused.code == "context_too_long"
    assert refused.is_too_long


@pytest.mark.parametrize(
    "body",
    [
        {"message": "Model Not Exist", "type": "invalid_request_error", "code": None},
        {"message": "anthropic/claude-nope is not a valid model ID", "code": 400},
        {"message": "Unknown Model, please check the model code.", "code": "1211"},
        {"message": "modelCode: does not exist", "code": "1214"},
    ],
    ids=["DeepSeek", "OpenRouter", "Z.AI", "Z.AI's coding plan"],
)
async def test_some_providers_report_an_unknown_model_as_a_bad_request(serve, body):
    await serve(refusal("400 Bad Request", {"error": body}))
    assert (await failed(model_of(OPENAI))).code == "chat_model_not_found"


async def test_a_limit_that_does_not_fit_into_the_models_window_is_left_out(serve):
    """Servers with a small window refuse a request for what it may come to, however short it is."""
    refused = completions.error(
        "400 Bad Request",
        "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens "
        "(1000 in the messages, 8000 in the completion). Please reduce the length of the messages or completion.",
        type="BadRequestError",
    )
    server = await serve(refused, OPENAI.answer(OPENAI.text("Hi.")), *[refused] * 3)
    limited = replace(ASKED, max_tokens=8000)

    said = await deltas(model_of(OPENAI), limited)

    assert reply_of(said).text == "Hi."
    assert ["max_completion_tokens" in request.body for request in server.requests] == [True, False]
    assert (await failed(model_of(OPENAI), request=limited)).code == "context_too_long"  # twice
    assert (await failed(model_of(OPENAI))).code == "context_too_long"
    assert len(server.requests) == 5


BUSY = {
    "429": (
        messages.error("429 Too Many Requests", "rate_limit_error", THEIR_WORDS, retry_after="0"),
        completions.error("429 Too Many Requests", THEIR_WORDS, headers={"retry_after": "0"}),
        gemini.error("429 Too Many Requests", THEIR_WORDS, "RESOURCE_EXHAUSTED", retry_after="0"),
        "The model is busy; retrying in 1 s.",
    ),
    "529": (
        messages.error("529", "overloaded_error", "Overloaded"),
        completions.error("529", "Overloaded"),
        gemini.error("503 Service Unavailable", "The model is overloaded.", "UNAVAILABLE"),
        "The model is not available; retrying in 1 s.",
    ),
    "500": (
        messages.error("500 Internal Server Error", "api_error", THEIR_WORDS),
        completions.error("500 Internal Server Error", THEIR_WORDS, type="server_error"),
        gemini.error("500 Internal Server Error", THEIR_WORDS, "INTERNAL"),
        "The model is not available; retrying in 1 s.",
    ),
    "503 from a proxy": (
        *[Response([b"<html>no healthy upstream</html>"], status="503 Service Unavailable")] * 3,
        "The model is not available; retrying in 1 s.",
    ),
    "408": (
        *[Response([b"<html>too slow</html>"], status="408 Request Timeout")] * 3,
        "The model's provider timed out; retrying in 1 s.",
    ),
    "409": (
        messages.error("409 Conflict", "conflict", THEIR_WORDS),
        completions.error("409 Conflict", THEIR_WORDS),
        gemini.error("409 Conflict", THEIR_WORDS, "ABORTED"),
        "The request conflicted with another one at the model's provider; retrying in 1 s.",
    ),
    "broken before the first byte": (
        *[Response([Break()], headers={})] * 3,
        "The model cannot be reached; retrying in 1 s.",
    ),
}


@pytest.mark.parametrize("case", BUSY)
async def test_what_passes_is_tried_again_and_the_person_is_told(serve, dialect, case):
    *responses, sentence = BUSY[case]
    bad = of(dialect, responses)
    server = await serve(bad, bad, dialect.answer(dialect.text("Here I am.")))

    said = await deltas(model_of(dialect))

    notices = [delta for delta in said if isinstance(delta, Notice)]
    assert notices == [Notice(code="retrying", message=sentence)] * 2
    assert [delta.text for delta in said if isinstance(delta, TextDelta)] == ["Here I am."]
    assert said[-1] == Stop(StopReason.END)
    assert len(server.requests) == 3  # the SDKs repeat nothing of their own


async def test_the_retries_end(serve, dialect):
    bad = of(dialect, BUSY["500"][:-1])
    server = await serve(*[bad] * 5)

    said = []
    failure = await failed(model_of(dialect, retries=2), said)

    assert failure.code == "chat_model_unavailable"
    assert len(server.requests) == 3
    notices = [delta for delta in said if isinstance(delta, Notice)]
    assert [notice.code for notice in notices] == ["retrying", "retrying"]
    assert reply_of(said).usage == Usage(requests=3)


COME_BACK = {
    "anthropic": messages.error("429 Too Many Requests", "rate_limit_error", "…", retry_after="4"),
    "openai": completions.error("429 Too Many Requests", "…", headers={"retry_after": "4"}),
    "google": gemini.error(
        "429 Too Many Requests", "…", "RESOURCE_EXHAUSTED", details=[gemini.come_back_in(4)]
    ),
}


async def test_a_provider_that_says_when_to_come_back_is_obeyed(serve, dialect):
    await serve(COME_BACK[dialect.provider.removesuffix("-responses")])
    stream = model_of(dialect).stream(ASKED)

    assert isinstance(await anext(stream), Usage)
    notice = await anext(stream)
    assert notice.message in {f"The model is busy; retrying in {wait} s." for wait in (4, 5)}
    assert 4 <= notice.wait <= 5  # with a spread: those who were refused together come back apart
    await stream.aclose()


@pytest.mark.parametrize(("asked", "least"), [("0", 0.4), ("1.5", 1.5), ("-1", 0.4), ("nan", 0.4)])
async def test_at_once_and_fractions_are_understood(serve, asked, least):
    bad = completions.error("429 Too Many Requests", "…", headers={"retry_after": asked})
    await serve(bad)
    stream = model_of(OPENAI, first_wait=0.4).stream(ASKED)

    assert isinstance(await anext(stream), Usage)
    assert least <= (await anext(stream)).wait <= least * 1.25
    await stream.aclose()


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.2, "1 s"), (90, "90 s"), (3600, "60 min"), (10**30, "more than a day")],
)
def test_a_span_is_told_in_words(seconds, words):
    assert span(seconds) == words


async def test_a_wait_that_is_too_long_is_not_begun(serve):
    bad = messages.error("429 Too Many Requests", "rate_limit_error", "…", retry_after="600")
    server = await serve(bad)

    failure = await failed(model_of(ANTHROPIC))

    assert failure.code == "chat_model_busy"
    assert "again in 10 min" in failure.message
    assert len(server.requests) == 1


async def test_nothing_listens_at_the_address(monkeypatch, settings, unused_tcp_port):
    settings.TURNS_CHAT_MODEL_BASE_URL = f"http://127.0.0.1:{unused_tcp_port}/v1"

    failure = await failed(model_of(OPENAI, retries=1))

    assert failure.code == "chat_model_unreachable"
    assert "address" in failure.message
    assert str(unused_tcp_port) not in failure.message


async def test_a_stream_that_ends_politely_but_too_early_is_no_answer(serve, dialect):
    call = dialect.open_call("call_a", "get_weather", "")
    await serve(dialect.unfinished(*dialect.open_text("Let me look."), *call))

    failure = await failed(model_of(dialect))

    assert failure.code == "chat_model_dropped"  # and the call is not run without its arguments


async def test_an_empty_stream_is_tried_again(serve, dialect):
    server = await serve(Response(), dialect.answer(dialect.text("Now.")))

    said = await deltas(model_of(dialect))

    assert [delta.text for delta in said if isinstance(delta, TextDelta)] == ["Now."]
    assert len(server.requests) == 2


async def test_a_stream_of_garbage_is_told_as_unreadable(serve, dialect):
    garbage = Response([b"event: message_start\ndata: {not json at all\n\n"])
    await serve(*[garbage] * 2)

    failure = await failed(model_of(dialect, retries=1))

    assert failure.code == "chat_model_unreadable"


ODD_EVENTS = {
    "anthropic": [
        "null",
        '{"type":"message_start","message":null}',
        '{"type":"message_start","message":{"id":"x"}}',
        '{"type":"content_block_start","index":0,"content_block":null}',
        '{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"x"}}',
        '{"type":"content_block_delta","index":9,"delta":{"type":"input_json_delta","partial_json":"x"}}',
        '{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":null}',
        '{"type":"error","error":"no"}',
    ],
    "openai": [
        "null",
        "[]",
        '{"choices":null}',
        '{"choices":"no"}',
        '{"choices":[{"index":0,"delta":null}]}',
        '{"choices":[{"index":0,"delta":"hey"}]}',
        '{"choices":[{"index":0,"delta":{"tool_calls":[null]}}]}',
        '{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":{"a":1}}}]}}]}',
        '{"choices":[],"usage":"lots"}',
        '{"error":"boom"}',
    ],
    "openai-responses": [
        "null",
        "[]",
        '{"type":"response.completed","response":null}',
        '{"type":"response.failed","response":{"error":{"code":"server_error","message":"boom"}}}',
        '{"type":"response.output_item.added","item":{"type":"function_call","id":"x"}}',
        '{"type":"response.function_call_arguments.delta","item_id":"nobody","delta":{"a":1}}',
        '{"type":"response.output_text.delta","delta":7}',
        '{"type":"error","message":"no"}',
    ],
    "google": [
        "null",
        "[]",
        "{}",
        '{"candidates":null}',
        '{"candidates":"no"}',
        '{"candidates":[null]}',
        '{"candidates":[{"index":0,"content":null}]}',
        '{"candidates":[{"index":0,"content":{"parts":[null]}}]}',
        '{"candidates":[{"index":0,"content":{"parts":[{"functionCall":{"name":7}}]}}]}',
        '{"candidates":[],"usageMetadata":"lots"}',
        '{"error":"boom"}',
    ],
}


async def test_events_of_no_known_shape_are_told_as_a_failure_of_the_model(serve, dialect):
    """The SDKs fail at them in many ways; none of those is an error of this server."""
    model = model_of(dialect, retries=0)
    for event in ODD_EVENTS[dialect.provider]:
        kind = json.loads(event).get("type", "") if event.startswith("{") else "message_start"
        odd = sse(event, event=kind if dialect is ANTHROPIC else "")
        await serve(Response([odd]) if kind == "message_start" else dialect.unfinished(odd))
        await close_connections()

        assert (await failed(model)).code in {"chat_model_unreadable", "chat_model_dropped"}


async def test_an_overload_that_is_told_inside_the_stream_is_repeated_if_nothing_was_said(serve):
    overload = messages.error_event("overloaded_error", "Overloaded")
    await serve(
        Response([messages.begin(), overload]), messages.answer(messages.text(0, "Better."))
    )

    said = await deltas(model_of(ANTHROPIC))

    assert [delta.code for delta in said if isinstance(delta, Notice)] == ["retrying"]
    assert [delta.text for delta in said if isinstance(delta, TextDelta)] == ["Better."]


async def test_an_error_inside_a_stream_that_has_begun_is_not_repeated(serve):
    overload = messages.error_event("overloaded_error", "Overloaded")
    server = await serve(ANTHROPIC.unfinished(*ANTHROPIC.open_text("So"), overload))

    said = []
    failure = await failed(model_of(ANTHROPIC), said)

    assert failure.code == "chat_model_unavailable"
    assert "The text so far is kept" in failure.message
    assert TextDelta("So") in said
    assert len(server.requests) == 1


ENDED_EARLY = {
    "anthropic": [
        ("pause_turn", "chat_model_ended_early"),
        ("brand_new", "chat_model_ended_early"),
    ],
    "openai": [("guardrail_intervened", "chat_model_ended_early")],
    "openai-responses": [("max_messages", "chat_model_ended_early")],
    "google": [
        ("MALFORMED_FUNCTION_CALL", "chat_model_malformed_call"),
        ("UNEXPECTED_TOOL_CALL", "chat_model_malformed_call"),
        ("OTHER", "chat_model_ended_early"),
        ("LANGUAGE", "chat_model_ended_early"),
    ],
}


async def test_another_end_of_an_answer_is_not_called_a_broken_connection(serve, dialect):
    for reason, code in ENDED_EARLY[dialect.provider]:
        server = await serve(dialect.ended_by(reason, *dialect.text("So")))
        await close_connections()

        failure = await failed(model_of(dialect))

        assert failure.code == code, reason
        assert len(server.requests) == 1


async def test_a_call_that_google_could_not_read_is_asked_for_again_if_nothing_was_said(serve):
    malformed = GOOGLE.ended_by("MALFORMED_FUNCTION_CALL")
    await serve(malformed, GOOGLE.answer(GOOGLE.text("Here.")))

    said = await deltas(model_of(GOOGLE))

    (notice,) = [delta for delta in said if isinstance(delta, Notice)]
    assert notice.message.startswith("The model's tool call could not be read; ")
    assert said[-1] == Stop(StopReason.END)
    assert reply_of(said).usage.counts == {
        "input_tokens": 16,
        "output_tokens": 8,
        "requests": 2,
    }


@pytest.mark.parametrize("place", ["before the headers", "after the headers"])
async def test_a_slow_first_byte_has_a_limit_of_its_own(serve, dialect, place):
    hold = Hold()
    response = Response(before=[hold]) if place == "before the headers" else Response([hold])
    server = await serve(response)

    limits = StreamLimits(first_byte_timeout=0.1, idle_timeout=10)
    failure = await failed(model_of(dialect, limits=limits))

    assert failure.code == "chat_model_slow"
    assert "0.1 s" in failure.message
    # On a slow machine the time is over before the server is asked.
    await eventually(lambda: server.left.is_set() or not server.requests)
    assert len(server.requests) <= 1


async def test_silence_in_the_middle_has_a_limit(serve, dialect):
    server = await serve(dialect.unfinished(*dialect.open_text("Well,"), Hold()))

    said = []
    limits = StreamLimits(first_byte_timeout=600, idle_timeout=0.1)
    async with asyncio.timeout(PATIENCE):
        failure = await failed(model_of(dialect, limits=limits), said)

    assert failure.code == "chat_model_stalled"
    assert TextDelta("Well,") in said
    async with asyncio.timeout(PATIENCE):
        await server.left.wait()


async def test_a_reader_may_take_longer_than_the_limit_of_silence(serve, dialect):
    await serve(dialect.unfinished(*dialect.open_text("Well,"), Hold()))
    limits = StreamLimits(first_byte_timeout=600, idle_timeout=0.5)
    said = []

    async def read_slowly():
        async for delta in model_of(dialect, limits=limits).stream(ASKED):
            await asyncio.sleep(0.75)  # a limit that counted here would cancel it
            said.append(delta)

    async with asyncio.timeout(PATIENCE):
        with pytest.raises(ProviderFailure) as raised:
            await read_slowly()

    assert raised.value.code == "chat_model_stalled"
    assert TextDelta("Well,") in said
    assert asyncio.current_task().cancelling() == 0


async def test_the_limit_of_the_first_byte_does_not_count_once_the_answer_has_begun(serve, dialect):
    hold = Hold()
    await serve(dialect.unfinished(*dialect.open_text("Well,"), hold, *dialect.wire.end()))
    limits = StreamLimits(first_byte_timeout=1.5, idle_timeout=10)
    model = model_of(dialect, limits=limits)
    await model._connection()  # which takes its time where it is the first
    asyncio.get_running_loop().call_later(2.0, hold.released.set)

    assert (await deltas(model))[-1] == Stop(StopReason.END)


async def test_the_limits_and_retries_are_settings(serve, settings):
    settings.TURNS_CHAT_MODEL_RETRIES = 0
    await serve(refusal("500 Internal Server Error", {}), Response([Hold()]))
    get_chat_model.cache_clear()

    assert (await failed(get_chat_model("openai:gpt-4o-mini"))).code == "chat_model_unavailable"

    settings.TURNS_CHAT_MODEL_FIRST_BYTE_TIMEOUT = 0.1  # of the answer that never comes alone
    get_chat_model.cache_clear()

    assert (await failed(get_chat_model("openai:gpt-4o-mini"))).code == "chat_model_slow"


@pytest.mark.parametrize("kind", FailureKind)
def test_every_kind_has_a_sentence(kind):
    subject = Subject(chat_model="openai:x", key="OPENAI_API_KEY", extra="openai")

    told = failure(kind, subject, seconds=3)

    assert told.code == kind.value
    assert told.message.endswith(".")
    assert "%(" not in told.message


@pytest.mark.parametrize("status", ["200 OK", "400 Bad Request"])
async def test_a_line_or_an_error_without_end_is_not_held(serve, dialect, monkeypatch, status):
    monkeypatch.setattr(http, "MAX_LINE", 100_000)
    await serve(Response([b"data: ", *[b"x" * 50_000] * 200, Hold()], status=status))

    problem = await failed(model_of(dialect, retries=0))

    assert problem.code == "chat_model_unreachable"  # and not that it was slow


async def test_what_is_packed_is_not_unpacked(serve, dialect):
    packed = gzip.compress(b"x" * 10_000_000)
    server = await serve(Response([packed], headers={"content-encoding": "gzip"}))

    problem = await failed(model_of(dialect, retries=0))

    assert problem.code.startswith("chat_model_")
    assert server.requests[0].headers["accept-encoding"] == "identity"
