"""The protocol of chat models: a request goes in, a stream of deltas comes out."""

import json
import math
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Protocol

from governance import ToolCall, shortened
from turns.core.messages import Message, RepeatedName, TextBlock, ToolUseBlock, unique_names
from turns.core.wire import Thoughts

MAX_LENGTH = 1_000_000  # characters of one answer, including thoughts and arguments, because some models repeat themselves forever

_CALL_LENGTH = 1_000  # characters that each call adds to the length, besides its arguments
_ID_LENGTH = 64
_NAME_SHOWN = 60
_NOT_IN_IDS = re.compile(r"[^A-Za-z0-9_-]")  # ids are part of URLs
_DEPTH = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """The description of a tool for a chat model; `input_schema` is JSON Schema."""

    name: str
    description: str
    input_schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamLimits:
    """The time limits of one request in seconds: until the first byte of the answer, between two bytes, and
    in total.
    """

    first_byte_timeout: float = 120.0
    idle_timeout: float = 120.0
    request_timeout: float = 1200.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatSettings:
    """An agent's settings for its chat model. If a setting is None or empty, the provider's default applies.

    Chat models ignore settings that they do not support. `effort` is `off`, or one of `minimal` to `max`.
    `cache_retention` is `off`, or how long the provider caches requests, such as `1h`. `window` is the maximum number
    of tokens of a request and its answer.
    """

    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    effort: str = ""
    stop_sequences: tuple[str, ...] = ()
    parallel_calls: bool | None = None
    cache_retention: str = ""
    window: int | None = None


AS_USUAL = ChatSettings()
OFF = "off"  # switches off thinking as an effort, and caching as a cache retention
EFFORTS = (OFF, "minimal", "low", "medium", "high", "xhigh", "max")
CACHE_RETENTIONS = (OFF, "5m", "30m", "1h", "12h")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """One request: instructions, the complete valid history (H1), and the available tools.

    `max_tokens` is the maximum length of the answer; if it is None, the chat model's default applies. If `may_think` is
    false, the model thinks as little as possible, because thoughts are subject to the same maximum. If `may_call` is
    false, the model must not call a tool; the tools are still included, because earlier requests included them.
    `limits` and `settings` are the agent's; without limits, the chat model uses its own.

    Since the message with the index `unchanged_from` was added, requests have only been extended at the end.
    """

    instructions: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    max_tokens: int | None = None
    may_think: bool = True
    may_call: bool = True
    unchanged_from: int = 0
    limits: StreamLimits | None = None
    settings: ChatSettings = AS_USUAL


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of the answer's text."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallDelta:
    """A piece of a tool call: `index` distinguishes the calls of one answer. `arguments` is a fragment of JSON text."""

    index: int
    id: str = ""
    name: str = ""
    arguments: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """The tokens that an answer used. `input_tokens` includes those read from or written to the provider's cache, and
    `output_tokens` includes thoughts.

    `requests` is the number of requests, including repeated ones. `model` is the provider's name for the model.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    requests: int = 0
    model: str = ""

    @property
    def counts(self) -> dict[str, int]:
        """Return the numbers that are not zero, by name, so that they can be added up."""
        return {name: count for name in COUNTED if (count := getattr(self, name))}

    def __add__(self, other: "Usage") -> "Usage":
        sums = {name: getattr(self, name) + getattr(other, name) for name in COUNTED}
        return Usage(**sums, model=other.model or self.model)


COUNTED = (
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
    "requests",
)


def tokens_of(counts: Mapping[str, int]) -> int:
    """Return the total of input and output tokens."""
    return counts.get("input_tokens", 0) + counts.get("output_tokens", 0)


@dataclass(frozen=True, slots=True)
class ThinkingDelta:
    """A piece of the model's thinking: visible to people, but not part of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class ProviderParts:
    """The complete answer in the provider's format, with thoughts and signatures. Only the chat model that sent it
    reads it.
    """

    parts: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """A message to the person that is not part of the answer, for example that the request will be repeated.

    For a repeated request, `wait` (in seconds) is shown as a countdown, together with `reason`. A notice that `lasts`
    applies to every turn of a conversation, so it is shown once.
    """

    code: str
    message: str
    wait: float | None = field(
        default=None, compare=False
    )  # not compared, so that repeated notices are equal
    reason: str = field(default="", compare=False)
    lasts: bool = False


class StopReason(StrEnum):
    """The reason that the model ended its answer."""

    END = "end"
    TOOL_CALLS = "tool_calls"
    LENGTH = "length"


@dataclass(frozen=True, slots=True)
class Stop:
    """The end of a stream. Chat models may omit it; the answer then ended normally."""

    reason: StopReason


ChatDelta = TextDelta | ThinkingDelta | ToolCallDelta | ProviderParts | Usage | Notice | Stop


class ChatModel(Protocol):
    """A language model. If the task that consumes its stream is cancelled, it closes the connection to the provider
    (C4).

    A chat model that accepts more than text declares it in an attribute, for example
    `media = frozenset({"image", "pdf"})`. A chat model that knows its context window has a coroutine function
    `context_window()`, which returns the number of tokens, or None.
    """

    def stream(self, request: ChatRequest) -> AsyncIterator[ChatDelta]:
        """Stream the answer to the request."""
        ...


def media_of(chat_model: ChatModel) -> frozenset[str]:
    """Return the media that a chat model accepts besides text."""
    return frozenset(getattr(chat_model, "media", ()))


async def context_window_of(chat_model: ChatModel) -> int | None:
    """Return the maximum number of tokens of a request and its answer; None if the chat model does not know it."""
    find: Callable[[], Awaitable[int | None]] | None
    find = getattr(chat_model, "context_window", None)
    return None if find is None else await find()


@dataclass(slots=True, kw_only=True)
class _Call:
    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)


class Reply:
    """Collects a stream into one assistant message. If the turn has already used the id of a call, the id is replaced.

    Calls beyond `most_calls` are refused, because each needs a row, a task, and perhaps a person's decision.

    The thinking time is measured from the request or the last text to the next text, because some providers send all
    thoughts at the end.
    """

    def __init__(
        self,
        *,
        used_ids: set[str] | None = None,
        most_calls: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._most_calls = most_calls
        self._text: list[str] = []
        self._thoughts: list[str] = []
        self._thinking_seconds = 0.0
        self._is_thinking = False
        self._clock = clock
        self._last_word_at = clock()
        self._calls: dict[int, _Call] = {}
        self._used_ids = used_ids if used_ids is not None else set()
        self._length = 0
        self.usage = Usage()
        self.provider_parts: Mapping[str, Any] | None = None
        self.stop_reason = StopReason.END

    @property
    def text(self) -> str:
        return "".join(self._text)

    @property
    def is_too_long(self) -> bool:
        """Whether the answer has reached the maximum length."""
        return self._length >= MAX_LENGTH

    @property
    def has_calls(self) -> bool:
        return bool(self._calls)

    @property
    def asked_for(self) -> list[tuple[str, str, str]]:
        """Return the id, name and arguments of each call so far, as written by the model."""
        return [(call.id, call.name, "".join(call.arguments)) for call in self._calls.values()]

    @property
    def thoughts(self) -> Thoughts | None:
        """Return the thoughts with their duration; None if there are none."""
        text = "".join(self._thoughts).strip()
        seconds = self._thinking_seconds
        if self._is_thinking:
            seconds += self._clock() - self._last_word_at
        return {"text": text, "duration_ms": round(seconds * 1000)} if text else None

    def take(self, delta: ChatDelta) -> None:
        match delta:
            case TextDelta(text=text):
                self._note_word()
                self._text.append(text)
                self._length += len(text)
            case ToolCallDelta():
                self._note_word()
                self._length += len(delta.arguments) + _CALL_LENGTH * (
                    delta.index not in self._calls
                )
                call = self._calls.setdefault(delta.index, _Call())
                call.id = delta.id or call.id
                call.name = delta.name or call.name
                call.arguments.append(delta.arguments)
            case Usage():
                self.usage = delta
            case Stop(reason=reason):
                self.stop_reason = reason
            case ThinkingDelta(text=text):
                self._is_thinking = True
                self._thoughts.append(text)
                self._length += len(text)
            case ProviderParts(parts=parts):
                self.provider_parts = parts
            case Notice():
                self._last_word_at = self._clock()  # waiting for the provider is not thinking
        if self.is_too_long:
            self.stop_reason = StopReason.LENGTH

    def _note_word(self) -> None:
        now = self._clock()
        if self._is_thinking:
            self._thinking_seconds += now - self._last_word_at
        self._is_thinking, self._last_word_at = False, now

    def message(
        self, calls: tuple[ToolCall, ...] = (), *, turn_id: str, interrupted: bool = False
    ) -> Message:
        """Return the message with its usage and provider parts."""
        usage: dict[str, Any] = self.usage.counts
        if self.usage.model:
            usage["model"] = self.usage.model
        message = message_of(self.text, calls, turn_id=turn_id, interrupted=interrupted)
        return replace(
            message,
            provider_parts=self.provider_parts,
            usage=usage or None,
            thoughts=self.thoughts,
        )

    def calls(self, *, scope: str) -> tuple[ToolCall, ...]:
        """Return the calls in order. A call with invalid arguments is reported to the model instead of being run."""
        return tuple(
            self._finish(call, scope=scope, position=position)
            for position, (_, call) in enumerate(sorted(self._calls.items()))
        )

    def _finish(self, call: _Call, *, scope: str, position: int) -> ToolCall:
        problem, arguments = _parse("".join(call.arguments))
        is_last = position == len(self._calls) - 1
        if is_last and not arguments and self.stop_reason is StopReason.LENGTH:
            # a call cut off before its first argument looks like one without arguments
            problem = "the arguments were cut off at the limit of the answer's length"
        return ToolCall(
            id=self._unique(_safe_id(call.id) or f"call_{position + 1}"),
            tool_name=call.name or "unnamed",
            input=arguments,
            scope=scope,
            position=position,
            problem=problem,
            most=self._most_calls,
        )

    def _unique(self, call_id: str) -> str:
        unique, number = call_id, 1
        while unique in self._used_ids:
            number += 1
            unique = f"{call_id}_{number}"
        self._used_ids.add(unique)
        return unique


def message_of(
    text: str, calls: tuple[ToolCall, ...], *, turn_id: str, interrupted: bool = False
) -> Message:
    """Return the assistant message of a reply: its text, then its calls."""
    blocks: list[TextBlock | ToolUseBlock] = [TextBlock(text=text)] if text.strip() else []
    blocks.extend(ToolUseBlock(id=call.id, name=call.tool_name, input=call.input) for call in calls)
    return Message(
        role="assistant", content=tuple(blocks), turn_id=turn_id, interrupted=interrupted
    )


def _safe_id(call_id: str) -> str:
    return _NOT_IN_IDS.sub("_", call_id)[:_ID_LENGTH]


def _parse(arguments: str) -> tuple[str, dict[str, Any]]:
    """Return the problem with the arguments (empty if there is none), and their values."""
    if not arguments.strip():
        return "", {}
    try:
        parsed = _decode(arguments)
    except RepeatedName as error:
        name = shortened(error.name, limit=_NAME_SHOWN)
        return f"the arguments give {name!r} more than once; give each name one value", {}
    except OverflowError:
        return "the arguments hold a number that is too large", {}
    except ValueError:
        return "the arguments are not valid JSON", {}
    except RecursionError:
        return _TOO_DEEP, {}
    if not isinstance(parsed, dict):
        return "the arguments are not a JSON object", {}
    may_be_deep = arguments.count("{") + arguments.count("[") > _DEPTH
    return (_TOO_DEEP, {}) if may_be_deep and _is_deeper(parsed, _DEPTH) else ("", parsed)


_TOO_DEEP = "the arguments are nested too deeply"


def _refuse(constant: str) -> float:
    """Reject NaN and Infinity: Python accepts them, but they are not JSON, and databases and providers reject them."""
    raise ValueError(constant)


def _finite(number: str) -> float:
    value = float(number)
    if math.isinf(value):
        raise OverflowError(number)
    return value


_decode = json.JSONDecoder(
    parse_constant=_refuse, parse_float=_finite, object_pairs_hook=unique_names
).decode


def _is_deeper(value: Any, depth: int) -> bool:
    if not isinstance(value, dict | list):
        return False
    parts = value.values() if isinstance(value, dict) else value
    return depth == 0 or any(_is_deeper(part, depth - 1) for part in parts)
