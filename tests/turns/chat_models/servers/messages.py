"""Anthropic's Messages API as a stream: the events, in the order and with the fields of its documentation."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from tests.turns.chat_models.servers.http import Response, flat, refusal, sse

MODEL = "claude-sonnet-4-5-20250929"
PING = sse({"type": "ping"}, event="ping")


def _event(type: str, **fields: Any) -> bytes:
    return sse({"type": type, **fields}, event=type)


def begin(*, input_tokens: int = 25) -> bytes:
    """The first event of every stream."""
    message: dict[str, Any] = {
        "id": "msg_014p7gG3wDgGV9EUtLvnow3U",
        "type": "message",
        "role": "assistant",
        "model": MODEL,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {
            "input_tokens": input_tokens,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": 2,
            "service_tier": "standard",
        },
    }
    return _event("message_start", message=message)


def start(index: int, block: dict[str, Any]) -> bytes:
    """The beginning of a content block."""
    return _event("content_block_start", index=index, content_block=block)


def delta(index: int, **fields: Any) -> bytes:
    """A piece of a content block."""
    return _event("content_block_delta", index=index, delta=fields)


def stop(index: int) -> bytes:
    """The end of a content block."""
    return _event("content_block_stop", index=index)


def text(index: int, *pieces: str) -> list[bytes]:
    """A block of text."""
    deltas = [delta(index, type="text_delta", text=piece) for piece in pieces]
    return [start(index, {"type": "text", "text": ""}), PING, *deltas, stop(index)]


def thinking(index: int, *pieces: str) -> list[bytes]:
    """A block of thinking with its signature."""
    deltas = [delta(index, type="thinking_delta", thinking=piece) for piece in pieces]
    block = {"type": "thinking", "thinking": "", "signature": ""}
    signature = delta(index, type="signature_delta", signature="EqQBCgIYAhIM1gbcDa9GJwZA")
    return [start(index, block), *deltas, signature, stop(index)]


def call_start(index: int, id: str, name: str) -> bytes:
    """The beginning of a tool call."""
    return start(index, {"type": "tool_use", "id": id, "name": name, "input": {}})


def arguments(index: int, piece: str) -> bytes:
    """A piece of a tool call's arguments."""
    return delta(index, type="input_json_delta", partial_json=piece)


def call(index: int, id: str, name: str, raw: str | None = None, **input: Any) -> list[bytes]:
    """A tool call; `raw` instead of `input` for arguments that are no JSON."""
    written = json.dumps(input) if raw is None else raw
    pieces = ["", *_pieces(written)]
    return [
        call_start(index, id, name),
        *(arguments(index, piece) for piece in pieces),
        stop(index),
    ]


def end(stop_reason: str = "end_turn", *, output_tokens: int = 15) -> list[bytes]:
    """The last two events."""
    return [
        _event(
            "message_delta",
            delta={"stop_reason": stop_reason, "stop_sequence": None},
            usage={"output_tokens": output_tokens},
        ),
        _event("message_stop"),
    ]


def answer(*parts: bytes | Sequence[bytes], stop_reason: str = "end_turn") -> Response:
    """A whole answer of the given blocks."""
    return Response([begin(), *flat(parts), *end(stop_reason)])


def error_event(type: str, message: str) -> bytes:
    """An error inside a stream."""
    return sse({"type": "error", "error": {"type": type, "message": message}}, event="error")


def error(status: str, type: str, message: str, **headers: str) -> Response:
    """An error instead of a stream."""
    body = {
        "type": "error",
        "error": {"type": type, "message": message},
        "request_id": "req_011CSHoEeqs5C35K2UUqR7Fy",
    }
    return refusal(status, body, **headers)


def _pieces(written: str) -> Iterator[str]:
    return (written[start : start + 7] for start in range(0, len(written), 7))
