"""A conversation as a file that its owner keeps: JSON for programs, Markdown for people."""

import json
import re
from collections.abc import Iterator
from typing import Any

from django.template.defaultfilters import filesizeformat
from django.utils.translation import gettext as _

from governance import CallStatus
from governance.labels import ENDED_SINCE, call_statuses, cancel_reasons
from turns.selectors.translations import sentence, turn_status

Json = dict[str, Any]
_FENCE = re.compile(r"`{3,}")


def as_json(export: Json) -> str:
    return json.dumps(export, indent=2, ensure_ascii=False)


def as_markdown(export: Json) -> str:
    """Return the export as a document, without the turns that another message has replaced.

    What tools have said stands in fences, which no text in them can close.
    """
    title = " ".join(str(export["title"]).split()) or _("Conversation")
    parts = [f"# {title}", _("Exported at %(at)s") % {"at": export["exported_at"]}]
    for turn in export["turns"]:
        if turn["replaced_by"] is None:
            parts += _turn(turn)
    return "\n\n".join(parts) + "\n"


def _turn(turn: Json) -> Iterator[str]:
    calls = {call["tool_id"]: call for call in turn["calls"]}
    author = turn["agent"] or _("Agent")
    if not turn["messages"]:  # it ended before it began
        yield f"## {_('You')} · {turn['queued_at']}"
        yield from map(_file, turn["attachments"])
        yield turn["user_message"]
    for message in turn["messages"]:
        name = _("You") if message["role"] == "user" else author
        yield f"## {name} · {message['at']}"
        for block in message["content"]:
            if block["type"] == "text":
                yield block["text"]
            elif block["type"] in ("image", "document"):
                yield _file(block)
            elif block["type"] == "tool_use" and block["id"] in calls:
                yield from _call(calls[block["id"]])
        if message["interrupted"]:
            yield f"*{_('The answer was cut off here.')}*"
    if turn["status"] != "completed":
        yield f"*{_('Turn')}: {_ending(turn)}*"


def _ending(turn: Json) -> str:
    """How a turn ended, and why, in the words of the reader."""
    reason = dict(cancel_reasons()).get(turn["ended_by_reason"], "")
    why = sentence(turn["error_message"]) if turn["error_message"] else str(reason)
    return ": ".join(filter(None, (turn_status(turn["status"]), why)))


def _file(block: Json) -> str:
    """A file by its name: the export does not hold it."""
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


def _fenced(text: str, language: str) -> str:
    longest = max((len(fence) for fence in _FENCE.findall(text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"
