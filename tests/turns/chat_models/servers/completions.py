"""OpenAI's chat completions as a stream: the chunks, in the order and with the fields of its documentation."""

import json
from collections.abc import Sequence
from typing import Any

from tests.turns.chat_models.servers.http import Response, flat, refusal, sse

MODEL = "gpt-4o-mini"
DONE = sse("[DONE]")


def _chunk(*, choices: list[dict[str, Any]], usage: dict[str, Any] | None = None) -> bytes:
    return sse(
        {
            "id": "chatcmpl-123",
            "object": "chat.completion.chunk",
            "created": 1694268190,
            "model": MODEL,
            "system_fingerprint": "fp_44709d6fcb",
            "choices": choices,
            "usage": usage,
        }
    )


def delta(finish_reason: str | None = None, **fields: Any) -> bytes:
    """A chunk with a piece of the answer."""
    choice = {"index": 0, "delta": fields, "logprobs": None, "finish_reason": finish_reason}
    return _chunk(choices=[choice])


def begin() -> bytes:
    """The first chunk of every stream."""
    return delta(role="assistant", content="", refusal=None)


def text(*pieces: str) -> list[bytes]:
    """Pieces of text."""
    return [delta(content=piece) for piece in pieces]


def reasoning(*pieces: str) -> list[bytes]:
    """Pieces of thinking, as compatible servers send them."""
    return [delta(reasoning_content=piece) for piece in pieces]


def call_start(index: int, id: str, name: str) -> bytes:
    """The beginning of a tool call."""
    function = {"name": name, "arguments": ""}
    return delta(tool_calls=[{"index": index, "id": id, "type": "function", "function": function}])


def arguments(index: int, piece: str) -> bytes:
    """A piece of a tool call's arguments."""
    return delta(tool_calls=[{"index": index, "function": {"arguments": piece}}])


def call(index: int, id: str, name: str, raw: str | None = None, **input: Any) -> list[bytes]:
    """A tool call; `raw` instead of `input` for arguments that are no JSON."""
    written = json.dumps(input) if raw is None else raw
    pieces = (written[start : start + 7] for start in range(0, len(written), 7))
    return [call_start(index, id, name), *(arguments(index, piece) for piece in pieces)]


def end(finish_reason: str = "stop", *, prompt_tokens: int = 19) -> list[bytes]:
    """The reason, the usage, and the mark of the end."""
    usage = {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": 10,
        "total_tokens": prompt_tokens + 10,
        "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
    }
    return [delta(finish_reason), _chunk(choices=[], usage=usage), DONE]


def answer(*parts: bytes | Sequence[bytes], finish_reason: str = "stop") -> Response:
    """A whole answer of the given pieces."""
    return Response([begin(), *flat(parts), *end(finish_reason)])


def error(status: str, message: str, **fields: Any) -> Response:
    """An error instead of a stream."""
    headers = fields.pop("headers", {})
    body = {"error": {"message": message, "type": None, "param": None, "code": None, **fields}}
    return refusal(status, body, **headers)
