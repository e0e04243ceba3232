"""Exports a conversation as a file: JSON for programs, Markdown for people."""

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from django.template.defaultfilters import filesizeformat
from django.utils.translation import gettext as _

from governance import CallStatus, CancelSource
from governance.durations import format_duration
from governance.labels import ENDED_SINCE, call_statuses, cancel_reasons
from turns.selectors.translations import sentence, turn_status

Json = dict[str, Any]
_FENCE = re.compile(r"`{3,}")
_MAY_STAY_OPEN = re.compile(r"```|~~~|<")
_HTML_ENDS = (  # the start of an HTML block that a blank line does not end, and its end
    ("<!--", "-->"),
    ("<?", "?>"),
    ("<![cdata[", "]]>"),
    ("<!", ">"),
    ("<script", "</script>"),
    ("<pre", "</pre>"),
    ("<style", "</style>"),
    ("<textarea", "</textarea>"),
)


def as_json(export: Json) -> str:
    return json.dumps(export, indent=2, ensure_ascii=False)


def as_markdown(export: Json) -> str:
    """Return the export as a document, without replaced or withdrawn messages.

    Tool output is fenced so that no text in it can close the fence. A code block that a message leaves open is closed.
    """
    title = " ".join(str(export["title"]).split()) or _("Conversation")
    parts = [f"# {title}", _("Exported at %(at)s") % {"at": export["exported_at"]}]
    for turn in export["turns"]:
        if turn["replaced_by"] is None and turn["ended_by_source"] != CancelSource.WITHDRAWN:
            parts += _turn(turn)
    return "\n\n".join(parts) + "\n"


def _beginning(turn: Json) -> Iterator[str]:
    if turn["summary"]:
        yield f"## {_('Summary of the oldest messages')}"
        yield _fenced(turn["summary"], "text")
    if not turn["messages"]:  # the turn ended before it started
        yield f"## {_('You')} · {turn['queued_at']}"
        yield from map(_file, turn["attachments"])
        yield _closed(turn["user_message"])


def _turn(turn: Json) -> Iterator[str]:
    calls = {call["tool_id"]: call for call in turn["calls"]}
    author = turn["agent"] or _("Agent")
    yield from _beginning(turn)
    for message in turn["messages"]:
        name = _("You") if message["role"] == "user" else author
        yield f"## {name} · {message['at']}"
        if thoughts := message.get("thoughts"):
            took = format_duration(max(round(thoughts["duration_ms"], -3), 1000))
            yield f"### {_('Thought for %(time)s') % {'time': took}}"
            yield _fenced(thoughts["text"], "text")
        for block in message["content"]:
            if block["type"] == "text":
                yield _closed(block["text"])
            elif block["type"] in ("image", "document"):
                yield _file(block)
            elif block["type"] == "tool_use" and block["id"] in calls:
                yield from _call(calls[block["id"]])
        if message["interrupted"]:
            yield f"*{_('The answer was cut off here.')}*"
    if turn["status"] != "completed":
        yield f"*{_('Task')}: {_ending(turn)}*"


def _ending(turn: Json) -> str:
    """Return how and why a turn ended, in the reader's language."""
    reason = dict(cancel_reasons()).get(turn["ended_by_reason"], "")
    why = sentence(turn["error_message"]) if turn["error_message"] else str(reason)
    return ": ".join(filter(None, (turn_status(turn["status"]), why)))


def _file(block: Json) -> str:
    """Return a line with the name, type and size of a file. The export does not contain the file itself."""
    return (
        f"*{_('File')}: {block['name']} ({block['media_type']}, {filesizeformat(block['size'])})*"
    )


def _call(call: Json) -> Iterator[str]:
    status = dict(call_statuses()).get(call["status"], call["status"])
    if call["status"] == CallStatus.ABANDONED and call["late"]:
        status = ENDED_SINCE
    yield f"### `{call['tool_name']}` · {status}"
    yield _fenced(json.dumps(call["input"], indent=2, ensure_ascii=False), "json")
    if call.get("result"):
        yield _fenced(call["result"], "text")
    yield from map(_file, call.get("images", []))


def _closed(text: str) -> str:
    """Return the text, and close an open code or HTML block, which would otherwise include the text that follows."""
    if not _MAY_STAY_OPEN.search(text):
        return text
    # Only blocks are parsed, because inline markup does not matter here and is slow for long texts.
    last = _parser().parse(f"{text}\n\n# 1\n")[-1]
    if last.type == "fence":
        return f"{text}\n{last.markup}"
    if last.type == "html_block":
        html = last.content.lstrip().lower()
        return f"{text}\n{next(end for start, end in _HTML_ENDS if html.startswith(start))}"
    return text


@cache
def _parser() -> Any:
    from markdown_it import MarkdownIt  # noqa: PLC0415 - most processes never export

    return MarkdownIt("commonmark").disable("inline")


def _fenced(text: str, language: str) -> str:
    longest = max((len(fence) for fence in _FENCE.findall(text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"
