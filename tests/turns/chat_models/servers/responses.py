"""OpenAI's Responses API as a stream: the events, in the order and with the fields of its documentation."""

import itertools
import json
from collections.abc import Sequence
from typing import Any

from tests.turns.chat_models.servers.http import Response, flat, sse

MODEL = "gpt-5.6-sol"
USAGE = {
    "input_tokens": 37,
    "input_tokens_details": {"cached_tokens": 12, "cache_write_tokens": 0},
    "output_tokens": 11,
    "output_tokens_details": {"reasoning_tokens": 7},
    "total_tokens": 48,
}
_numbers = itertools.count()


def _event(type: str, **fields: Any) -> bytes:
    return sse({"type": type, "sequence_number": next(_numbers), **fields}, event=type)


def _response(status: str, **fields: Any) -> dict[str, Any]:
    return {
        "id": "resp_67c9fdcecf488190bdd9a0409de3a1ec07b8b0ad4e5eb654",
        "object": "response",
        "created_at": 1741294021,
        "status": status,
        "error": None,
        "incomplete_details": None,
        "instructions": "Be brief.",
        "model": MODEL,
        "output": [],
        "parallel_tool_calls": True,
        "store": False,
        "tool_choice": "auto",
        "tools": [],
        "usage": None,
        **fields,
    }


def begin() -> bytes:
    """The first two events of every stream."""
    begun = _response("in_progress")
    return _event("response.created", response=begun) + _event(
        "response.in_progress", response=begun
    )


def _message(status: str, *content: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": "msg_67c9fdcf37fc8190ba82116e33fb28c5",
        "type": "message",
        "status": status,
        "role": "assistant",
        "content": list(content),
    }


_PLACE = {"item_id": "msg_67c9fdcf37fc8190ba82116e33fb28c5", "output_index": 0, "content_index": 0}


def text_start() -> list[bytes]:
    """The beginning of the answer's text."""
    part = {"type": "output_text", "text": "", "annotations": []}
    return [
        _event("response.output_item.added", output_index=0, item=_message("in_progress")),
        _event("response.content_part.added", **_PLACE, part=part),
    ]


def text_delta(piece: str) -> bytes:
    """A piece of the answer's text."""
    return _event("response.output_text.delta", **_PLACE, delta=piece, logprobs=[])


def text(*pieces: str) -> list[bytes]:
    """The answer's text."""
    whole = "".join(pieces)
    part = {"type": "output_text", "text": whole, "annotations": []}
    return [
        *text_start(),
        *map(text_delta, pieces),
        _event("response.output_text.done", **_PLACE, text=whole, logprobs=[]),
        _event("response.content_part.done", **_PLACE, part=part),
        _event("response.output_item.done", output_index=0, item=_message("completed", part)),
    ]


def refusal(words: str) -> list[bytes]:
    """A refusal in the place of a text."""
    return [
        *text_start(),
        _event("response.refusal.delta", **_PLACE, delta=words),
        _event("response.refusal.done", **_PLACE, refusal=words),
    ]


def failed(code: str, message: str) -> bytes:
    """The last event of an answer that the provider gave up."""
    error = {"code": code, "message": message}
    return _event("response.failed", response=_response("failed", error=error))


def error(code: str, message: str) -> bytes:
    """An error outside the answer."""
    return _event("error", code=code, message=message, param=None)


def thinking(index: int, *pieces: str) -> list[bytes]:
    """A summary of thoughts, and the thoughts themselves as only the provider can read them."""
    id = f"rs_{index}"
    place = {"item_id": id, "output_index": index, "summary_index": 0}
    whole = {"type": "summary_text", "text": "".join(pieces)}
    begun = {"id": id, "type": "reasoning", "summary": [], "encrypted_content": "gAAAAABpart"}
    ended = {**begun, "summary": [whole], "encrypted_content": f"gAAAAAB-sealed-{index}"}
    return [
        _event("response.output_item.added", output_index=index, item=begun),
        _event(
            "response.reasoning_summary_part.added",
            **place,
            part={"type": "summary_text", "text": ""},
        ),
        *(
            _event("response.reasoning_summary_text.delta", **place, delta=piece)
            for piece in pieces
        ),
        _event("response.reasoning_summary_text.done", **place, text=whole["text"]),
        _event("response.reasoning_summary_part.done", **place, part=whole),
        _event("response.output_item.done", output_index=index, item=ended),
    ]


def _call(index: int, id: str, name: str, arguments: str, status: str) -> dict[str, Any]:
    return {
        "id": f"fc_{index}",
        "type": "function_call",
        "status": status,
        "call_id": id,
        "name": name,
        "arguments": arguments,
    }


def call_start(index: int, id: str, name: str) -> bytes:
    """The beginning of a tool call."""
    item = _call(index, id, name, "", "in_progress")
    return _event("response.output_item.added", output_index=index, item=item)


def arguments(index: int, piece: str) -> bytes:
    """A piece of a tool call's arguments."""
    return _event(
        "response.function_call_arguments.delta",
        item_id=f"fc_{index}",
        output_index=index,
        delta=piece,
    )


def call(index: int, id: str, name: str, raw: str | None = None, **input: Any) -> list[bytes]:
    """A tool call; `raw` instead of `input` for arguments that are no JSON."""
    written = json.dumps(input) if raw is None else raw
    pieces = (written[start : start + 7] for start in range(0, len(written), 7))
    return [
        call_start(index, id, name),
        *(arguments(index, piece) for piece in pieces),
        _event(
            "response.function_call_arguments.done",
            item_id=f"fc_{index}",
            output_index=index,
            arguments=written,
        ),
        _event(
            "response.output_item.done",
            output_index=index,
            item=_call(index, id, name, written, "completed"),
        ),
    ]


def end(reason: str = "completed") -> list[bytes]:
    """The last event; any other reason than `completed` leaves the answer incomplete."""
    if reason == "completed":
        return [_event("response.completed", response=_response("completed", usage=USAGE))]
    ended = _response("incomplete", usage=USAGE, incomplete_details={"reason": reason})
    return [_event("response.incomplete", response=ended)]


def answer(*parts: bytes | Sequence[bytes], finish_reason: str = "completed") -> Response:
    """A whole answer of the given items."""
    return Response([begin(), *flat(parts), *end(finish_reason)])
