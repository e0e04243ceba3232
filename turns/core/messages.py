"""Messages: what was said in a conversation, as blocks, and their JSON form on the wire."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from turns.core.wire import AttachmentContent, TextContent, ToolResultContent, ToolUseContent

Role = Literal["user", "assistant"]
# A line that has room for one argument of a call shows the first of these that it has.
MAIN_ARGUMENTS = ("command", "url", "path", "query", "task", "message", "seconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class TextBlock:
    """Something said in words."""

    text: str

    @property
    def is_blank(self) -> bool:
        """Whether it says nothing; providers refuse a message of such blocks alone."""
        return not self.text.strip()

    def to_json(self) -> TextContent:
        return {"type": "text", "text": self.text}

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Self:
        """Read the wire's form; a missing text is an empty one."""
        return cls(text=_text(raw.get("text")))


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolUseBlock:
    """A tool call that a model asked for; not `is_complete` if the stream was cut off inside it."""

    id: str
    name: str
    input: Mapping[str, Any] = field(default_factory=dict)
    is_complete: bool = True

    @property
    def is_answerable(self) -> bool:
        """Whether it may stand in a history: whole, with an id and a name."""
        return bool(self.is_complete and self.id and self.name)

    def to_json(self) -> ToolUseContent:
        """Return the wire's form; `is_complete` is added only where it is False."""
        form: ToolUseContent = {
            "type": "tool_use",
            "id": self.id,
            "name": self.name,
            "input": dict(self.input),
        }
        return form if self.is_complete else {**form, "is_complete": False}

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Self:
        """Read the wire's form; without an id, a name or a whole input it is not complete."""
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
    """What a tool call came to; `is_synthetic` if repair put it in and no tool ever said it."""

    tool_use_id: str
    content: str
    is_error: bool = False
    is_synthetic: bool = False

    def to_json(self) -> ToolResultContent:
        """Return the wire's form; `is_synthetic` is added only where it is True."""
        form: ToolResultContent = {
            "type": "tool_result",
            "tool_use_id": self.tool_use_id,
            "content": self.content,
            "is_error": self.is_error,
        }
        return {**form, "is_synthetic": True} if self.is_synthetic else form

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Self:
        """Read the wire's form; content may be a list of text blocks, as some providers write."""
        return cls(
            tool_use_id=_text(raw.get("tool_use_id")),
            content=_content_text(raw.get("content")),
            is_error=raw.get("is_error") is True,
            is_synthetic=raw.get("is_synthetic") is True,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachmentBlock:
    """A file that a person has attached, or an image that the call `tool_use_id` has shown.

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
        """Return the wire's form; an image has its size in pixels, `tool_use_id` is added only where it says something."""
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
        """Return the block of an image that a call has shown, from what is stored with the call."""
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
_KINDS: tuple[tuple[str, type[Block]], ...] = (
    ("texts", TextBlock),
    ("attachments", AttachmentBlock),
    ("tool_uses", ToolUseBlock),
    ("tool_results", ToolResultBlock),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """What one side said at once; `interrupted` if it was cut off (H2).

    Its `texts`, `attachments`, `tool_uses` and `tool_results` are the blocks of each kind, in order: sorted once, read
    often. `origin` is whatever the caller knows it by; what repair makes of a message keeps its origin.
    """

    role: Role
    content: tuple[Block, ...]
    turn_id: str | None = None
    interrupted: bool = False
    origin: object = field(default=None, compare=False, repr=False)
    texts: tuple[TextBlock, ...] = field(init=False, compare=False, repr=False)
    attachments: tuple[AttachmentBlock, ...] = field(init=False, compare=False, repr=False)
    tool_uses: tuple[ToolUseBlock, ...] = field(init=False, compare=False, repr=False)
    tool_results: tuple[ToolResultBlock, ...] = field(init=False, compare=False, repr=False)
    _size: int = field(default=-1, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        kinds = {type(block) for block in self.content}
        for name, kind in _KINDS:
            if kind not in kinds:
                blocks: tuple[Block, ...] = ()
            elif len(kinds) == 1:
                blocks = self.content
            else:
                blocks = tuple([block for block in self.content if type(block) is kind])
            object.__setattr__(self, name, blocks)

    @property
    def visible(self) -> tuple[TextBlock | AttachmentBlock, ...]:
        """What was said and shown, in order."""
        if not self.attachments:
            return self.texts
        return tuple(b for b in self.content if isinstance(b, TextBlock | AttachmentBlock))

    @property
    def size(self) -> int:
        """How many characters its blocks have as JSON, counted once: a long history has many, and each turn asks."""
        if self._size < 0:
            size = sum(len(json.dumps(block.to_json())) for block in self.content)
            object.__setattr__(self, "_size", size)
        return self._size

    @property
    def is_empty(self) -> bool:
        return all(isinstance(block, TextBlock) and block.is_blank for block in self.content)

    def to_json(self) -> dict[str, Any]:
        """Return the wire's form; `turn_id` and `interrupted` only where they say something."""
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
        """Read the wire's form; unknown blocks are left out, a bare string is a text block."""
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
    """Read one block of any type; None if it is of none that we know."""
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
    """Return a call's input, parsed if it came as JSON text; None if it is not a whole object."""
    if isinstance(raw, str):
        try:
            raw = json.loads(raw)
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
