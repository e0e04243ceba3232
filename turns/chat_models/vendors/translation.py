"""Converts Turnkeeper's history and tools for pydantic-ai, and pydantic-ai's stream events to Turnkeeper's deltas."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, cast

from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelMessagesTypeAdapter,
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
    UserContent,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.usage import RequestUsage

from governance.sanitize import sanitize_json, sanitize_text
from turns.core.chat_model import ChatDelta, TextDelta, ThinkingDelta, ToolCallDelta, ToolSpec
from turns.core.messages import AttachmentBlock, Message, TextBlock, ToolResultBlock, ToolUseBlock

_ID_LENGTH = 40  # the shortest limit among the providers
_NAME_LENGTH = 64
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_-]")
# Anthropic and OpenAI refuse the whole request if the schema of one tool has these at the top level.
_NOT_AT_THE_TOP = frozenset({"allOf", "anyOf", "enum", "not", "oneOf"})
_VERSION = 1  # version of the format of stored answers
_MOST_KEPT = 1_000_000  # characters of a stored answer
_NO_OUTPUT = "(no output)"  # providers refuse a blank text


def parameters_of(tools: Sequence[ToolSpec]) -> ModelRequestParameters:
    """Return the tools for a request, never `strict`, because pydantic-ai would then change their schemas.

    Parts of a schema that are not sent still apply: the input of a call is checked against the whole schema.
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


def history_of(
    messages: Sequence[Message],
    *,
    instructions: str = "",
    vendor: str = "",
    bound_from: int = 0,
    keeps_messages_apart: bool = False,
) -> list[ModelMessage]:
    """Return a history that every provider accepts (H1): it contains only strings and no blank texts, adjacent messages
    of a role are merged, and ids are unique.

    A longer history begins with the same messages, so that providers can cache them. An answer of the same vendor is
    sent back unchanged if its index is `bound_from` or higher. The texts of adjacent user messages are joined,
    unless the vendor `keeps_messages_apart`.
    """
    ids = _CallIds()
    history: list[ModelMessage] = []
    for place, message in enumerate(messages):
        last = history[-1] if history else None
        if message.role == "assistant":
            response = _kept_response(message, vendor=vendor) if place >= bound_from else None
            parts = _response_parts(message) if response is None else response.parts
            response_parts = list(_with_ids(parts, message, ids))
            if isinstance(last, ModelResponse):
                last.parts = [*last.parts, *response_parts]
            elif response_parts:
                history.append(replace(response or ModelResponse(parts=[]), parts=response_parts))
        else:
            request_parts = list(_request_parts(message, ids))
            if isinstance(last, ModelRequest):
                last.parts = [*last.parts, *request_parts]
            elif request_parts:
                history.append(ModelRequest(parts=request_parts))
    for request in history:
        if isinstance(request, ModelRequest):
            request.parts = _in_order(request.parts, keeps_messages_apart=keeps_messages_apart)
    if instructions and history and isinstance(history[-1], ModelRequest):
        history[-1].instructions = sanitize_text(instructions)
    return history


def delta_of(event: ModelResponseStreamEvent) -> ChatDelta | None:
    """Return the delta for an event; None if it adds nothing to the answer, such as the end of a part."""
    match event:
        case PartDeltaEvent(delta=TextPartDelta(content_delta=text)) if text:
            return TextDelta(text)
        case PartStartEvent(part=TextPart(content=text)) if text:
            return TextDelta(text)
        case PartStartEvent(index=index, part=ThinkingPart(content=text)) if text or index:
            return ThinkingDelta(f"\n\n{text}" if index else text)
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


def kept_of(response: ModelResponse, *, vendor: str) -> dict[str, Any] | None:
    """Return an answer as JSON, so that it can be sent back unchanged. Return None if the message's blocks contain all
    of it, or if it is too long.
    """
    if not any(map(_has_more_than_blocks, response.parts)):
        return None
    smaller = replace(response, usage=RequestUsage(), provider_url=None)
    [message] = ModelMessagesTypeAdapter.dump_python([smaller], mode="json")
    is_storable = len(json.dumps(message)) <= _MOST_KEPT and sanitize_json(message) == message
    return {"version": _VERSION, "vendor": vendor, "response": message} if is_storable else None


def _kept_response(message: Message, *, vendor: str) -> ModelResponse | None:
    """Return the stored answer unchanged. Return None if it is from another version or vendor, or no longer matches the
    message's blocks.
    """
    parts = message.provider_parts or {}
    if parts.get("version") != _VERSION or parts.get("vendor") != vendor:
        return None
    try:
        [response] = ModelMessagesTypeAdapter.validate_python([parts.get("response")])
    except ValueError:
        return None
    if not isinstance(response, ModelResponse):
        return None
    texts = [part.content for part in response.parts if isinstance(part, TextPart)]
    tool_names = [part.tool_name for part in response.parts if isinstance(part, ToolCallPart)]
    is_same = "".join(texts).strip() == "".join(block.text for block in message.texts).strip()
    return response if is_same and tool_names == [use.name for use in message.tool_uses] else None


def _has_more_than_blocks(part: ModelResponsePart) -> bool:
    is_ours = isinstance(part, TextPart | ToolCallPart)
    return not is_ours or bool(getattr(part, "provider_details", None))


class _CallIds:
    """Call ids that every provider accepts: short, and unique in a history. The same history always has the same ids."""

    def __init__(self) -> None:
        self._used: set[str] = set()
        self._open: dict[str, tuple[str, str]] = {}

    def add(self, call: ToolUseBlock) -> str:
        base = _NOT_IN_NAMES.sub("_", call.id)[:_ID_LENGTH] or "call"
        unique, number = base, 1
        while unique in self._used:
            number += 1
            suffix = f"_{number}"
            unique = f"{base[: _ID_LENGTH - len(suffix)]}{suffix}"
        self._used.add(unique)
        self._open[call.id] = (unique, _name(call.name))
        return unique

    def answer(self, result: ToolResultBlock) -> tuple[str, str] | None:
        """Return the id and the tool of the call that a result belongs to, which is the last one with its id."""
        return self._open.pop(result.tool_use_id, None)


def _response_parts(message: Message) -> Iterator[ModelResponsePart]:
    for block in message.content:
        if isinstance(block, TextBlock) and not block.is_blank:
            yield TextPart(content=sanitize_text(block.text))
        elif isinstance(block, ToolUseBlock):
            yield ToolCallPart(tool_name=block.name, args=None)


def _with_ids(
    parts: Iterable[ModelResponsePart], message: Message, ids: _CallIds
) -> Iterator[ModelResponsePart]:
    """Yield the parts of an answer, each call with the name and the arguments that were run, and with a unique id."""
    uses = iter(message.tool_uses)
    for part in parts:
        if isinstance(part, ToolCallPart):
            use, call = next(uses), cast(Any, part)
            yield replace(
                call,
                tool_name=_name(use.name),
                args=sanitize_json(_arguments(use, as_written=call.args)),
                tool_call_id=ids.add(use),
            )
        else:
            yield part


def _arguments(use: ToolUseBlock, *, as_written: str | dict[str, Any] | None) -> Any:
    """Return the arguments in a stable order, because PostgreSQL does not preserve the original one.

    If the model's own order is stored, it is used, because the model's signatures depend on it.
    """
    try:
        arguments = json.loads(as_written) if isinstance(as_written, str) else as_written
    except ValueError:
        arguments = None
    return (
        arguments
        if arguments == use.input
        else json.loads(json.dumps(dict(use.input), sort_keys=True))
    )


def _request_parts(message: Message, ids: _CallIds) -> Iterator[ModelRequestPart]:
    """Yield the results in order, then the rest of the message as one part: text, unless there are files."""
    for result in message.tool_results:
        if (call := ids.answer(result)) is not None:
            call_id, tool_name = call
            content = sanitize_text(result.content)
            yield ToolReturnPart(
                tool_name=tool_name,
                content=content if content.strip() else _NO_OUTPUT,
                tool_call_id=call_id,
                outcome="failed" if result.is_error else "success",
            )
    if user_content := list(_user_content(message)):
        yield UserPromptPart(content=_as_text_if_possible(user_content))


def _user_content(message: Message) -> Iterator[UserContent]:
    for block in message.visible:
        if isinstance(block, AttachmentBlock):
            if block.content is not None:
                yield BinaryContent(data=block.content, media_type=block.media_type)
        elif not block.is_blank:
            yield sanitize_text(block.text)


def _as_text_if_possible(content: Sequence[UserContent]) -> str | Sequence[UserContent]:
    texts = [item for item in content if isinstance(item, str)]
    return content if len(texts) < len(content) else "\n\n".join(texts)


def _in_order(
    parts: Sequence[ModelRequestPart], *, keeps_messages_apart: bool
) -> list[ModelRequestPart]:
    """Return the results first, because every provider wants them next to their calls, then the user's content.

    The content is joined into one part, because pydantic-ai makes a separate message of each part for OpenAI. Some
    servers refuse two messages of one role in a row, and some accept no list of texts.
    """
    results = [part for part in parts if not isinstance(part, UserPromptPart)]
    prompts = [part for part in parts if isinstance(part, UserPromptPart)]
    if keeps_messages_apart or len(prompts) < 2:
        return [*results, *prompts]
    content: list[UserContent] = []
    for prompt in prompts:
        content += [prompt.content] if isinstance(prompt.content, str) else prompt.content
    return [*results, UserPromptPart(content=_as_text_if_possible(content))]


def _name(tool_name: str) -> str:
    """Return a name that every provider accepts, because an earlier model may have called a tool that does not exist."""
    return _NOT_IN_NAMES.sub("_", tool_name)[:_NAME_LENGTH] or "unnamed"


def _json(arguments: str | dict[str, Any] | None) -> str:
    if isinstance(arguments, dict):
        return json.dumps(arguments, ensure_ascii=False)
    return arguments or ""
