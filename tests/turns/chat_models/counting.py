"""A server that counts the tokens of each request, refuses what does not fit, and looks things up before it answers."""

import json
from typing import Any

from tests.turns.chat_models.dialects import ANTHROPIC, Dialect
from tests.turns.chat_models.servers import Request, Response, Server, completions, messages
from tests.turns.chat_models.wire_rules import broken, without_marks

_CHARACTERS = 4  # of a token


class CountingServer(Server):
    """`window` is the most tokens of a request. To each message of a person it calls `tool`, then it answers.

    `refused` are the requests that were too long, `broken` the rules that requests broke. `summary` is what it says where
    no tools are offered. As Anthropic it thinks, and wants its thoughts behind nothing else than what stood before them.
    """

    def __init__(self, dialect: Dialect, window: int, *, tool: str) -> None:
        super().__init__()
        self.refused: list[Request] = []
        self.broken: list[str] = []
        self.most = 0
        self.thoughts_sent = 0
        self._dialect = dialect
        self._window = window
        self._tool = tool
        self._calls = 0
        self._thoughts: dict[str, str] = {}

    def respond(self, request: Request) -> Response:
        body = request.body
        self.broken += [
            *broken(body, is_anthropic=self._dialect is ANTHROPIC),
            *self._moved_thoughts(body),
        ]
        tokens = tokens_of(body)
        if tokens > self._window:
            self.refused.append(request)
            return self._refusal(tokens)
        self.most = max(self.most, tokens)
        if not body.get("tools"):
            return self._said(body, tokens, self._dialect.text("They looked things up.", place=1))
        if _is_result(body["messages"][-1]):
            return self._said(body, tokens, self._dialect.text("Here it is.", place=1))
        self._calls += 1
        call = self._dialect.wire.call(1, f"call_{self._calls}", self._tool, page=self._calls)
        return self._said(body, tokens, call, calls=True)

    def _think(self, body: dict[str, Any]) -> list[bytes]:
        signature = f"signature{len(self._thoughts)}"
        self._thoughts[signature] = _read(body, len(body["messages"]))
        return [
            messages.start(0, {"type": "thinking", "thinking": "", "signature": ""}),
            messages.delta(0, type="thinking_delta", thinking="Hm."),
            messages.delta(0, type="signature_delta", signature=signature),
            messages.stop(0),
        ]

    def _moved_thoughts(self, body: dict[str, Any]) -> list[str]:
        thoughts = [
            (place, block["signature"])
            for place, message in enumerate(body["messages"])
            for block in message["content"] or ()
            if isinstance(block, dict) and block["type"] == "thinking"
        ]
        self.thoughts_sent += len(thoughts)
        return [
            f"{place}: the thoughts {signature} stood behind something else"
            for place, signature in thoughts
            if self._thoughts[signature] != _read(body, place)
        ]

    def _said(
        self, body: dict[str, Any], tokens: int, *parts: list[bytes], calls: bool = False
    ) -> Response:
        said = [piece for part in parts for piece in part]
        if self._dialect is ANTHROPIC:
            begin = [messages.begin(input_tokens=tokens), *self._think(body)]
            return Response([*begin, *said, *messages.end("tool_use" if calls else "end_turn")])
        end = completions.end("tool_calls" if calls else "stop", prompt_tokens=tokens)
        return Response([completions.begin(), *said, *end])

    def _refusal(self, tokens: int) -> Response:
        if self._dialect is ANTHROPIC:
            said = f"prompt is too long: {tokens} tokens > {self._window} maximum"
            return messages.error("400 Bad Request", "invalid_request_error", said)
        said = f"This model's maximum context length is {self._window} tokens, not {tokens}."
        code = {"type": "invalid_request_error", "code": "context_length_exceeded"}
        return completions.error("400 Bad Request", said, param="messages", **code)


def tokens_of(body: dict[str, Any]) -> int:
    """Count the tokens of a request, as this server does it."""
    read = {name: body.get(name) for name in ("system", "tools", "messages")}
    return len(json.dumps(read)) // _CHARACTERS


def _read(body: dict[str, Any], place: int) -> str:
    """Return what stands before a message, without the marks for the cache."""
    before = (body.get("system"), body.get("tools"), body["messages"][:place])
    return json.dumps(without_marks(list(before)))


def _is_result(message: dict[str, Any]) -> bool:
    if message["role"] == "tool":
        return True
    blocks = message["content"]
    return isinstance(blocks, list) and any(block["type"] == "tool_result" for block in blocks)
