"""Commands: the small language of the `local` chat model. What a message means is a function of its text.

Several lines are the calls of one step, a line `then` begins the next. An indented line belongs to the one above.
"""

import json
import re
import textwrap
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import repeat, zip_longest
from typing import Any, NamedTuple

from django.utils.translation import gettext
from django.utils.translation import gettext_noop as _

from governance.durations import TooShort, parse_duration
from turns.core.chat_model import TextDelta, ToolCallDelta

MAX_CALLS_IN_STEP = 64
MAX_STEPS = MAX_REPEATS = 200
_MAX_PREFIXES = 4
_THEN = re.compile(r"^then\b[ \t:,]*", re.IGNORECASE | re.MULTILINE)
# A command, and the lines below it that are indented, blank, or close a brace.
_COMMAND = re.compile(r"^([^ \t\n].*)((?:\n(?:[ \t}\]].*|[^\S\n]*$))*)", re.MULTILINE)
_WORD = re.compile(r"[^ ]* |[^ ]+")
_PIECE = re.compile(r".{1,24}", re.DOTALL)
_FILE = r"(?P<path>[^:]*[^:\s])"
_TO_AGENT = r"(?P<agent>\S+)\s+(?P<message>.+)"
_TOO_MANY_CALLS = _("At most %(max)d calls can run side by side; put a line `then` between them.")


class CommandProblem(ValueError):
    """A line is no command, or lacks something: a sentence for the person. Nothing is done by halves."""

    def __init__(self, sentence: str, **values: object) -> None:
        super().__init__(gettext(sentence) % values)


class Command(NamedTuple):
    """A row of the language. What follows its word has to match `pattern`, whose groups are the tool's input."""

    example: str  # begins with the word
    tool_name: str  # empty: it is said, or goes before another command
    pattern: str
    meaning: str
    needs: str = ""  # what has to follow the word
    problem: str = _("`%(word)s` needs %(needs)s: `%(example)s`.")

    def mismatch(self) -> CommandProblem:
        word, needs = self.example.split()[0], gettext(self.needs)
        return CommandProblem(self.problem, word=word, needs=needs, example=self.example)


COMMANDS = {row.example.split()[0]: row for row in (
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
    Command("status", "session_status", "", _("say how the calls of this conversation went"), problem=_("`%(word)s` stands alone.")),
    Command("say Hello", "", r"(?P<text>.+)", _("say something"), _("a text")),
    Command("slowly One two three", "", r"(?P<text>.+)", _("say it word by word, so that you can cancel it"), _("a text")),
    Command('call wait {"seconds": 3}', "", r"(?P<tool>[\w.:-]+)(?:\s+(?P<arguments>\{.*))?",
        _("call any tool with its arguments as JSON"), _("a tool and its arguments as JSON")),
    Command("within 5s run sleep 60", "", r"(?P<time>[\d.]+\s*[a-z]+)\s+(?P<rest>\S.*)",
        _("give a call a limit of its own (ms, s, min)"), _("a time (ms, s or min) and a command")),
    Command("repeat 5 run date", "", r"(?P<count>\d{1,9})\s+(?P<rest>\S.*)",
        _("do the same again, one step after the other"), _("a number and a command")),
)}  # fmt: skip


class Slowly(str):
    """Something to say word by word, so that a person can watch it."""


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

    def deltas(self) -> Iterator[tuple[TextDelta | ToolCallDelta, bool]]:
        """Yield it in pieces, as providers do, and whether somebody is to watch the piece."""
        for place, text in enumerate(self.texts):
            if place:
                yield TextDelta("\n\n"), False
            is_slow = isinstance(text, Slowly)
            for piece in (_WORD if is_slow else _PIECE).findall(text):
                yield TextDelta(piece), is_slow
        for index, call in enumerate(self.calls):
            call_id = f"call_{self.step}_{index + 1}"
            yield ToolCallDelta(index=index, id=call_id, name=call.tool_name), False
            for piece in _PIECE.findall(json.dumps(call.input, ensure_ascii=False)):
                yield ToolCallDelta(index=index, arguments=piece), False


@lru_cache(maxsize=32)  # each step of a turn asks anew
def parse(text: str) -> tuple[Answer, ...]:
    """Return the answers to a message, the last without calls; none if it does not begin with a command."""
    if (text.split(maxsplit=1) or [""])[0].lower() not in COMMANDS:
        return ()
    answers: list[Answer] = []
    said: tuple[str, ...] = ()
    for group in _THEN.split("\n".join(textwrap.dedent(text).strip().splitlines())):
        found = _COMMAND.findall(group.strip())
        commands = [read(head.strip() + textwrap.dedent(below).rstrip()) for head, below in found]
        calls = [each for each in commands if isinstance(each, Call)]
        # An answer without calls ends a turn, so lone speech waits for the next calls.
        said += tuple(each for each in commands if isinstance(each, str))
        if len(calls) > MAX_CALLS_IN_STEP:
            raise CommandProblem(_TOO_MANY_CALLS, max=MAX_CALLS_IN_STEP)
        for due in zip_longest(*(repeat(call, call.times) for call in calls)):
            answers.append(Answer(said, tuple(filter(None, due)), step=len(answers) + 1))
            said = ()
        if len(answers) > MAX_STEPS:
            raise CommandProblem(_("At most %(max)d steps can be asked for."), max=MAX_STEPS)
    return (*answers, Answer(said))


def read(command: str, *, prefixes: int = 0) -> Call | str:
    """Read one command with the prefixes before it: a call, or what is to be said."""
    word, *rest = command.split(maxsplit=1)
    word = word.lower()
    if word not in COMMANDS:
        line = textwrap.shorten(command, 60, placeholder=" …").replace("`", "'")
        raise CommandProblem(_("The line `%(line)s` is not a command."), line=line)
    found = re.fullmatch(COMMANDS[word].pattern, "".join(rest), re.IGNORECASE | re.DOTALL)
    if found is None:
        raise COMMANDS[word].mismatch()
    given = {name: text for name, text in found.groupdict().items() if text is not None}
    match word:
        case "say" | "slowly":
            return Slowly(given["text"]) if word == "slowly" else given["text"]
        case "call":
            try:
                return Call(given["tool"], json.loads(given.get("arguments", "{}")))
            except (ValueError, RecursionError):
                problem = _("The arguments of `call %(tool)s` are not valid JSON.")
                raise CommandProblem(problem, tool=given["tool"]) from None
        case "wait":
            return Call("wait", {"seconds": _milliseconds(word, given["time"]) / 1000})
        case "within" | "repeat":
            return _prefixed(word, given, prefixes=prefixes + 1)
    return Call(COMMANDS[word].tool_name, given)


def _prefixed(word: str, given: Mapping[str, str], *, prefixes: int) -> Call:
    if prefixes > _MAX_PREFIXES:
        raise COMMANDS[word].mismatch()
    limit_ms = _milliseconds(word, given["time"]) if word == "within" else 0
    call = read(given["rest"], prefixes=prefixes)
    if isinstance(call, str):
        problem = _("`%(prefix)s` goes before a command that calls a tool.")
        raise CommandProblem(problem, prefix=word)
    if word == "within":
        meta = call.input.get("_meta")
        kept = meta if isinstance(meta, Mapping) else {}
        return call._replace(input={**call.input, "_meta": {**kept, "timeout_ms": limit_ms}})
    times = call.times * int(given["count"])
    if not 1 <= times <= MAX_REPEATS:
        raise CommandProblem(_("`repeat` takes a number from 1 to %(max)d."), max=MAX_REPEATS)
    return call._replace(times=times)


def _milliseconds(word: str, time: str) -> int:
    """Return a time, of seconds where it has no unit. One above zero stays so: zero is no limit."""
    try:
        return parse_duration(time if time[-1].isalpha() else f"{time}s")
    except TooShort:
        return 1
    except ValueError:
        raise COMMANDS[word].mismatch() from None
