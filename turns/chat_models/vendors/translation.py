"""Translation: our history and tools as pydantic-ai has them, and its stream events as our deltas."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    ModelResponseStreamEvent,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    ToolCallPartDelta,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.tools import ToolDefinition

from turns.core.chat_model import ChatDelta, TextDelta, ThinkingDelta, ToolCallDelta, ToolSpec
from turns.core.messages import AttachmentBlock, Message, TextBlock, ToolResultBlock, ToolUseBlock

_ID_LENGTH = 40  # the shortest limit among the providers
_NAME_LENGTH = 64
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_-]")
# Anthropic and OpenAI refuse a whole request for one tool with these at the top of its schema.
_NOT_AT_THE_TOP = frozenset({"allOf", "anyOf", "enum", "not", "oneOf"})
_NO_OUTPUT = "(no output)"  # providers refuse a blank text


def parameters_of(tools: Sequence[ToolSpec]) -> ModelRequestParameters:
    """Return the tools: `strict` would let the adapter rewrite their schemas.

    What is not sent of a schema still counts: an input is checked against all of it.
    """
    return ModelRequestParameters(
        function_tools=[
            ToolDefinition(
                name=tool.name,
                description=tool.description,
                parameters_json_schema={
                    key: value
                    for key, value in tool.input_schema.items()
                    if key not in _NOT_AT_THE_TOP
                },
                strict=False,
            )
            for tool in tools
        ]
    )


def history_of(messages: Sequence[Message], *, instructions: str = "") -> list[ModelMessage]:
    """Return a valid history (H1): strings only, blank texts left out, neighbours of one role merged, ids unique."""
    ids = _CallIds()
    history: list[ModelMessage] = []
    for message in messages:
        last = history[-1] if history else None
        if message.role == "assistant":
            said = list(_response_parts(message, ids))
            if isinstance(last, ModelResponse):
                last.parts = [*last.parts, *said]
            elif said:
                history.append(ModelResponse(parts=said))
        else:
            asked = list(_request_parts(message, ids))
            if isinstance(last, ModelRequest):
                last.parts = [*last.parts, *asked]
            elif asked:
                history.append(ModelRequest(parts=asked))
    for request in history:
        if isinstance(request, ModelRequest):
            request.parts = _in_order(request.parts)
    if instructions and history and isinstance(history[-1], ModelRequest):
        history[-1].instructions = _clean(instructions)
    return history


def delta_of(event: ModelResponseStreamEvent) -> ChatDelta | None:
    """Return what an event adds to the answer; None for most ends and for what a provider does by itself."""
    match event:
        case PartDeltaEvent(delta=TextPartDelta(content_delta=text)) if text:
            return TextDelta(text)
        case PartStartEvent(part=TextPart(content=text)) if text:
            return TextDelta(text)
        case PartStartEvent(part=ThinkingPart(content=text)) if text:
            return ThinkingDelta(text)
        case PartDeltaEvent(delta=ThinkingPartDelta(content_delta=text)) if text:
            return ThinkingDelta(text)
        case PartStartEvent(index=index, part=ToolCallPart() as call):
            return ToolCallDelta(
                index=index,
                id=call.tool_call_id,
                name=call.tool_name,
                arguments=_json(call.args),
            )
        case PartDeltaEvent(index=index, delta=ToolCallPartDelta() as piece):
            return ToolCallDelta(
                index=index, id=piece.tool_call_id or "", arguments=_json(piece.args_delta)
            )
    return None


class _CallIds:
    """Ids as providers take them: once in a history, of few characters. The same history gives the same ids again."""

    def __init__(self) -> None:
        self._used: set[str] = set()
        self._open: dict[str, tuple[str, str]] = {}

    def add(self, call: ToolUseBlock) -> str:
        wanted = _NOT_IN_NAMES.sub("_", call.id)[:_ID_LENGTH] or "call"
        unique, number = wanted, 1
        while unique in self._used:
            number += 1
            ending = f"_{number}"
            unique = f"{wanted[: _ID_LENGTH - len(ending)]}{ending}"
        self._used.add(unique)
        self._open[call.id] = (unique, _name(call.name))
        return unique

    def answer(self, result: ToolResultBlock) -> tuple[str, str] | None:
        """Return the id and the tool of the call that a result belongs to: the last one of this id."""
        return self._open.pop(result.tool_use_id, None)


def _response_parts(message: Message, ids: _CallIds) -> Iterator[ModelResponsePart]:
    for block in message.content:
        if isinstance(block, TextBlock) and not block.is_blank:
            yield TextPart(content=_clean(block.text))
        elif isinstance(block, ToolUseBlock):
            yield ToolCallPart(
                tool_name=_name(block.name),
                args=_clean_values(dict(block.input)),
                tool_call_id=ids.add(block),
            )


def _request_parts(message: Message, ids: _CallIds) -> Iterator[ModelRequestPart]:
    """Yield the results in order, and what was said."""
    for result in message.tool_results:
        if (call := ids.answer(result)) is not None:
            call_id, tool_name = call
            content = _clean(result.content)
            yield ToolReturnPart(
                tool_name=tool_name,
                content=content if content.strip() else _NO_OUTPUT,
                tool_call_id=call_id,
                outcome="failed" if result.is_error else "success",
            )
    for block in message.visible:
        if isinstance(block, AttachmentBlock):
            if block.content is not None:
                file = BinaryContent(data=block.content, media_type=block.media_type)
                yield UserPromptPart(content=[file])
        elif not block.is_blank:
            yield UserPromptPart(content=[_clean(block.text)])


def _in_order(parts: Sequence[ModelRequestPart]) -> list[ModelRequestPart]:
    """Return the results, which every provider wants next to their calls, then all that was said as one part.

    OpenAI's adapter makes a message of each part. Some servers refuse two messages of one role in a row, and some read
    no list of texts.
    """
    results = [part for part in parts if not isinstance(part, UserPromptPart)]
    said = [item for part in parts if isinstance(part, UserPromptPart) for item in part.content]
    texts = [item for item in said if isinstance(item, str)]
    if not said:
        return [*results]
    content = said if len(texts) < len(said) else "\n\n".join(texts)
    return [*results, UserPromptPart(content=content)]


def _name(tool_name: str) -> str:
    """Return a name that every provider takes: an earlier model may have asked for a tool that never was."""
    return _NOT_IN_NAMES.sub("_", tool_name)[:_NAME_LENGTH] or "unnamed"


def _clean(text: str) -> str:
    """Return the text without lone surrogates, which no request can carry."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _clean_values(value: Any) -> Any:
    match value:
        case str():
            return _clean(value)
        case Mapping():
            return {_clean(str(name)): _clean_values(part) for name, part in value.items()}
        case list() | tuple():
            return [_clean_values(part) for part in value]
        case _:
            return value


def _json(arguments: str | dict[str, Any] | None) -> str:
    if isinstance(arguments, dict):
        return json.dumps(arguments, ensure_ascii=False)
    return arguments or ""
