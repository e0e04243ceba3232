"""Messages of a conversation as blocks, with their JSON wire format."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, Self

from turns.core.wire import (
    AttachmentContent,
    TextContent,
    Thoughts,
    ToolResultContent,
    ToolUseContent,
)

Role = Literal["user", "assistant"]
# Where there is room for only one argument of a call, the first of these that exists is shown.
MAIN_ARGUMENTS = ("command", "url", "path", "query", "task", "message")


@dataclass(frozen=True, slots=True, kw_only=True)
class TextBlock:
    text: str

    @property
    def is_blank(self) -> bool:
        """Whether the text is empty or blank; providers reject messages with only such blocks."""
        return not self.text.strip()

    def to_json(self) -> TextContent:
        return {"type": "text", "text": self.text}

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Self:
        """Read the wire format; missing text is treated as empty."""
        return cls(text=_text(raw.get("text")))


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolUseBlock:
    """A tool call requested by a model. `is_complete` is false if the stream was cut off in the middle of the call."""

    id: str
    name: str
    input: Mapping[str, Any] = field(default_factory=dict)
    is_complete: bool = True

    @property
    def is_answerable(self) -> bool:
        """Whether the call is complete, with an id and a name, so that a history may contain it."""
        return bool(self.is_complete and self.id and self.name)

    def to_json(self) -> ToolUseContent:
        """Return the wire format; `is_complete` is only included if it is False."""
        form: ToolUseContent = {
            "type": "tool_use",
            "id": self.id,
            "name": self.name,
            "input": dict(self.input),
        }
        return form if self.is_complete else {**form, "is_complete": False}

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Self:
        """Read the wire format; without an id, a name or a complete input, the call is incomplete."""
        id, name, input = (
            _text(raw.get("id")),
            _text(raw.get("name")),
            _input(raw.get("input", {})),
        )
        is_complete = bool(
            id and name and input is not None and raw.get("is_complete", True) is True
        )
        return cls(id=id, name=name, input=input or {}, is_complete=is_complete)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResultBlock:
    """The result of a tool call. `is_synthetic` is true if a repair added the result, so that no tool returned it."""

    tool_use_id: str
    content: str
    is_error: bool = False
    is_synthetic: bool = False

    def to_json(self) -> ToolResultContent:
        """Return the wire format; `is_synthetic` is only included if it is True."""
        form: ToolResultContent = {
            "type": "tool_result",
            "tool_use_id": self.tool_use_id,
            "content": self.content,
            "is_error": self.is_error,
        }
        return {**form, "is_synthetic": True} if self.is_synthetic else form

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Self:
        """Read the wire format; content may be a list of text blocks, as some providers write it."""
        return cls(
            tool_use_id=_text(raw.get("tool_use_id")),
            content=_content_text(raw.get("content")),
            is_error=raw.get("is_error") is True,
            is_synthetic=raw.get("is_synthetic") is True,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachmentBlock:
    """A file attached by a person, or an image returned by the call `tool_use_id`.

    Its `content` is read for a request and never kept in a history.
    """

    type: Literal["image", "document"]
    attachment_id: str
    name: str
    media_type: str
    size: int = 0
    width: int | None = None
    height: int | None = None
    tool_use_id: str = ""
    content: bytes | None = field(default=None, compare=False, repr=False)

    def to_json(self) -> AttachmentContent:
        """Return the wire format; images include their size in pixels, and `tool_use_id` is only included if set."""
        form: AttachmentContent = {
            "type": self.type,
            "attachment_id": self.attachment_id,
            "name": self.name,
            "media_type": self.media_type,
            "size": self.size,
        }
        if self.tool_use_id:
            form["tool_use_id"] = self.tool_use_id
        if self.width is None or self.height is None:
            return form
        return {**form, "width": self.width, "height": self.height}

    @classmethod
    def of_result(cls, image: Mapping[str, Any], *, tool_use_id: str) -> Self:
        """Return the block of an image that a call returned, from the data stored with the call."""
        facts = {**image, "type": "image", "attachment_id": image.get("id")}
        return cls.from_json({**facts, "tool_use_id": tool_use_id})

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Self:
        return cls(
            type="image" if raw.get("type") == "image" else "document",
            attachment_id=_text(raw.get("attachment_id")),
            name=_text(raw.get("name")),
            media_type=_text(raw.get("media_type")),
            size=_number(raw.get("size")) or 0,
            width=_number(raw.get("width")),
            height=_number(raw.get("height")),
            tool_use_id=_text(raw.get("tool_use_id")),
        )


Block = TextBlock | AttachmentBlock | ToolUseBlock | ToolResultBlock


@dataclass(frozen=True, kw_only=True)
class Message:
    """A message of the user or the assistant. `interrupted` is true if it was cut off (H2).

    `origin` identifies the message for the caller; repaired messages keep it. `provider_parts` is the answer in the
    provider's format, which its chat model compares with the content. `usage` is the number of tokens that an answer
    used. `thoughts` are for people; no model reads them.
    """

    role: Role
    content: tuple[Block, ...]
    turn_id: str | None = None
    interrupted: bool = False
    origin: object = field(default=None, compare=False, repr=False)
    provider_parts: Mapping[str, Any] | None = field(default=None, compare=False, repr=False)
    usage: Mapping[str, Any] | None = field(default=None, compare=False, repr=False)
    thoughts: Thoughts | None = field(default=None, compare=False, repr=False)

    @cached_property
    def texts(self) -> tuple[TextBlock, ...]:
        return tuple(block for block in self.content if isinstance(block, TextBlock))

    @cached_property
    def attachments(self) -> tuple[AttachmentBlock, ...]:
        return tuple(block for block in self.content if isinstance(block, AttachmentBlock))

    @cached_property
    def tool_uses(self) -> tuple[ToolUseBlock, ...]:
        return tuple(block for block in self.content if isinstance(block, ToolUseBlock))

    @cached_property
    def tool_results(self) -> tuple[ToolResultBlock, ...]:
        return tuple(block for block in self.content if isinstance(block, ToolResultBlock))

    @property
    def visible(self) -> tuple[TextBlock | AttachmentBlock, ...]:
        """Return the texts and files of the message in order."""
        return tuple(b for b in self.content if isinstance(b, TextBlock | AttachmentBlock))

    @cached_property
    def size(self) -> int:
        """Return the length of the message's blocks as JSON; cached, because each turn sums up a long history."""
        return sum(len(json.dumps(block.to_json())) for block in self.content)

    @property
    def is_empty(self) -> bool:
        return all(isinstance(block, TextBlock) and block.is_blank for block in self.content)

    def to_json(self) -> dict[str, Any]:
        """Return the wire format; `turn_id` and `interrupted` are only included if set."""
        form: dict[str, Any] = {
            "role": self.role,
            "content": [block.to_json() for block in self.content],
        }
        if self.turn_id is not None:
            form["turn_id"] = self.turn_id
        if self.interrupted:
            form["interrupted"] = True
        return form

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Self:
        """Read the wire format; unknown blocks are dropped, and a plain string becomes a text block."""
        content = raw.get("content")
        parts = content if isinstance(content, list | tuple) else [content]
        turn_id = raw.get("turn_id")
        return cls(
            role="assistant" if raw.get("role") == "assistant" else "user",
            content=tuple(block for part in parts if (block := block_from_json(part)) is not None),
            turn_id=None if turn_id is None else str(turn_id),
            interrupted=raw.get("interrupted") is True,
        )


def block_from_json(raw: object) -> Block | None:
    """Read one block of any type. Return None if the type is unknown."""
    if isinstance(raw, str):
        return TextBlock(text=raw)
    if not isinstance(raw, Mapping):
        return None
    match raw.get("type"):
        case "text":
            return TextBlock.from_json(raw)
        case "image" | "document":
            return AttachmentBlock.from_json(raw)
        case "tool_use":
            return ToolUseBlock.from_json(raw)
        case "tool_result":
            return ToolResultBlock.from_json(raw)
        case _:
            return None


def _text(raw: object) -> str:
    return raw if isinstance(raw, str) else ""


def _number(raw: object) -> int | None:
    return raw if isinstance(raw, int) else None


def _input(raw: object) -> Mapping[str, Any] | None:
    """Return a call's input, parsed if it is JSON text; None if it is not a complete object."""
    if isinstance(raw, str):
        try:
            raw = json.loads(raw, object_pairs_hook=unique_names)
        except (ValueError, RecursionError):
            return None
    return raw if isinstance(raw, Mapping) else None


def _content_text(raw: object) -> str:
    if raw is None or isinstance(raw, str):
        return raw or ""
    if not isinstance(raw, list | tuple):
        return json.dumps(raw, default=repr)
    blocks = [part if isinstance(part, Mapping) else {"text": part} for part in raw]
    return "\n".join(
        _text(block.get("text")) or json.dumps(block, default=repr) for block in blocks
    )


class RepeatedName(ValueError):
    """An object contains a name twice."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


def unique_names(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Return a dict of these pairs; used as an `object_pairs_hook` of `json`. Raise `RepeatedName` if a name occurs
    twice.
    """
    parsed = dict(pairs)
    if len(parsed) < len(pairs):
        names = [name for name, _ in pairs]
        raise RepeatedName(next(name for name in names if names.count(name) > 1))
    return parsed
