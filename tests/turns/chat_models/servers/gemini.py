"""Google's `streamGenerateContent` as a stream: chunks with the fields of its documentation; calls come whole."""

from collections.abc import Sequence
from typing import Any

from tests.turns.chat_models.servers.http import Response, flat, refusal, sse

MODEL = "gemini-2.5-flash"


def _chunk(*parts: dict[str, Any], **fields: Any) -> bytes:
    candidate = {"content": {"parts": list(parts), "role": "model"}, "index": 0, **fields}
    return sse(
        {
            "candidates": [candidate],
            "usageMetadata": {
                "promptTokenCount": 8,
                "candidatesTokenCount": 4,
                "totalTokenCount": 12,
                "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 8}],
            },
            "modelVersion": MODEL,
            "responseId": "4mjYaNWbOJqAxN8P5dqX8Aw",
        }
    )


def text(*pieces: str) -> list[bytes]:
    """Pieces of text."""
    return [_chunk({"text": piece}) for piece in pieces]


def thinking(*pieces: str) -> list[bytes]:
    """Pieces of thinking."""
    return [_chunk({"text": piece, "thought": True}) for piece in pieces]


def call(index: int, id: str, name: str, **input: Any) -> list[bytes]:
    """A tool call, whole, with the signature of what was thought before it."""
    called = {"functionCall": {"id": id, "name": name, "args": input}}
    return [_chunk({**called, "thoughtSignature": "c2lnbmF0dXJl"})]


def call_begun(id: str, name: str, arguments: str) -> bytes:
    """The beginning of a chunk with a call: the connection breaks before the chunk is whole."""
    whole = _chunk({"functionCall": {"id": id, "name": name, "args": {"text": "…"}}})
    return whole[: whole.index(b'"args"')] + b'"args":' + arguments.encode()


def end(finish_reason: str = "STOP") -> list[bytes]:
    """The last chunk, with the reason."""
    return [_chunk({"text": ""}, finishReason=finish_reason)]


def answer(*parts: bytes | Sequence[bytes], finish_reason: str = "STOP") -> Response:
    """A whole answer of the given pieces."""
    return Response([*flat(parts), *end(finish_reason)])


def error(status: str, message: str, name: str, *, details: Any = (), **headers: str) -> Response:
    """An error instead of a stream; `name` is Google's word for the status."""
    body = {
        "error": {
            "code": int(status.split()[0]),
            "message": message,
            "status": name,
            "details": list(details),
        }
    }
    return refusal(status, body, **headers)


def come_back_in(seconds: int) -> dict[str, str]:
    """The detail of an error that says when to come back."""
    return {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": f"{seconds}s"}
