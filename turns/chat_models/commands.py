"""Commands: the small language of the `local` chat model, one command at a time; pure functions of the text."""

import json
import re
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

MAX_REPEATS = 200

_MAX_PREFIXES = 4
_UNITS_MS: Mapping[str, int] = {
    "ms": 1,
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1_000),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60_000),
}
_AMOUNT = rf"(?P<amount>\d{{1,9}}(?:\.\d{{1,9}})?)\s*(?P<unit>{'|'.join(_UNITS_MS)})"
_WITHIN = re.compile(rf"within\s+{_AMOUNT}\s+(?P<rest>\S.*)", re.IGNORECASE | re.DOTALL)
_REPEAT = re.compile(r"repeat\s+(?P<count>\d{1,9})\s+(?P<rest>\S.*)", re.IGNORECASE | re.DOTALL)
_DURATION = re.compile(rf"{_AMOUNT}?", re.IGNORECASE)
_CALL = re.compile(r"(?P<tool>[\w.:-]+)(?:\s+(?P<arguments>\{.*))?", re.DOTALL)


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
    """Return whether the text begins with the word of a command or of a prefix."""
    word = _word(text)
    return word in _COMMANDS or word in _PREFIXES


def read(command: str) -> Item:
    """Read one command with the prefixes before it. Raise `CommandProblem` if it cannot be understood."""
    count, timeout_ms, prefix = 1, None, ""
    for _place in range(_MAX_PREFIXES):
        match = _WITHIN.fullmatch(command) or _REPEAT.fullmatch(command)
        if match is None:
            break
        prefix, command = _word(command), match["rest"]
        if prefix == "within":
            timeout_ms = _milliseconds(match)
        else:
            count = _checked_count(count * int(match["count"]))
    what = _read_bare(command)
    if prefix and isinstance(what, Speech):
        raise CommandProblem(
            _("`%(prefix)s` goes before a command that calls a tool.") % {"prefix": prefix}
        )
    if timeout_ms is not None and isinstance(what, PlannedCall):
        what = _limited(what, timeout_ms=timeout_ms)
    return Item(what=what, count=count)


def _read_bare(command: str) -> PlannedCall | Speech:
    word = _word(command)
    if word in _PREFIXES:
        raise CommandProblem(_(_PREFIXES[word]))
    reader = _COMMANDS.get(word)
    if reader is None:
        shown = textwrap.shorten(command, 60, placeholder=" …").replace("`", "'")
        raise CommandProblem(_("The line `%(line)s` is not a command.") % {"line": shown})
    return reader(command[len(word) :].strip())


def _checked_count(count: int) -> int:
    if not 1 <= count <= MAX_REPEATS:
        raise CommandProblem(_("`repeat` takes a number from 1 to %(max)d.") % {"max": MAX_REPEATS})
    return count


def _limited(call: PlannedCall, *, timeout_ms: int) -> PlannedCall:
    """Give the call a limit of its own (A3)."""
    meta = call.input.get("_meta")
    kept = meta if isinstance(meta, Mapping) else {}
    return replace(call, input={**call.input, "_meta": {**kept, "timeout_ms": timeout_ms}})


def _milliseconds(match: re.Match[str]) -> int:
    return round(float(match["amount"]) * _UNITS_MS[(match["unit"] or "s").lower()])


def _word(command: str) -> str:
    return command.split(maxsplit=1)[0].lower()


def _needed(text: str, problem: str) -> str:
    if not text:
        raise CommandProblem(problem)
    return text


def _run(rest: str) -> PlannedCall:
    command = _needed(rest, _("`run` needs a shell command: `run ls -l`."))
    return PlannedCall(tool_name="exec", input={"command": command})


def _fetch(rest: str) -> PlannedCall:
    url = _needed(rest, _("`fetch` needs an address: `fetch https://example.org/`."))
    return PlannedCall(tool_name="web_fetch", input={"url": url})


def _read_file(rest: str) -> PlannedCall:
    path = _needed(rest, _("`read` needs a file: `read notes.txt`."))
    return PlannedCall(tool_name="read_file", input={"path": path})


def _list(rest: str) -> PlannedCall:
    return PlannedCall(tool_name="list_files", input={"path": rest} if rest else {})


def _write(rest: str) -> PlannedCall:
    path, colon, content = rest.partition(":")
    if not (path.strip() and colon):
        raise CommandProblem(_("`write` needs a file and a text: `write notes.txt: Buy milk`."))
    return PlannedCall(
        tool_name="write_file", input={"path": path.strip(), "content": _unwrap(content)}
    )


def _edit(rest: str) -> PlannedCall:
    path, _colon, change = rest.partition(":")
    old, arrow, new = change.partition("=>")
    if not (path.strip() and arrow and old.strip()):
        raise CommandProblem(
            _("`edit` needs a file, the old and the new text: `edit notes.txt: milk => bread`.")
        )
    inputs = {"path": path.strip(), "old": old.strip(), "new": new.strip()}
    return PlannedCall(tool_name="edit_file", input=inputs)


def _wait(rest: str) -> PlannedCall:
    match = _DURATION.fullmatch(rest) if rest else None
    if match is None:
        raise CommandProblem(_("`wait` needs a number of seconds: `wait 20`."))
    return PlannedCall(tool_name="wait", input={"seconds": _milliseconds(match) / 1000})


def _status(rest: str) -> PlannedCall:
    if rest:
        raise CommandProblem(_("`status` stands alone."))
    return PlannedCall(tool_name="session_status")


def _ask(rest: str) -> PlannedCall:
    return _set_to_work(rest, tool="sessions_ask", word="ask")


def _spawn(rest: str) -> PlannedCall:
    return _set_to_work(rest, tool="sessions_spawn", word="spawn")


def _set_to_work(rest: str, *, tool: str, word: str) -> PlannedCall:
    agent, message = (*rest.split(maxsplit=1), "", "")[:2]
    if not message:
        example = f"{word} assistant run date"
        raise CommandProblem(
            _("`%(word)s` needs an agent and a message: `%(example)s`.")
            % {"word": word, "example": example}
        )
    return PlannedCall(tool_name=tool, input={"agent": agent, "message": message})


def _call(rest: str) -> PlannedCall:
    match = _CALL.fullmatch(rest)
    if match is None:
        raise CommandProblem(
            _('`call` needs a tool and its arguments as JSON: `call wait {"seconds": 3}`.')
        )
    try:
        arguments = json.loads(match["arguments"] or "{}")
    except (ValueError, RecursionError):
        raise CommandProblem(
            _("The arguments of `call %(tool)s` are not valid JSON.") % {"tool": match["tool"]}
        ) from None
    return PlannedCall(tool_name=match["tool"], input=arguments)


def _say(rest: str) -> Speech:
    return Speech(text=_needed(rest, _("`say` needs a text: `say Hello`.")))


def _slowly(rest: str) -> Speech:
    return Speech(text=_needed(rest, _("`slowly` needs a text: `slowly Hello`.")), is_slow=True)


def _unwrap(content: str) -> str:
    """A text may stand behind the colon, or on indented lines below it."""
    head, newline, below = content.partition("\n")
    return f"{head.strip()}{newline}{below}" if head.strip() else below


_PREFIXES: Mapping[str, str] = {
    "within": gettext_noop(
        "`within` needs a time and a command: `within 5s run sleep 60` (ms, s or min)."
    ),
    "repeat": gettext_noop("`repeat` needs a number and a command: `repeat 3 run date`."),
}
_COMMANDS: Mapping[str, Callable[[str], PlannedCall | Speech]] = {
    "run": _run,
    "fetch": _fetch,
    "read": _read_file,
    "list": _list,
    "write": _write,
    "edit": _edit,
    "wait": _wait,
    "status": _status,
    "ask": _ask,
    "spawn": _spawn,
    "call": _call,
    "say": _say,
    "slowly": _slowly,
}
