"""The dialects that the local servers speak, so that one test holds for all of them."""

from dataclasses import dataclass
from types import ModuleType
from typing import Any

from tests.turns.chat_models.servers import (
    Break,
    Hold,
    Response,
    completions,
    gemini,
    messages,
    responses,
)
from turns.chat_models.providers import PROVIDERS, ProviderChatModel, RetryPolicy
from turns.core.chat_model import StreamLimits

KEY = "sk-the-secret-key-of-the-tests"


@dataclass(frozen=True)
class Dialect:
    """A provider and the module that writes its stream."""

    provider: str
    model_name: str
    wire: ModuleType
    path: str

    def answer(self, *parts: bytes | list[bytes], calls: bool = False) -> Response:
        reasons = {
            "messages": "tool_use",
            "completions": "tool_calls",
            "responses": "completed",
            "gemini": "STOP",
        }
        if not calls:
            return self.wire.answer(*parts)
        return self.wire.answer(*parts, **{self._reason: reasons[self._dialect]})

    def ended_by(self, reason: str, *parts: bytes | list[bytes]) -> Response:
        return self.wire.answer(*parts, **{self._reason: reason})

    def text(self, *pieces: str, place: int = 0) -> list[bytes]:
        numbered = self._dialect == "messages"
        return self.wire.text(place, *pieces) if numbered else self.wire.text(*pieces)

    def unfinished(self, *parts: bytes | Hold | Break) -> Response:
        """A stream that ends where its parts end."""
        return Response([*self._begin(), *parts])

    def thinking(self, *pieces: str) -> list[bytes]:
        """Thoughts, as this dialect streams them."""
        match self._dialect:
            case "completions":
                return self.wire.reasoning(*pieces)
            case "gemini":
                return self.wire.thinking(*pieces)
        return self.wire.thinking(0, *pieces)

    def open_text(self, text: str) -> list[bytes]:
        """A text that goes on."""
        if self._dialect == "messages":
            block = messages.start(0, {"type": "text", "text": ""})
            return [block, messages.delta(0, type="text_delta", text=text)]
        if self._dialect == "responses":
            return [*responses.text_start(), responses.text_delta(text)]
        return self.wire.text(text)

    def open_call(self, id: str, name: str, arguments: str) -> list[bytes]:
        """A call whose arguments go on."""
        if self._dialect == "gemini":
            return [gemini.call_begun(id, name, arguments)]
        return [self.wire.call_start(1, id, name), self.wire.arguments(1, arguments)]

    def _begin(self) -> list[bytes]:
        """What comes before the first part; Google's first chunk has one already."""
        return [] if self._dialect == "gemini" else [self.wire.begin()]

    @property
    def _dialect(self) -> str:
        return self.wire.__name__.rpartition(".")[2]

    @property
    def _reason(self) -> str:
        return "stop_reason" if self._dialect == "messages" else "finish_reason"


ANTHROPIC = Dialect("anthropic", "claude-sonnet-5-5", messages, "/v1/messages")
OPENAI = Dialect("openai", "gpt-4o-mini", completions, "/v1/chat/completions")
RESPONSES = Dialect("openai-responses", responses.MODEL, responses, "/v1/responses")
GOOGLE = Dialect("google", gemini.MODEL, gemini, "/v1beta/models")
PIECED = {
    "anthropic": ANTHROPIC,
    "openai": OPENAI,
    "responses": RESPONSES,
}  # write a call's arguments piece by piece
DIALECTS = {**PIECED, "google": GOOGLE}


def model_of(dialect: Dialect, *, limits: StreamLimits | None = None, **policy: Any):
    """A chat model with short waits."""
    quick = RetryPolicy(**{"first_wait": 0.01, "max_wait": 5.0, **policy})
    return ProviderChatModel(
        PROVIDERS[dialect.provider],
        dialect.model_name,
        limits=lambda: limits or StreamLimits(first_byte_timeout=10, idle_timeout=10),
        retry_policy=lambda: quick,
    )
