"""What a server answers as the text that a model reads: everything, and everything once."""

import base64
import json
from typing import Any

import pytest
from mcp.types import (
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
)

from governance.core.exceptions import ToolFailed
from governance.mcp.results import read_result

PIXELS = base64.b64encode(b"pixels").decode()
LONG = "[FILE] a.txt\n[FILE] b.txt"


async def show(content, name):
    return f"<{name} of {len(content)} bytes>"


@pytest.mark.parametrize(
    ("texts", "structured", "shown"),
    [
        ([LONG], {"content": LONG}, LONG),
        ([LONG], {"content": LONG, "count": 2}, LONG + '\n{"count": 2}'),
        ([LONG], {"page": {"content": LONG}, "next": None}, LONG + '\n{"next": null}'),
        (["5"], {"result": 5}, "5"),
        ([json.dumps({"b": 1, "a": [2]})], {"a": [2], "b": 1}, '{"b": 1, "a": [2]}'),
        (['{"a": 1}', '{"a": 2}'], {"result": [{"a": 1}, {"a": 2}]}, '{"a": 1}\n{"a": 2}'),
        (["one", "two"], {"lines": ["one", "two"]}, "one\ntwo"),
        (["one"], {"lines": ["one", "two"]}, 'one\n{"lines": ["one", "two"]}'),
        (["Found 2 files"], {"files": ["a", "b"]}, 'Found 2 files\n{"files": ["a", "b"]}'),
        ([], {"a": "ä"}, '{"a": "ä"}'),
        ([], {}, "{}"),
        ([], None, "Done."),
    ],
)
async def test_what_the_text_says_is_not_said_again(texts, structured, shown):
    content = [TextContent(type="text", text=text) for text in texts]
    result = CallToolResult(content=content, structured_content=structured)
    assert await read_result(result).as_text(show) == shown


def test_a_deep_result_is_not_written_anew_at_each_level(monkeypatch):
    """A hostile server could keep a processor busy for minutes."""
    written = []
    dumps = json.dumps
    monkeypatch.setattr(
        json, "dumps", lambda *value, **how: written.append(1) or dumps(*value, **how)
    )
    deep: Any = "x"
    for _ in range(150):
        deep = {"a": deep}
    read = read_result(CallToolResult(content=[], structured_content=deep))
    assert json.loads(read.parts[0]) == deep
    assert len(written) < 10


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("demo://1", "[resource one at demo://1; no tool here can read it]"),
        ("https://example.org/1", "[resource one at https://example.org/1]"),
        ("http://[x", "[resource one at http://[x]"),
        ("//[", "[resource one at //[; no tool here can read it]"),
    ],
)
async def test_a_link_that_leads_nowhere_says_so(uri, shown):
    connection = ResourceLink(type="resource_link", name="one", uri=uri)
    assert await read_result(CallToolResult(content=[connection])).as_text(show) == shown


def picture(data):
    return ImageContent(type="image", data=data, mime_type="image/png")


async def test_images_are_shown_in_their_places():
    held = BlobResourceContents(uri="demo://1", mime_type="image/webp", blob=PIXELS)
    content = [
        TextContent(type="text", text="before"),
        picture(PIXELS),
        TextContent(type="text", text="after"),
        EmbeddedResource(type="resource", resource=held),
    ]
    said = await read_result(CallToolResult(content=content)).as_text(show)
    assert said == "before\n<image of 6 bytes>\nafter\n<image of 6 bytes>"


@pytest.mark.parametrize("data", ["not base64!", "a", "\u00e4\u00f6"])
async def test_what_is_no_base64_is_said(data):
    said = await read_result(CallToolResult(content=[picture(data)])).as_text(show)
    assert said == "[image, not shown: It is not valid base64.]"


async def test_a_tool_that_failed_shows_its_images_too():
    result = read_result(CallToolResult(content=[picture(PIXELS)], is_error=True))
    with pytest.raises(ToolFailed, match="<image of 6 bytes>"):
        await result.as_text(show)
