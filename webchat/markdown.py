"""Renders the Markdown of messages as sanitised HTML, in a worker thread.

Only an agent's text is treated as Markdown. A person's message is shown as it was typed.
"""

import re
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from sys import getsizeof
from typing import Any

from django.utils.html import escape

from governance.threads import run_in_thread
from turns import wire

BLOCK = 10_000  # characters to render at a time, so that no answer occupies a thread for long
CACHE = 16_000_000  # bytes of recently rendered blocks and their HTML
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")


def text_of(content: Iterable[Mapping[str, Any]]) -> str:
    return "\n\n".join(
        str(block.get("text", "")) for block in content if block.get("type") == "text"
    )


def render_markdown(text: str) -> str:
    """Return safe HTML without scripts, styles and images. Links open in a new tab and send no referrer."""
    return "".join(map(rendered.html_of, _blocks(text)))


class RenderedBlocks:
    """A cache of recently rendered blocks, whose text and HTML use at most `max_bytes` of memory."""

    def __init__(self, max_bytes: int) -> None:
        self.memory = 0
        self._max_bytes = max_bytes
        self._known: OrderedDict[str, str] = OrderedDict()
        self._lock = threading.Lock()

    def html_of(self, text: str) -> str:
        with self._lock:
            html = self._known.get(text)
            if html is not None:
                self._known.move_to_end(text)
                return html
        html = _render_block(text)
        with self._lock:
            self._keep(text, html)
        return html

    def _keep(self, text: str, html: str) -> None:
        if text not in self._known:
            self.memory += getsizeof(text) + getsizeof(html)
        self._known[text] = html
        while self.memory > self._max_bytes:
            self.memory -= sum(map(getsizeof, self._known.popitem(last=False)))


rendered = RenderedBlocks(CACHE)


def _render_block(text: str) -> str:
    from webchat import markdown_rules  # noqa: PLC0415 - most processes never render Markdown

    return markdown_rules.render(text)


def _blocks(text: str) -> Iterator[str]:
    """Yield a long text in pieces, split between paragraphs if possible. Long code is split by lines."""
    if len(text) <= BLOCK:
        yield text
        return
    piece: list[str] = []
    size, fence = 0, ""
    for line in _lines(text):
        piece.append(line)
        size += len(line)
        fence = fence_after(line, fence)
        if size < BLOCK or (line.strip() and size < 2 * BLOCK):
            continue
        if fence and size < 2 * BLOCK:
            continue
        closing = _FENCE.match(fence)
        yield "".join(piece) + (f"\n{closing[1]}\n" if closing else "")
        piece, size = [fence] if fence else [], len(fence)
    yield "".join(piece)


def _lines(text: str) -> Iterator[str]:
    """Yield the lines with their line ends. A line that is longer than `BLOCK` is yielded in parts."""
    for line in text.splitlines(keepends=True):
        for start in range(0, len(line), BLOCK):
            yield line[start : start + BLOCK]


def fence_after(line: str, fence: str) -> str:
    """Return the opening fence of the code block that contains the next line, or "" if there is none."""
    match = _FENCE.match(line)
    if match is None:
        return fence
    if not fence:
        if match[1][0] == "`" and "`" in line[match.end() :]:
            return ""  # inline code
        return line if line.endswith("\n") else f"{line}\n"
    opening = _FENCE.match(fence)
    is_end = opening and match[1].startswith(opening[1]) and not line[match.end() :].strip()
    return "" if is_end else fence


def as_typed(text: str) -> str:
    """Return plain text as an HTML paragraph that keeps its line breaks."""
    return f"<p>{escape(text).replace(chr(10), '<br>')}</p>" if text else ""


def html_of(message: Mapping[str, Any]) -> str:
    text = text_of(message.get("content") or ())
    if not text:
        return ""
    return render_markdown(text) if message.get("role") == "assistant" else as_typed(text)


async def with_html(messages: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages with the HTML of their texts and reports, and with readable arguments of their calls.

    The HTML is rendered in a worker thread.
    """
    return await run_in_thread(lambda: [_message_with_html(message) for message in messages])


async def with_report_html(starts: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return `turn_start` events with the HTML of their reports, rendered in a worker thread."""
    return await run_in_thread(
        lambda: [
            {**start, "reports": [_report_with_html(report) for report in start["reports"]]}
            for start in starts
        ]
    )


def _message_with_html(message: Mapping[str, Any]) -> dict[str, Any]:
    content = [
        {**block, "sub_agent": _report_with_html(block["sub_agent"])}
        if block.get("sub_agent")
        else {**block, "arguments": wire.arguments_of(block["input"])}
        if block.get("type") == "tool_use"
        else block
        for block in message.get("content") or ()
    ]
    return {**message, "content": content, "html": html_of(message)}


def _report_with_html(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return a report with its HTML. Its text is Markdown, like an answer."""
    return {**report, "html": render_markdown(str(report.get("text", "")))}
