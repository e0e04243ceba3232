"""Turns what an MCP server answers into the text that a model reads."""

import json
from typing import Any

import pydantic_core
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
from governance.mcp.gone import AnswerLost

LONGEST_RESULT = (
    1_000_000  # characters; the executor keeps fewer, this bounds what is copied on the way
)
_LONGEST_ERROR = 2_000
_DID_NOT_RUN = frozenset({METHOD_NOT_FOUND, INVALID_PARAMS})


def render(result: CallToolResult) -> str:
    """Return the result as text. Raise `ToolFailed` with that text if the tool says that it failed."""
    text = "\n".join(_describe(block) for block in result.content)
    structured = result.structured_content
    if structured is not None and not _says(text, structured):
        written = pydantic_core.to_json(structured, fallback=str).decode()
        text = f"{text}\n{written}".lstrip("\n")
    text = text[:LONGEST_RESULT]
    if result.is_error:
        raise ToolFailed(text or "The tool failed and gave no reason.")
    return text or "Done."


def failure_of(server_name: str, error: MCPError) -> ToolFailed | AnswerLost:
    """Return what an error of the protocol means for the call; the server's own words are meant for the caller.

    Only where the server refused the call as such is it known that the tool did not run (C13).
    """
    if error.code == CONNECTION_CLOSED:
        return AnswerLost(f"The MCP server {server_name!r} broke off before it had answered.")
    if error.code == PARSE_ERROR:  # as the SDK puts it, with its own words for the log
        return AnswerLost(f"The answer of the MCP server {server_name!r} could not be read.")
    said = (error.message.strip()[:_LONGEST_ERROR] or "no reason given").rstrip(".") + "."
    if error.code in _DID_NOT_RUN:
        return ToolFailed(
            f"The MCP server {server_name!r} refused the call (error {error.code}): {said}"
        )
    return AnswerLost(
        f"The MCP server {server_name!r} answered with an error ({error.code}): {said}"
    )


def _describe(block: ContentBlock) -> str:
    if isinstance(block, TextContent):
        return block.text
    if isinstance(block, ImageContent | AudioContent):
        return f"[{block.mime_type}, {len(block.data) * 3 // 4} bytes, not shown]"
    if isinstance(block, ResourceLink):
        about = f": {block.description}" if block.description else ""
        return f"[resource {block.name} at {block.uri}{about}]"
    held = block.resource
    if isinstance(held, TextResourceContents):
        return f"[resource {held.uri}]\n{held.text}"
    return f"[resource {held.uri}, {len(held.blob) * 3 // 4} bytes, not shown]"


def _says(text: str, structured: Any) -> bool:
    """Whether the text is the structured content already, as the protocol recommends."""
    try:
        return bool(json.loads(text) == structured)
    except ValueError:
        return False
