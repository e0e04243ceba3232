"""What a server answers as the text that a model reads: everything, and everything once."""

import json

import pytest
from mcp.types import CallToolResult, ResourceLink, TextContent

from governance.mcp.results import render

LONG = "[FILE] a.txt\n[FILE] b.txt"


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
def test_what_the_text_says_is_not_said_again(texts, structured, shown):
    content = [TextContent(type="text", text=text) for text in texts]
    assert render(CallToolResult(content=content, structured_content=structured)) == shown


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("demo://1", "[resource one at demo://1; no tool here can read it]"),
        ("https://example.org/1", "[resource one at https://example.org/1]"),
    ],
)
def test_a_link_that_leads_nowhere_says_so(uri, shown):
    connection = ResourceLink(type="resource_link", name="one", uri=uri)
    assert render(CallToolResult(content=[connection])) == shown
