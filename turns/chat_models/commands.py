"""Commands: the small language of the `local` chat model. The meaning of a message depends on its text alone.

The commands on several lines are the calls of one step, and a line `then` begins the next step. An indented line
belongs to the line above it.
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
from turns.core.chat_model import TextDelta, ThinkingDelta, ToolCallDelta
from turns.core.messages import RepeatedName, unique_names

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
_TOO_MANY_CALLS = _("At most %(max)d calls can run in parallel. Put a `then` line between them.")


class CommandProblem(ValueError):
    """A line is not a command, or is incomplete. The text is shown to the person; no command of the message runs."""

    def __init__(self, sentence: str, **values: object) -> None:
        super().__init__(gettext(sentence) % values)


class Command(NamedTuple):
    """A command. The text after its word must match `pattern`, whose groups are the tool's input."""

    example: str  # begins with the word
    tool_name: str  # empty for text to stream, and for prefixes of another command
    pattern: str
    meaning: str
    needs: str = ""  # describes what must follow the word
    problem: str = _("`%(word)s` needs %(needs)s: `%(example)s`.")

    def mismatch(self) -> CommandProblem:
        word, needs = self.example.split()[0], gettext(self.needs)
        return CommandProblem(self.problem, word=word, needs=needs, example=self.example)


COMMANDS = {row.example.split()[0]: row for row in (
    Command("run ls -l", "exec", r"(?P<command>.+)", _("run a shell command in the workspace"), _("a shell command")),
    Command("read notes.txt", "read_file", r"(?P<path>.+)", _("show a file"), _("a file")),
    Command("list", "list_files", r"(?P<path>.+)?", _("list a directory: `list`, `list src`")),
    Command("write notes.txt: Buy milk", "write_file", rf"{_FILE}\s*:[^\S\n]*\n?(?P<content>.*)", _("write a file"), _("a file name and some text")),
    Command("edit notes.txt: milk => bread", "edit_file", rf"{_FILE}\s*+:(?!\s*+=>)\s*+(?P<old>.*?\S)\s*=>\s*(?P<new>.*)",
        _("replace text in a file"), _("a file, the old and the new text")),
    Command("fetch https://example.org/", "web_fetch", r"(?P<url>.+)", _("show a web page"), _("an address")),
    Command("wait 20", "wait", r"(?P<time>[\d.]+\s*[a-z]*)", _("wait for 20 seconds"), _("a number of seconds")),
    Command("ask assistant run date", "sessions_ask", _TO_AGENT,
        _("ask another agent and wait for its answer"), _("an agent and a message")),
    Command("spawn assistant wait 60", "sessions_spawn", _TO_AGENT,
        _("start another agent and get its report later"), _("an agent and a message")),
    Command("status", "session_status", "", _("show how the calls of this task ended"), problem=_("`%(word)s` takes no arguments.")),
    Command("say Hello", "", r"(?P<text>.+)", _("answer with the given text"), _("some text")),
    Command("slowly One two three", "", r"(?P<text>.+)", _("answer word by word, slowly enough to cancel it"), _("some text")),
    Command("think Let me see", "", r"(?P<text>.+)", _("show thoughts word by word before the answer"), _("some text")),
    Command('call wait {"seconds": 3}', "", r"(?P<tool>[\w.:-]+)(?:\s+(?P<arguments>\{.*))?",
        _("call any tool with its arguments as JSON"), _("a tool and its arguments as JSON")),
    Command("within 5s run sleep 60", "", r"(?P<time>[\d.]+\s*[a-z]+)\s+(?P<rest>\S.*)",
        _("set the time limit of a call (ms, s, min)"), _("a time (ms, s or min) and a command")),
    Command("repeat 5 run date", "", r"(?P<count>\d{1,9})\s+(?P<rest>\S.*)",
        _("repeat a command, one step after another"), _("a number and a command")),
)}  # fmt: skip


class Slowly(str):
    """A text that is streamed slowly, word by word, so that people can watch it arrive."""


class Thought(Slowly):
    """A text that is streamed as thinking."""


class Call(NamedTuple):
    """A tool call, and the number of steps in which to repeat it."""

    tool_name: str
    input: Mapping[str, Any]
    times: int = 1


class Answer(NamedTuple):
    """One answer before it is streamed: its texts, then its calls, which run in parallel."""

    texts: tuple[str, ...]
    calls: tuple[Call, ...] = ()
    step: int = 1

    def deltas(self) -> Iterator[tuple[TextDelta | ThinkingDelta | ToolCallDelta, bool]]:
        """Yield the answer in pieces, as providers do, each with a flag that says whether to stream the piece
        slowly.
        """
        for kind, texts in (
            (ThinkingDelta, [text for text in self.texts if isinstance(text, Thought)]),
            (TextDelta, [text for text in self.texts if not isinstance(text, Thought)]),
        ):
            for index, text in enumerate(texts):
                if index:
                    yield kind("\n\n"), False
                is_slow = isinstance(text, Slowly)
                for piece in (_WORD if is_slow else _PIECE).findall(text):
                    yield kind(piece), is_slow
        for index, call in enumerate(self.calls):
            call_id = f"call_{self.step}_{index + 1}"
            yield ToolCallDelta(index=index, id=call_id, name=call.tool_name), False
            for piece in _PIECE.findall(json.dumps(call.input, ensure_ascii=False)):
                yield ToolCallDelta(index=index, arguments=piece), False


@lru_cache(maxsize=32)  # each step of a turn parses the message again
def parse(text: str) -> tuple[Answer, ...]:
    """Return the answers to a message, the last one without calls; empty if the message does not begin with a command."""
    if (text.split(maxsplit=1) or [""])[0].lower() not in COMMANDS:
        return ()
    answers: list[Answer] = []
    texts: tuple[str, ...] = ()
    for group in _THEN.split("\n".join(textwrap.dedent(text).strip().splitlines())):
        commands = [
            read(line.strip() + textwrap.dedent(indented).rstrip())
            for line, indented in _COMMAND.findall(group.strip())
        ]
        calls = [each for each in commands if isinstance(each, Call)]
        # An answer without calls ends the turn, so texts without calls are kept for the next answer.
        texts += tuple(each for each in commands if isinstance(each, str))
        if len(calls) > MAX_CALLS_IN_STEP:
            raise CommandProblem(_TOO_MANY_CALLS, max=MAX_CALLS_IN_STEP)
        for due in zip_longest(*(repeat(call, call.times) for call in calls)):
            answers.append(Answer(texts, tuple(filter(None, due)), step=len(answers) + 1))
            texts = ()
        if len(answers) > MAX_STEPS:
            raise CommandProblem(_("A message can have at most %(max)d steps."), max=MAX_STEPS)
    return (*answers, Answer(texts))


def read(command: str, *, prefixes: int = 0) -> Call | str:
    """Return the call of one command with its prefixes, or the text with which to answer it."""
    word, *rest = command.split(maxsplit=1)
    word = word.lower()
    if word not in COMMANDS:
        line = textwrap.shorten(command, 60, placeholder=" …").replace("`", "'")
        raise CommandProblem(_("The line `%(line)s` is not a command."), line=line)
    matched = re.fullmatch(COMMANDS[word].pattern, "".join(rest), re.IGNORECASE | re.DOTALL)
    if matched is None:
        raise COMMANDS[word].mismatch()
    groups = {name: text for name, text in matched.groupdict().items() if text is not None}
    match word:
        case "say" | "slowly" | "think":
            return {"say": str, "slowly": Slowly, "think": Thought}[word](groups["text"])
        case "call":
            try:
                arguments = json.loads(
                    groups.get("arguments", "{}"), object_pairs_hook=unique_names
                )
                return Call(groups["tool"], arguments)
            except RepeatedName as error:
                problem = _("The arguments of `call %(tool)s` contain “%(name)s” more than once.")
                name = textwrap.shorten(error.name, 60, placeholder=" …")
                raise CommandProblem(problem, tool=groups["tool"], name=name) from None
            except (ValueError, RecursionError):
                problem = _("The arguments of `call %(tool)s` are not valid JSON.")
                raise CommandProblem(problem, tool=groups["tool"]) from None
        case "wait":
            milliseconds = _milliseconds(word, groups["time"])
            is_whole = milliseconds % 1000 == 0  # shown as the person wrote it: "20", not "20.0"
            return Call(
                "wait", {"seconds": milliseconds // 1000 if is_whole else milliseconds / 1000}
            )
        case "within" | "repeat":
            return _prefixed(word, groups, prefixes=prefixes + 1)
    return Call(COMMANDS[word].tool_name, groups)


def _prefixed(word: str, groups: Mapping[str, str], *, prefixes: int) -> Call:
    if prefixes > _MAX_PREFIXES:
        raise COMMANDS[word].mismatch()
    limit_ms = _milliseconds(word, groups["time"]) if word == "within" else 0
    call = read(groups["rest"], prefixes=prefixes)
    if isinstance(call, str):
        problem = _("`%(prefix)s` goes before a command that calls a tool.")
        raise CommandProblem(problem, prefix=word)
    if word == "within":
        meta = call.input.get("_meta")
        other = meta if isinstance(meta, Mapping) else {}
        return call._replace(input={**call.input, "_meta": {**other, "timeout_ms": limit_ms}})
    times = call.times * int(groups["count"])
    if not 1 <= times <= MAX_REPEATS:
        raise CommandProblem(_("`repeat` takes a number from 1 to %(max)d."), max=MAX_REPEATS)
    return call._replace(times=times)


def _milliseconds(word: str, time: str) -> int:
    """Return a time in milliseconds; a number without a unit is in seconds. A shorter time becomes 1 ms, because 0
    means no limit.
    """
    try:
        return parse_duration(time if time[-1].isalpha() else f"{time}s")
    except TooShort:
        return 1
    except ValueError:
        raise COMMANDS[word].mismatch() from None
