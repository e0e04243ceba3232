"""Converts the result of a call to an MCP server into the text that the chat model reads, and shows its images."""

import base64
import binascii
import json
from dataclasses import dataclass
from typing import Any

from mcp.shared.exceptions import MCPError
from mcp.types import (
    CONNECTION_CLOSED,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    AudioContent,
    CallToolResult,
    ContentBlock,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

from governance.core.exceptions import ToolFailed
from governance.core.excerpts import excerpt, shortened
from governance.core.images import Show
from governance.core.invokers.worker_errors import ResultRefused
from governance.mcp.error_messages import status_clause
from governance.mcp.errors import ResponseLost
from governance.threads import run_in_thread

LONGEST_RESULT = 1_000_000  # characters; the executor keeps fewer, but this limits the copies that are made before
_LONGEST_ERROR = 2_000
_DID_NOT_RUN = frozenset({METHOD_NOT_FOUND, INVALID_PARAMS})
_TURNED_AWAY = frozenset({401, 403, 429})
_REPEATED = object()
_LEVELS = 4  # how deep structured content is searched for repeated text
_UNREAD = "; no tool here can read it"


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedImage:
    """An image in base64, as it was received. Its type is detected from its bytes."""

    data: str

    async def show(self, show: Show, *, name: str) -> str:
        """Show the image. Return the line that represents it in the result."""
        try:
            content = await run_in_thread(base64.b64decode, self.data, validate=True)
        except (binascii.Error, ValueError):
            return "[image, not shown: It is not valid base64.]"
        return await show(content, name)


@dataclass(frozen=True, slots=True, kw_only=True)
class McpResult:
    """The result of a call to an MCP server: texts, and images that are not shown yet."""

    parts: tuple[str | EncodedImage, ...]
    is_error: bool = False

    async def as_text(self, show: Show) -> str:
        """Show the images and return the result as text. Raise `ToolFailed` with that text if the tool failed."""
        lines: list[str] = []
        for part in self.parts:
            lines.append(part if isinstance(part, str) else await part.show(show, name="image"))
        text = excerpt("\n".join(lines), limit=LONGEST_RESULT)
        if self.is_error:
            raise ToolFailed(text or "The tool failed and gave no reason.")
        return text or "Done."


def read_result(result: CallToolResult) -> McpResult:
    """Convert a result of the SDK, without the parts of its structured content that repeat its text.

    This is slow for a large result.

    Raises:
        ResultRefused: the result contains numbers that JSON does not have.
    """
    parts = [_part(block) for block in result.content]
    texts = [part for part in parts if isinstance(part, str)]
    new = _without(result.structured_content, texts=_texts_in(["\n".join(texts), *texts]))
    if new is not _REPEATED and new is not None:
        parts_with_text = [part for part in parts if part]
        parts = [*parts_with_text, _as_json(new)]
    return McpResult(parts=tuple(parts), is_error=result.is_error)


def error_text(error: MCPError) -> str:
    """Return the message of an error. For a tool call it is in `data`, which the SDK does not put into traces."""
    message = error.message or error.data
    return message if isinstance(message, str) else ""


def failure_of(
    server_name: str, error: MCPError, *, status: int | None = None
) -> ToolFailed | ResponseLost:
    """Return the exception for a protocol error. Its message is for the caller.

    `status` is the HTTP status of a response without a protocol message. `ToolFailed` is returned only if the server
    refused the call itself, because otherwise the tool may have run (C13).
    """
    if error.code == CONNECTION_CLOSED:
        return ResponseLost(f"The MCP server {server_name!r} broke off before it had answered.")
    if error.code == PARSE_ERROR:  # the SDK could not parse the response; it logs the details
        return ResponseLost(f"The answer of the MCP server {server_name!r} could not be read.")
    if status is not None:
        words = f"The MCP server {server_name!r} did not take the call: {status_clause(status)}."
        return ToolFailed(words) if status in _TURNED_AWAY else ResponseLost(words)
    words = shortened(error_text(error).strip(), limit=_LONGEST_ERROR)
    reason = (words or "no reason given").rstrip(".") + "."
    if error.code in _DID_NOT_RUN:
        return ToolFailed(
            f"The MCP server {server_name!r} refused the call (error {error.code}): {reason}"
        )
    return ResponseLost(
        f"The MCP server {server_name!r} answered with an error ({error.code}): {reason}"
    )


def _part(block: ContentBlock) -> str | EncodedImage:
    if isinstance(block, TextContent):
        return block.text
    if isinstance(block, ImageContent):
        return EncodedImage(data=block.data)
    if isinstance(block, AudioContent):
        return f"[{block.mime_type}, {len(block.data) * 3 // 4} bytes, not shown]"
    if isinstance(block, ResourceLink):
        about = f": {block.description}" if block.description else ""
        is_of_web = block.uri.lower().startswith(
            ("http://", "https://")
        )  # not parsed, because the address may be invalid
        dead_end = "" if is_of_web else _UNREAD
        return f"[resource {block.name} at {block.uri}{about}{dead_end}]"
    resource = block.resource
    if isinstance(resource, TextResourceContents):
        return f"[resource {resource.uri}]\n{resource.text}"
    if (resource.mime_type or "").startswith("image/"):
        return EncodedImage(data=resource.blob)
    return f"[resource {resource.uri}, {len(resource.blob) * 3 // 4} bytes, not shown]"


def _without(value: Any, *, texts: set[str], levels: int = _LEVELS) -> Any:
    """Return the structured content without the parts that the text already contains; `_REPEATED` if nothing is left.

    Each level serializes everything below it once more, so levels below the first `levels` are returned unchanged.
    """
    if levels == 0:
        return value
    if _written(value) in texts or (isinstance(value, str) and value.strip() in texts):
        return _REPEATED
    if isinstance(value, dict) and value:
        new = {name: _without(part, texts=texts, levels=levels - 1) for name, part in value.items()}
        return {name: part for name, part in new.items() if part is not _REPEATED} or _REPEATED
    if isinstance(value, list) and value:
        new_parts = [_without(part, texts=texts, levels=levels - 1) for part in value]
        return _REPEATED if all(part is _REPEATED for part in new_parts) else value
    return value


def _texts_in(texts: list[str]) -> set[str]:
    """Return the texts, and for each text that is JSON, its normalised form.

    The protocol recommends that servers repeat structured content as JSON in a text.
    """
    stripped_texts = {stripped for text in texts if (stripped := text.strip())}
    for text in texts:
        try:
            stripped_texts.add(_written(json.loads(text)))
        except (ValueError, RecursionError):
            continue
    return stripped_texts


def _as_json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, default=str)
    except ValueError as error:  # NaN or infinity, which the SDK accepts
        raise ResultRefused("not_json", str(error)) from None


def _written(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)
