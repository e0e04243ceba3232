"""Turns what an MCP server answers into the text that a model reads."""

import json
from typing import Any
from urllib.parse import urlsplit

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
from governance.mcp.error_messages import status_clause
from governance.mcp.errors import ResponseLost

LONGEST_RESULT = 1_000_000  # characters; the executor keeps fewer, this bounds the copies before it
_LONGEST_ERROR = 2_000
_DID_NOT_RUN = frozenset({METHOD_NOT_FOUND, INVALID_PARAMS})
_TURNED_AWAY = frozenset({401, 403, 429})
_REPEATED = object()
_UNREAD = "; no tool here can read it"


def render(result: CallToolResult) -> str:
    """Return the result as text. Raise `ToolFailed` with that text if the tool says that it failed."""
    blocks = [_describe(block) for block in result.content]
    text = "\n".join(blocks)
    new = _without(result.structured_content, said=_said([text, *blocks]))
    if new is not _REPEATED and new is not None:
        added = json.dumps(new, ensure_ascii=False, default=str)
        text = f"{text}\n{added}".lstrip("\n")
    text = text[:LONGEST_RESULT]
    if result.is_error:
        raise ToolFailed(text or "The tool failed and gave no reason.")
    return text or "Done."


def failure_of(
    server_name: str, error: MCPError, *, status: int | None = None
) -> ToolFailed | ResponseLost:
    """Return the exception for a protocol error; its text is for the caller.

    `status` is the HTTP status of a response without a protocol message. Only if the server refused the call itself
    is it known that the tool did not run (C13).
    """
    if error.code == CONNECTION_CLOSED:
        return ResponseLost(f"The MCP server {server_name!r} broke off before it had answered.")
    if error.code == PARSE_ERROR:  # as the SDK puts it, with its own words for the log
        return ResponseLost(f"The answer of the MCP server {server_name!r} could not be read.")
    if status is not None:
        words = f"The MCP server {server_name!r} did not take the call: {status_clause(status)}."
        return ToolFailed(words) if status in _TURNED_AWAY else ResponseLost(words)
    said = (error.message.strip()[:_LONGEST_ERROR] or "no reason given").rstrip(".") + "."
    if error.code in _DID_NOT_RUN:
        return ToolFailed(
            f"The MCP server {server_name!r} refused the call (error {error.code}): {said}"
        )
    return ResponseLost(
        f"The MCP server {server_name!r} answered with an error ({error.code}): {said}"
    )


def _describe(block: ContentBlock) -> str:
    if isinstance(block, TextContent):
        return block.text
    if isinstance(block, ImageContent | AudioContent):
        return f"[{block.mime_type}, {len(block.data) * 3 // 4} bytes, not shown]"
    if isinstance(block, ResourceLink):
        about = f": {block.description}" if block.description else ""
        dead_end = "" if urlsplit(block.uri).scheme in {"http", "https"} else _UNREAD
        return f"[resource {block.name} at {block.uri}{about}{dead_end}]"
    held = block.resource
    if isinstance(held, TextResourceContents):
        return f"[resource {held.uri}]\n{held.text}"
    return f"[resource {held.uri}, {len(held.blob) * 3 // 4} bytes, not shown]"


def _without(value: Any, *, said: set[str]) -> Any:
    """Return the structured content without what the text already says; `_REPEATED` if nothing is left."""
    if _written(value) in said or (isinstance(value, str) and value.strip() in said):
        return _REPEATED
    if isinstance(value, dict) and value:
        new = {name: _without(part, said=said) for name, part in value.items()}
        return {name: part for name, part in new.items() if part is not _REPEATED} or _REPEATED
    if isinstance(value, list) and value:
        new_parts = [_without(part, said=said) for part in value]
        return _REPEATED if all(part is _REPEATED for part in new_parts) else value
    return value


def _said(texts: list[str]) -> set[str]:
    """Return the texts, and the values that they are the JSON of, as the protocol recommends."""
    said = {stripped for text in texts if (stripped := text.strip())}
    for text in texts:
        try:
            said.add(_written(json.loads(text)))
        except (ValueError, RecursionError):
            continue
    return said


def _written(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)
