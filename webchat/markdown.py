"""HTML of messages: Markdown rendered, then sanitised; never on the event loop.

Only the agent's text is Markdown. What a person typed is shown as typed.
"""

import asyncio
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import nh3
from django.utils.html import escape
from markdown_it import MarkdownIt

# A longer text is shown as it is, so that no answer keeps a thread busy for long: a table of this length takes a second.
MAX_MARKDOWN = 30_000
_TEXT = {
    "a",
    "blockquote",
    "br",
    "code",
    "del",
    "em",
    "hr",
    "li",
    "ol",
    "p",
    "pre",
    "s",
    "strong",
    "ul",
}
_TAGS = _TEXT | {"h1", "h2", "h3", "h4", "h5", "h6", "table", "tbody", "td", "th", "thead", "tr"}
_ATTRIBUTES = {
    "a": {"href", "title", "target"},
    "ol": {"start"},
    "code": {"class"},
    "td": {"align"},
    "th": {"align"},
}
_SCHEMES = {"http", "https", "mailto"}
_MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])


def text_of(content: Iterable[Mapping[str, Any]]) -> str:
    """Return the text of a message's blocks."""
    return "\n\n".join(
        str(block.get("text", "")) for block in content if block.get("type") == "text"
    )


@lru_cache(maxsize=512)
def render_markdown(text: str) -> str:
    """Return safe HTML: no scripts, no styles, no images, links that open elsewhere and say nothing of us."""
    if len(text) > MAX_MARKDOWN:
        return as_typed(text)
    return nh3.clean(
        _MARKDOWN.render(text),
        tags=_TAGS,
        attributes=_ATTRIBUTES,
        url_schemes=_SCHEMES,
        link_rel="noopener nofollow",
        set_tag_attribute_values={"a": {"target": "_blank"}},
    )


def as_typed(text: str) -> str:
    """Return the text itself as HTML, lines kept."""
    return f"<p>{escape(text).replace(chr(10), '<br>')}</p>" if text else ""


def html_of(message: Mapping[str, Any]) -> str:
    """Return the HTML of a message with `role` and `content`."""
    text = text_of(message.get("content") or ())
    return render_markdown(text) if message.get("role") == "assistant" else as_typed(text)


async def with_html(messages: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages with their HTML and that of the reports in them, rendered in a worker thread."""
    return await asyncio.to_thread(lambda: [_message_with_html(message) for message in messages])


async def with_report_html(starts: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return `turn_start` events with the HTML of their reports, rendered in a worker thread."""
    return await asyncio.to_thread(
        lambda: [
            {**start, "reports": [_report_with_html(report) for report in start["reports"]]}
            for start in starts
        ]
    )


def _message_with_html(message: Mapping[str, Any]) -> dict[str, Any]:
    content = [
        {**block, "sub_agent": _report_with_html(block["sub_agent"])}
        if block.get("sub_agent")
        else block
        for block in message.get("content") or ()
    ]
    return {**message, "content": content, "html": html_of(message)}


def _report_with_html(report: Mapping[str, Any]) -> dict[str, Any]:
    """What a sub-agent has reported is an agent's text, like an answer."""
    return {**report, "html": render_markdown(str(report.get("text", "")))}
