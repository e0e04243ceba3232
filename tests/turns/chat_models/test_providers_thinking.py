"""Thoughts go back to the provider that had them, and to no other."""

import json
from dataclasses import replace

import pytest

from tests.turns.chat_models.dialects import ANTHROPIC, KEY, OPENAI, RESPONSES, model_of
from tests.turns.chat_models.servers import completions, messages, responses
from tests.turns.chat_models.test_providers import ASKED, HELLO, deltas, reply_of
from turns.chat_models.catalog import get_chat_model
from turns.core.chat_model import ThinkingDelta
from turns.core.messages import Message, TextBlock, ToolResultBlock

NEXT = Message(role="user", content=(TextBlock(text="And tomorrow?"),), turn_id="2")


def thought_and_called(dialect):
    """An answer that thinks, says something and calls a tool."""
    call = dialect.wire.call(1, "call_a", "get_weather", location="Paris")
    return dialect.answer(dialect.thinking("Let me", " see."), call, calls=True)


async def exchange(model, server, *, history=(HELLO,), turn_id="1"):
    """Let the model answer with a call, and send the call's result; return the second request and what is kept."""
    first = replace(ASKED, messages=tuple(replace(each, turn_id=turn_id) for each in history))
    reply = reply_of(await deltas(model, first))
    said = reply.message(reply.calls(scope="s"), turn_id=turn_id)
    (call,) = said.tool_uses
    result = ToolResultBlock(tool_use_id=call.id, content="sunny")
    answered = Message(role="user", content=(result,), turn_id=turn_id)
    await deltas(model, replace(first, messages=(*first.messages, said, answered)))
    return server.requests[-1].body, (*first.messages, said, answered)


@pytest.mark.parametrize("provider", ["deepseek", "moonshotai", "zai"])
async def test_a_provider_that_wants_its_reasoning_back_in_a_tool_turn_gets_it(
    serve, monkeypatch, provider
):
    server = await serve(
        thought_and_called(OPENAI),
        *[OPENAI.answer(completions.text("Sunny."))] * 2,
    )
    monkeypatch.setenv(f"{provider.upper()}_API_KEY", KEY)
    monkeypatch.setenv(f"{provider.upper()}_BASE_URL", f"{server.url}/v1")
    model = get_chat_model(f"{provider}:deepseek/deepseek-v4-pro")

    body, history = await exchange(model, server)
    await deltas(model, replace(ASKED, messages=(*history, NEXT)))

    for sent in (body, server.requests[-1].body):  # in the turns after it as well
        (said,) = [each for each in sent["messages"] if each["role"] == "assistant"]
        assert said["reasoning_content"] == "Let me see."
        assert said["tool_calls"][0]["id"] == "call_a"


async def test_openrouter_gets_its_details_back_with_their_signature(serve, monkeypatch):
    detail = {
        "type": "reasoning.text",
        "text": "Let me see.",
        "signature": "EqQBCgIY",
        "format": "anthropic-claude-v1",
        "index": 0,
    }
    call = completions.call(1, "call_a", "get_weather", location="Paris")
    thought = completions.delta(reasoning="Let me see.", reasoning_details=[detail])
    server = await serve(
        OPENAI.answer(thought, call, calls=True), OPENAI.answer(completions.text("Sunny."))
    )
    monkeypatch.setenv("OPENROUTER_API_KEY", KEY)
    monkeypatch.setenv("OPENROUTER_BASE_URL", f"{server.url}/v1")

    body, _history = await exchange(
        get_chat_model("openrouter:anthropic/claude-sonnet-5.5"), server
    )

    (said,) = [each for each in body["messages"] if each["role"] == "assistant"]
    (sent,) = said["reasoning_details"]
    assert (sent["text"], sent["signature"]) == ("Let me see.", "EqQBCgIY")


async def test_openai_gets_its_sealed_reasoning_back(serve):
    server = await serve(thought_and_called(RESPONSES), RESPONSES.answer(responses.text("Sunny.")))

    body, _history = await exchange(model_of(RESPONSES), server)

    _hello, reasoning, call, result = body["input"]
    assert reasoning == {
        "type": "reasoning",
        "id": "rs_0",
        "summary": [{"type": "summary_text", "text": "Let me see."}],
        "encrypted_content": "gAAAAAB-sealed-0",
    }
    assert (call["type"], call["call_id"], json.loads(call["arguments"])) == (
        "function_call",
        "call_a",
        {"location": "Paris"},
    )
    assert (result["type"], result["call_id"], result["output"]) == (
        "function_call_output",
        "call_a",
        "sunny",
    )


@pytest.mark.parametrize(
    ("unchanged_from", "kinds_later"), [(0, ["thinking", "tool_use"]), (4, ["tool_use"])]
)
async def test_anthropic_gets_its_thoughts_back_as_long_as_its_prompt_only_grows(
    serve, unchanged_from, kinds_later
):
    """New models refuse thoughts behind anything else than what stood before them."""
    server = await serve(
        thought_and_called(ANTHROPIC), *[ANTHROPIC.answer(messages.text(0, "Sunny."))] * 2
    )
    model = model_of(ANTHROPIC)

    body, history = await exchange(model, server)
    await deltas(model, replace(ASKED, messages=(*history, NEXT), unchanged_from=unchanged_from))

    kinds = [block["type"] for block in body["messages"][1]["content"]]
    assert kinds == ["thinking", "tool_use"]
    assert body["messages"][1]["content"][0] == {
        "type": "thinking",
        "thinking": "Let me see.",
        "signature": "EqQBCgIYAhIM1gbcDa9GJwZA",
    }
    later = server.requests[-1].body["messages"][1]["content"]
    assert [block["type"] for block in later] == kinds_later


@pytest.mark.parametrize(
    "change",
    [
        {"version": 99},
        {"vendor": "SomebodyElse"},
        {"response": {"kind": "response", "parts": "?"}},
        {"response": None},
    ],
)
async def test_what_was_kept_by_others_is_not_sent(serve, change):
    server = await serve(
        thought_and_called(RESPONSES), *[RESPONSES.answer(responses.text("Sunny."))] * 2
    )
    model = model_of(RESPONSES)
    _body, (hello, said, answered) = await exchange(model, server)

    other = replace(said, provider_parts={**said.provider_parts, **change})
    await deltas(model, replace(ASKED, messages=(hello, other, answered)))

    kinds = [item.get("type", "message") for item in server.requests[-1].body["input"]]
    assert kinds == ["message", "function_call", "function_call_output"]


async def test_an_answer_that_was_changed_since_goes_as_it_is_now(serve):
    """A repair took its call."""
    server = await serve(
        thought_and_called(RESPONSES), *[RESPONSES.answer(responses.text("Sunny."))] * 2
    )
    model = model_of(RESPONSES)
    _body, (hello, said, _answered) = await exchange(model, server)

    changed = replace(said, content=(TextBlock(text="Never mind."),))
    await deltas(model, replace(ASKED, messages=(hello, changed, NEXT)))

    assert "reasoning" not in [item.get("type") for item in server.requests[-1].body["input"]]


async def test_an_answer_without_thoughts_is_not_kept_twice(serve, dialect):
    await serve(dialect.answer(dialect.text("Hello.")))

    assert reply_of(await deltas(model_of(dialect))).provider_parts is None


async def test_thoughts_stream_as_the_provider_sends_them(serve, dialect):
    answer = dialect.text("Yes.", place=1)
    await serve(dialect.answer(dialect.thinking("Let me", " see."), answer))

    said = await deltas(model_of(dialect))

    thoughts = [delta.text for delta in said if isinstance(delta, ThinkingDelta)]
    assert thoughts == ["Let me", " see."]
    assert (reply_of(said).thoughts["text"], reply_of(said).text) == ("Let me see.", "Yes.")
