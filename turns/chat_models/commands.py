"""Commands: the small language of the `local` chat model. What a message means is a function of its text.

Several lines are the calls of one step, and a line `then` begins the next step. An indented line belongs to the line
above.
"""

import json
import re
import textwrap
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from django.utils.translation import gettext
from django.utils.translation import gettext_noop as _

from governance.durations import TooShort, parse_duration

MAX_CALLS_IN_STEP = 64
MAX_STEPS = 200
MAX_REPEATS = 200

_MAX_PREFIXES = 4
_THEN = re.compile(r"^then\b[ \t:,]*", re.IGNORECASE | re.MULTILINE)
# A command, and the lines below it that are indented, blank, or close a brace.
_COMMAND = re.compile(r"^([^ \t\n].*)((?:\n(?:[ \t}\]].*|[^\S\n]*$))*)", re.MULTILINE)
_FILE = r"(?P<path>[^:]*[^:\s])"
_TO_AGENT = r"(?P<agent>\S+)\s+(?P<message>.+)"


class Command(NamedTuple):
    """A row of the language. What follows its word has to match `pattern`, whose groups are the tool's input."""

    example: str  # begins with the word
    tool_name: str  # empty: it is said, or goes before another command
    pattern: str
    meaning: str
    needs: str = ""  # what has to follow the word; empty: nothing


# fmt: off
_ROWS = (
    Command("run ls -l", "exec", r"(?P<command>.+)", _("run a shell command in the workspace"), _("a shell command")),
    Command("read notes.txt", "read_file", r"(?P<path>.+)", _("show a file"), _("a file")),
    Command("list", "list_files", r"(?P<path>.+)?", _("list a directory: `list`, `list src`")),
    Command("write notes.txt: Buy milk", "write_file", rf"{_FILE}\s*:[^\S\n]*\n?(?P<content>.*)", _("write a file"), _("a file and a text")),
    Command("edit notes.txt: milk => bread", "edit_file", rf"{_FILE}\s*+:(?!\s*+=>)\s*+(?P<old>.*?\S)\s*=>\s*(?P<new>.*)",
        _("replace a text in a file"), _("a file, the old and the new text")),
    Command("fetch https://example.org/", "web_fetch", r"(?P<url>.+)", _("show a page of the web"), _("an address")),
    Command("wait 20", "wait", r"(?P<time>[\d.]+\s*[a-z]*)", _("let 20 seconds pass"), _("a number of seconds")),
    Command("ask assistant run date", "sessions_ask", _TO_AGENT,
        _("let another agent do it, and wait for its answer"), _("an agent and a message")),
    Command("spawn assistant wait 60", "sessions_spawn", _TO_AGENT,
        _("let another agent do it, and get its report later"), _("an agent and a message")),
    Command("status", "session_status", "", _("say how the calls of this conversation went")),
    Command("say Hello", "", r"(?P<text>.+)", _("say something"), _("a text")),
    Command("slowly One two three", "", r"(?P<text>.+)", _("say it word by word, so that you can cancel it"), _("a text")),
    Command('call wait {"seconds": 3}', "", r"(?P<tool>[\w.:-]+)(?:\s+(?P<arguments>\{.*))?",
        _("call any tool with its arguments as JSON"), _("a tool and its arguments as JSON")),
    Command("within 5s run sleep 60", "", r"(?P<time>[\d.]+\s*[a-z]+)\s+(?P<rest>\S.*)",
        _("give a call a limit of its own (ms, s, min)"), _("a time (ms, s or min) and a command")),
    Command("repeat 5 run date", "", r"(?P<count>\d{1,9})\s+(?P<rest>\S.*)",
        _("do the same again, one step after the other"), _("a number and a command")),
)
# fmt: on
COMMANDS = {row.example.split()[0]: row for row in _ROWS}


class Slowly(str):
    """Something to say word by word, so that a person can watch it."""

    __slots__ = ()


class Call(NamedTuple):
    """A tool call to make, in each of so many steps."""

    tool_name: str
    input: Mapping[str, Any]
    times: int = 1


class Answer(NamedTuple):
    """One answer before it is streamed: what is said, then what is called side by side."""

    texts: tuple[str, ...]
    calls: tuple[Call, ...] = ()
    step: int = 1


class CommandProblem(ValueError):
    """A line is no command, or lacks something: a sentence for the person."""

    def __init__(self, sentence: str, **values: object) -> None:
        super().__init__(gettext(sentence) % values)


@lru_cache(maxsize=32)  # each step of a turn asks anew
def parse(text: str) -> tuple[Answer, ...]:
    """Return the answers to a message, the last without calls; none if it does not begin with a command.

    One faulty line raises `CommandProblem`: nothing is done by halves.
    """
    answers: list[Answer] = []
    said: tuple[str, ...] = ()
    if _keyword(text) not in COMMANDS:
        return ()
    for group in _groups(text):
        # An answer without calls ends a turn, so lone speech waits for the next calls.
        said += tuple(each for each in group if isinstance(each, str))
        calls = [each for each in group if isinstance(each, Call)]
        if len(calls) > MAX_CALLS_IN_STEP:
            problem = _(
                "At most %(max)d calls can run side by side; put a line `then` between them."
            )
            raise CommandProblem(problem, max=MAX_CALLS_IN_STEP)
        for number in range(max((call.times for call in calls), default=0)):
            due = tuple(call for call in calls if call.times > number)
            answers.append(Answer(said, due, step=len(answers) + 1))
            said = ()
        if len(answers) > MAX_STEPS:
            raise CommandProblem(_("At most %(max)d steps can be asked for."), max=MAX_STEPS)
    return (*answers, Answer(said))


def _groups(text: str) -> Iterator[list[Call | str]]:
    """Yield the commands of each step; the lines that belong to one lose their common indentation."""
    lines = "\n".join(textwrap.dedent(text).strip().splitlines())
    for group in _THEN.split(lines):
        found = _COMMAND.findall(group.strip())
        yield [read(head.strip() + textwrap.dedent(below).rstrip()) for head, below in found]


def read(command: str, *, prefixes: int = 0) -> Call | str:
    """Read one command with the prefixes before it: a call, or what is to be said."""
    word, found = _match(command)
    match word:
        case "say":
            return str(found["text"])
        case "slowly":
            return Slowly(found["text"])
        case "call":
            return Call(found["tool"], _arguments(found))
        case "wait":
            return Call("wait", {"seconds": _milliseconds(word, found["time"]) / 1000})
        case "within" | "repeat":
            return _prefixed(word, found, prefixes=prefixes + 1)
    given = {name: text for name, text in found.items() if text is not None}
    return Call(COMMANDS[word].tool_name, given)


def _prefixed(word: str, found: Mapping[str, str], *, prefixes: int) -> Call:
    """Return the call behind a prefix, with a limit of its own or so many times."""
    if prefixes > _MAX_PREFIXES:
        raise _lack(word)
    limit_ms = _milliseconds(word, found["time"]) if word == "within" else 0
    call = read(found["rest"], prefixes=prefixes)
    if isinstance(call, str):
        raise CommandProblem(
            _("`%(prefix)s` goes before a command that calls a tool."), prefix=word
        )
    if word == "within":
        meta = call.input.get("_meta")
        kept = meta if isinstance(meta, Mapping) else {}
        return call._replace(input={**call.input, "_meta": {**kept, "timeout_ms": limit_ms}})
    times = call.times * int(found["count"])
    if not 1 <= times <= MAX_REPEATS:
        raise CommandProblem(_("`repeat` takes a number from 1 to %(max)d."), max=MAX_REPEATS)
    return call._replace(times=times)


def _match(command: str) -> tuple[str, dict[str, Any]]:
    """Return the word of a command, and what follows it by the groups of its pattern."""
    word = _keyword(command)
    if word not in COMMANDS:
        line = textwrap.shorten(command, 60, placeholder=" …").replace("`", "'")
        raise CommandProblem(_("The line `%(line)s` is not a command."), line=line)
    rest = command[len(word) :].strip()
    found = re.fullmatch(COMMANDS[word].pattern, rest, re.IGNORECASE | re.DOTALL)
    if found is None:
        raise _lack(word)
    return word, found.groupdict()


def _lack(word: str) -> CommandProblem:
    row = COMMANDS[word]
    if not row.needs:
        return CommandProblem(_("`%(word)s` stands alone."), word=word)
    problem = _("`%(word)s` needs %(needs)s: `%(example)s`.")
    return CommandProblem(problem, word=word, needs=gettext(row.needs), example=row.example)


def _milliseconds(word: str, time: str) -> int:
    """Return a time, of seconds where it has no unit. One above zero stays so: zero is no limit."""
    try:
        return parse_duration(time if time[-1].isalpha() else f"{time}s")
    except TooShort:
        return 1
    except ValueError:
        raise _lack(word) from None


def _arguments(found: Mapping[str, str | None]) -> Any:
    try:
        return json.loads(found["arguments"] or "{}")
    except (ValueError, RecursionError):
        problem = _("The arguments of `call %(tool)s` are not valid JSON.")
        raise CommandProblem(problem, tool=found["tool"]) from None


def _keyword(text: str) -> str:
    return (text.split(maxsplit=1) or [""])[0].lower()
