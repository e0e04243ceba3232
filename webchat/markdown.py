"""HTML of messages: Markdown rendered, then sanitised; on the event loop only where a thread would take longer.

Only the agent's text is Markdown. What a person typed is shown as typed.
"""

import asyncio
import re
import sys
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from sys import getsizeof
from typing import Any

from django.utils.html import escape

BLOCK = 10_000  # characters rendered at once, so that no answer keeps a thread busy for long
CACHE = 16_000_000  # bytes of blocks that were rendered last, and of their HTML
QUICK = 2_000  # characters of a text that may be rendered on the event loop
QUICK_MARKS = 50  # of them, those that may mean something: each takes up to 10 µs
_RULES = "webchat.markdown_rules"
_MARK = re.compile(r"[^\w ]|_")
# A line in which no character means anything; only the number of a list would.
_PLAIN = re.compile(r"(?!\d+\.(?: |$))[a-zA-Z0-9](?:[a-zA-Z0-9 ,.;:!?']*[a-zA-Z0-9,.;:!?'])?")
_FENCES = ("```", "~~~")  # code is coloured, by modules that are imported when they are first used
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")


def text_of(content: Iterable[Mapping[str, Any]]) -> str:
    return "\n\n".join(
        str(block.get("text", "")) for block in content if block.get("type") == "text"
    )


def render_markdown(text: str) -> str:
    """Return safe HTML: no scripts, no styles, no images, links that open elsewhere and say nothing of us."""
    return "".join(map(rendered.html_of, _blocks(text)))


class RenderedBlocks:
    """The HTML of the blocks that were rendered last, with their text together no larger than `max_bytes`."""

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
    if _PLAIN.fullmatch(text):
        return f"<p>{text}</p>\n"
    from webchat import markdown_rules  # noqa: PLC0415 - most processes that start render nothing

    return markdown_rules.render(text)


def _blocks(text: str) -> Iterator[str]:
    """Yield a long text in pieces, cut between paragraphs if possible, and a long piece of code by lines."""
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
    """Give the lines with their ends; one that is very long in parts."""
    for line in text.splitlines(keepends=True):
        for start in range(0, len(line), BLOCK):
            yield line[start : start + BLOCK]


def fence_after(line: str, fence: str) -> str:
    """Return the line that has begun the code in which the next line stands, empty = it stands in none."""
    found = _FENCE.match(line)
    if found is None:
        return fence
    if not fence:
        if found[1][0] == "`" and "`" in line[found.end() :]:
            return ""  # code in a line of its own
        return line if line.endswith("\n") else f"{line}\n"
    opening = _FENCE.match(fence)
    is_end = opening and found[1].startswith(opening[1]) and not line[found.end() :].strip()
    return "" if is_end else fence


def as_typed(text: str) -> str:
    """Return the text itself as HTML, lines kept."""
    return f"<p>{escape(text).replace(chr(10), '<br>')}</p>" if text else ""


def html_of(message: Mapping[str, Any]) -> str:
    text = text_of(message.get("content") or ())
    if not text:
        return ""
    return render_markdown(text) if message.get("role") == "assistant" else as_typed(text)


def with_html_at_once(message: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a message with its HTML. Return None if rendering it takes longer than asking a thread."""
    content = message.get("content") or ()
    text = text_of(content)
    has_report = any(block.get("sub_agent") for block in content)
    return _message_with_html(message) if _is_quick(text) and not has_report else None


def _is_quick(text: str) -> bool:
    if len(text) > QUICK:
        return False
    if not text or _PLAIN.fullmatch(text):
        return True
    has_few = len(_MARK.findall(text)) <= QUICK_MARKS
    return has_few and _RULES in sys.modules and not any(fence in text for fence in _FENCES)


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
