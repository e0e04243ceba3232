"""The language model behind a small protocol: a request goes in, a stream of deltas comes out."""

import json
import math
import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from governance import ToolCall
from turns.core.messages import Message, TextBlock, ToolUseBlock

MAX_LENGTH = 1_000_000  # characters of one answer, with thoughts and arguments: some repeat themselves for ever
MOST_CALLS = 100  # of one answer: each is a row, a task, and perhaps a question to a person

_CALL_LENGTH = 1_000  # what a call counts for, beside its arguments
_ID_LENGTH = 64
_NOT_IN_IDS = re.compile(r"[^A-Za-z0-9_-]")  # an id is part of addresses
_DEPTH = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """What a chat model is told of a tool; `input_schema` is JSON Schema."""

    name: str
    description: str
    input_schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """One request: instructions, the whole valid history (H1), and the tools that may be asked for.

    `max_tokens` is the most that the answer may have; None = as much as the chat model likes. Unless it `may_think`, it
    thinks as little as it can: thoughts count towards that limit.
    """

    instructions: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    max_tokens: int | None = None
    may_think: bool = True


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of the answer's text."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallDelta:
    """A piece of a tool call: `index` tells the calls of one answer apart. `arguments` is a piece of JSON text."""

    index: int
    id: str = ""
    name: str = ""
    arguments: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What the request cost, in tokens."""

    input_tokens: int = 0
    output_tokens: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
        )


@dataclass(frozen=True, slots=True)
class ThinkingDelta:
    """A piece of what the model thinks before it answers: a sign of life, no part of the answer."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """Something that the person is told and that is no answer, such as that the request is repeated.

    Where it is, `wait` says in how many seconds, and `reason` why, for those who count them down. One that `lasts` holds
    for every turn of a conversation, so it is told there once.
    """

    code: str
    message: str
    wait: float | None = field(default=None, compare=False)  # two that say the same are the same
    reason: str = field(default="", compare=False)
    lasts: bool = False


class StopReason(StrEnum):
    """Why the model ended its answer."""

    END = "end"
    TOOL_CALLS = "tool_calls"
    LENGTH = "length"


@dataclass(frozen=True, slots=True)
class Stop:
    """The last word of a stream. A chat model need not say it; without it the answer ended by itself."""

    reason: StopReason


ChatDelta = TextDelta | ThinkingDelta | ToolCallDelta | Usage | Notice | Stop


class ChatModel(Protocol):
    """A language model. Cancelling the task that consumes the stream closes the connection to the provider (C4).

    One that takes more than text says so: `media = frozenset({"image", "pdf"})`.
    """

    def stream(self, request: ChatRequest) -> AsyncIterator[ChatDelta]:
        """Answer the request piece by piece; the stream's end is the end of the answer."""
        ...


def media_of(chat_model: ChatModel) -> frozenset[str]:
    """Return what a chat model can take beside text."""
    return frozenset(getattr(chat_model, "media", ()))


@dataclass(slots=True, kw_only=True)
class _Call:
    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)


class Reply:
    """Collects a stream into one assistant message. Ids that an earlier call of the turn has used are made new."""

    def __init__(self, *, used_ids: set[str] | None = None) -> None:
        self._text: list[str] = []
        self._calls: dict[int, _Call] = {}
        self._used_ids = used_ids if used_ids is not None else set()
        self._length = 0
        self.usage = Usage()
        self.stop_reason = StopReason.END

    @property
    def text(self) -> str:
        return "".join(self._text)

    @property
    def is_too_long(self) -> bool:
        """Whether the answer shall go on no more."""
        return self._length >= MAX_LENGTH

    @property
    def has_calls(self) -> bool:
        return bool(self._calls)

    @property
    def asked_for(self) -> list[tuple[str, str, str]]:
        """The id, the name and the arguments of each call so far, as the model has written them."""
        return [(call.id, call.name, "".join(call.arguments)) for call in self._calls.values()]

    def take(self, delta: ChatDelta) -> None:
        match delta:
            case TextDelta(text=text):
                self._text.append(text)
                self._length += len(text)
            case ToolCallDelta():
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
                self._length += len(text)
            case Notice():
                pass
        if self.is_too_long:
            self.stop_reason = StopReason.LENGTH

    def calls(self, *, scope: str) -> tuple[ToolCall, ...]:
        """Return the finished calls in order; arguments that are no JSON object are told to the model, not run."""
        return tuple(
            self._finish(call, scope=scope, position=position)
            for position, (_, call) in enumerate(sorted(self._calls.items()))
        )

    def _finish(self, call: _Call, *, scope: str, position: int) -> ToolCall:
        problem, arguments = _parse("".join(call.arguments))
        if position >= MOST_CALLS:
            problem = f"one answer may ask for {MOST_CALLS} calls at most; ask for the others in the next one"
        is_last = position == len(self._calls) - 1
        if is_last and not arguments and self.stop_reason is StopReason.LENGTH:
            # a call that was cut off before its first argument looks like one that needs none
            problem = "the arguments were cut off at the limit of the answer's length"
        return ToolCall(
            id=self._unique(_safe_id(call.id) or f"call_{position + 1}"),
            tool_name=call.name or "unnamed",
            input=arguments,
            scope=scope,
            position=position,
            problem=problem,
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
    """Return what is wrong with the arguments, in words, or what they say."""
    if not arguments.strip():
        return "", {}
    try:
        parsed = _decode(arguments)
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
    """Python reads NaN and Infinity, which are no JSON: no database and no provider takes them back."""
    raise ValueError(constant)


def _finite(number: str) -> float:
    value = float(number)
    if math.isinf(value):
        raise OverflowError(number)
    return value


_decode = json.JSONDecoder(parse_constant=_refuse, parse_float=_finite).decode


def _is_deeper(value: Any, depth: int) -> bool:
    if not isinstance(value, dict | list):
        return False
    parts = value.values() if isinstance(value, dict) else value
    return depth == 0 or any(_is_deeper(part, depth - 1) for part in parts)
