"""The vendors' rules for the messages of a request, by their documentation. They share no code with what writes requests."""

import json
from collections.abc import Iterator
from typing import Any


def broken(body: dict[str, Any], *, is_anthropic: bool) -> list[str]:
    """Return one sentence for each rule that a request to Anthropic or to OpenAI breaks."""
    return list(_anthropic(body) if is_anthropic else _openai(body))


def _anthropic(body: dict[str, Any]) -> Iterator[str]:
    messages = body["messages"]
    if not messages or messages[0]["role"] != "user" or messages[-1]["role"] != "user":
        yield "the first and the last message are not the user's"
    known: set[str] = set()
    open_ids: list[str] = []
    before = ""
    for place, message in enumerate(messages):
        if message["role"] == before:
            yield f"{place}: two messages of one role"
        before = message["role"]
        blocks = message["content"]
        if isinstance(blocks, str):
            blocks = [{"type": "text", "text": blocks}]
        if not blocks:
            yield f"{place}: no content"
        yield from (
            f"{place}: a blank text"
            for block in blocks
            if block["type"] == "text" and not block["text"].strip()
        )
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        kinds = [block["type"] for block in blocks]
        if sorted(results) != sorted(open_ids):
            yield f"{place}: results {results} for calls {open_ids}"
        if kinds[: len(results)] != ["tool_result"] * len(results):
            yield f"{place}: something is said before a result"
        open_ids = [block["id"] for block in blocks if block["type"] == "tool_use"]
        if known.intersection(open_ids) or len(set(open_ids)) < len(open_ids):
            yield f"{place}: an id twice"
        known.update(open_ids)


def _openai(body: dict[str, Any]) -> Iterator[str]:
    messages = [message for message in body["messages"] if message["role"] != "system"]
    if not messages or messages[0]["role"] != "user" or messages[-1]["role"] == "assistant":
        yield "the first message is not the user's, or the last one is the assistant's"
    known: set[str] = set()
    open_ids: list[str] = []
    for place, message in enumerate(messages):
        if message["role"] == "tool":
            if message["tool_call_id"] not in open_ids:
                yield f"{place}: a result for no call"
            open_ids = [id for id in open_ids if id != message["tool_call_id"]]
            continue
        calls = message.get("tool_calls") or []
        if open_ids:
            yield f"{place}: no result for {open_ids}"
        if not message.get("content") and not calls:
            yield f"{place}: no content"
        if any(not isinstance(json.loads(call["function"]["arguments"]), dict) for call in calls):
            yield f"{place}: arguments that are no object"
        open_ids = [call["id"] for call in calls]
        if known.intersection(open_ids) or len(set(open_ids)) < len(open_ids):
            yield f"{place}: an id twice"
        known.update(open_ids)
    if open_ids:
        yield f"no result for {open_ids}"


def without_marks(part):
    """The part without the marks that tell a provider's cache how far to read."""
    if isinstance(part, list):
        return [without_marks(each) for each in part]
    if not isinstance(part, dict):
        return part
    return {name: without_marks(value) for name, value in part.items() if name != "cache_control"}
