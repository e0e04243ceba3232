"""Commands: the small language of the `local` chat model, one command at a time; pure functions of the text."""

import json
import re
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from governance.durations import limit_ms

MAX_REPEATS = 200

_MAX_PREFIXES = 4
_UNITS_MS = {
    "ms": 1,
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1_000),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60_000),
}
_AMOUNT = rf"(?P<amount>\d{{1,9}}(?:\.\d{{1,9}})?)\s*(?P<unit>{'|'.join(_UNITS_MS)})"


class Command(NamedTuple):
    """A row of the language. The groups of `pattern`, which what follows the word has to match, are the tool's input."""

    tool_name: str  # empty: it is said, or goes before another command
    pattern: str
    example: str
    meaning: str
    needs: str = ""  # what has to follow the word; empty: nothing


# fmt: off
COMMANDS: Mapping[str, Command] = {
    "run": Command("exec", r"(?P<command>.+)", "run ls -l",
        gettext_noop("run a shell command in the workspace"), gettext_noop("a shell command")),
    "read": Command("read_file", r"(?P<path>.+)", "read notes.txt",
        gettext_noop("show a file"), gettext_noop("a file")),
    "list": Command("list_files", r"(?P<path>.+)?", "list",
        gettext_noop("list a directory: `list`, `list src`")),
    "write": Command("write_file", r"(?P<path>[^:]*[^:\s])\s*:(?P<content>.*)", "write notes.txt: Buy milk",
        gettext_noop("write a file"), gettext_noop("a file and a text")),
    "edit": Command("edit_file", r"(?P<path>[^:]*[^:\s])\s*+:(?!\s*+=>)\s*+(?P<old>.*?\S)\s*=>\s*(?P<new>.*)",
        "edit notes.txt: milk => bread",
        gettext_noop("replace a text in a file"), gettext_noop("a file, the old and the new text")),
    "fetch": Command("web_fetch", r"(?P<url>.+)", "fetch https://example.org/",
        gettext_noop("show a page of the web"), gettext_noop("an address")),
    "wait": Command("wait", f"{_AMOUNT}?", "wait 20",
        gettext_noop("let 20 seconds pass"), gettext_noop("a number of seconds")),
    "ask": Command("sessions_ask", r"(?P<agent>\S+)\s+(?P<message>.+)", "ask assistant run date",
        gettext_noop("let another agent do it, and wait for its answer"), gettext_noop("an agent and a message")),
    "spawn": Command("sessions_spawn", r"(?P<agent>\S+)\s+(?P<message>.+)", "spawn assistant wait 60",
        gettext_noop("let another agent do it, and get its report later"), gettext_noop("an agent and a message")),
    "status": Command("session_status", "", "status",
        gettext_noop("say how the calls of this conversation went")),
    "say": Command("", r"(?P<text>.+)", "say Hello",
        gettext_noop("say something"), gettext_noop("a text")),
    "slowly": Command("", r"(?P<text>.+)", "slowly One two three",
        gettext_noop("say it word by word, so that you can cancel it"), gettext_noop("a text")),
    "call": Command("", r"(?P<tool>[\w.:-]+)(?:\s+(?P<arguments>\{.*))?", 'call wait {"seconds": 3}',
        gettext_noop("call any tool with its arguments as JSON"), gettext_noop("a tool and its arguments as JSON")),
    "within": Command("", rf"{_AMOUNT}\s+(?P<rest>\S.*)", "within 5s run sleep 60",
        gettext_noop("give a call a limit of its own (ms, s, min)"), gettext_noop("a time (ms, s or min) and a command")),
    "repeat": Command("", r"(?P<count>\d{1,9})\s+(?P<rest>\S.*)", "repeat 5 run date",
        gettext_noop("do the same again, one step after the other"), gettext_noop("a number and a command")),
}
# fmt: on


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCall:
    """A tool call to make."""

    tool_name: str
    input: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Speech:
    """Something to say; `is_slow` = word by word, so that a person can watch it."""

    text: str
    is_slow: bool = False


class CommandProblem(ValueError):
    """A line is no command, or lacks something: a sentence for the person."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """A command that was read; `count` = in how many steps it is done."""

    what: PlannedCall | Speech
    count: int = 1


def is_command(text: str) -> bool:
    """Return whether the text begins with the word of a command."""
    return _keyword(text) in COMMANDS


def read(command: str) -> Item:
    """Read one command with the prefixes before it. Raise `CommandProblem` if it cannot be understood."""
    count, timeout_ms, prefix = 1, None, ""
    for _place in range(_MAX_PREFIXES):
        if _keyword(command) not in {"within", "repeat"}:
            break
        prefix = _keyword(command)
        found = _match(command)
        command = found["rest"]
        if prefix == "within":
            timeout_ms = _milliseconds(found)
        else:
            count = _checked_count(count * int(found["count"]))
    what = _made(command)
    if prefix and isinstance(what, Speech):
        raise CommandProblem(
            _("`%(prefix)s` goes before a command that calls a tool.") % {"prefix": prefix}
        )
    if timeout_ms is not None and isinstance(what, PlannedCall):
        what = _limited(what, timeout_ms=timeout_ms)
    return Item(what=what, count=count)


def _made(command: str) -> PlannedCall | Speech:
    """Return what a command without prefixes makes."""
    word, found = _keyword(command), _match(command)
    if word == "call":
        return PlannedCall(tool_name=found["tool"], input=_arguments(found))
    if word in {"say", "slowly"}:
        return Speech(text=found["text"], is_slow=word == "slowly")
    if not COMMANDS[word].tool_name:
        raise _problem(word)  # one prefix too many
    inputs = {name: text for name, text in found.items() if text is not None}
    if word == "wait":
        inputs = {"seconds": _milliseconds(found) / 1000}
    elif word == "write":
        inputs["content"] = _unwrap(found["content"])
    return PlannedCall(tool_name=COMMANDS[word].tool_name, input=inputs)


def _match(command: str) -> dict[str, Any]:
    """Return what follows the word of a command, by the groups of its pattern."""
    word = _keyword(command)
    if word not in COMMANDS:
        shown = textwrap.shorten(command, 60, placeholder=" …").replace("`", "'")
        raise CommandProblem(_("The line `%(line)s` is not a command.") % {"line": shown})
    rest = command[len(word) :].strip()
    found = re.fullmatch(COMMANDS[word].pattern, rest, re.IGNORECASE | re.DOTALL)
    if found is None:
        raise _problem(word)
    return found.groupdict()


def _problem(word: str) -> CommandProblem:
    row = COMMANDS[word]
    if not row.needs:
        return CommandProblem(_("`%(word)s` stands alone.") % {"word": word})
    said = {"word": word, "needs": _(row.needs), "example": row.example}
    return CommandProblem(_("`%(word)s` needs %(needs)s: `%(example)s`.") % said)


def _checked_count(count: int) -> int:
    if not 1 <= count <= MAX_REPEATS:
        raise CommandProblem(_("`repeat` takes a number from 1 to %(max)d.") % {"max": MAX_REPEATS})
    return count


def _limited(call: PlannedCall, *, timeout_ms: int) -> PlannedCall:
    meta = call.input.get("_meta")
    kept = meta if isinstance(meta, Mapping) else {}
    return replace(call, input={**call.input, "_meta": {**kept, "timeout_ms": timeout_ms}})


def _milliseconds(found: Mapping[str, Any]) -> int:
    return limit_ms(float(found["amount"]) * _UNITS_MS[(found["unit"] or "s").lower()] / 1_000)


def _arguments(found: Mapping[str, Any]) -> Any:
    try:
        return json.loads(found["arguments"] or "{}")
    except (ValueError, RecursionError):
        raise CommandProblem(
            _("The arguments of `call %(tool)s` are not valid JSON.") % {"tool": found["tool"]}
        ) from None


def _unwrap(content: str) -> str:
    """A text may stand behind the colon, or on indented lines below it."""
    head, newline, below = content.partition("\n")
    return f"{head.strip()}{newline}{below}" if head.strip() else below


def _keyword(command: str) -> str:
    return command.split(maxsplit=1)[0].lower()
