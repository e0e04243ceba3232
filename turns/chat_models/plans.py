"""Plans: what the `local` chat model makes of a message; a pure function of its text.

Several lines are the calls of one step, and a line `then` begins the next step. An indented line belongs to the line
above.
"""

import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from django.utils.translation import gettext as _

from turns.chat_models.commands import CommandProblem, Item, PlannedCall, Speech, is_command, read

MAX_CALLS_IN_STEP = 64
MAX_STEPS = 200

_THEN = re.compile(r"then\b[ \t:,]*", re.IGNORECASE)
# A command with the lines below it that are indented, blank, or close a brace.
_COMMAND = re.compile(r"^[^ \t\n].*(?:\n(?:[ \t}\]].*|[^\S\n]*$))*", re.MULTILINE)


class Intent(StrEnum):
    """What a message wants."""

    RUN = "run"
    HELP = "help"
    AGENTS = "agents"
    GREETING = "greeting"
    THANKS = "thanks"
    UNKNOWN = "unknown"


_MORE = r"\b[\w ,.!]{0,20}"
_TALK = {
    Intent.HELP: r"(?:help|commands|\?+|what can you do)[ ?.!]*",
    Intent.AGENTS: r"(?:list |show )?(?:the )?agents[ ?.!]*",
    Intent.GREETING: rf"(?:hi|hello|hey|hallo|greetings|good (?:morning|afternoon|evening|day)){_MORE}",
    Intent.THANKS: rf"(?:thanks|thank you|thx){_MORE}",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One answer with calls: first what is said, then the calls, side by side."""

    calls: tuple[PlannedCall, ...]
    speeches: tuple[Speech, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All that follows from one message. `problem` says in a sentence why it cannot be carried out."""

    intent: Intent
    steps: tuple[Step, ...] = ()
    closing: tuple[Speech, ...] = ()
    problem: str = ""


def parse(text: str) -> Plan:
    """Return the plan of a message. One faulty line spoils it all: nothing is done by halves."""
    lines = list(_join_lines(text))
    intent = _intent(lines)
    if intent is not Intent.RUN:
        return Plan(intent=intent)
    try:
        steps, closing = _arrange(list(_groups(lines)))
    except CommandProblem as problem:
        return Plan(intent=Intent.RUN, problem=str(problem))
    return Plan(intent=Intent.RUN, steps=steps, closing=closing)


def _intent(lines: Sequence[str]) -> Intent:
    """The first line decides whether the message is a command at all."""
    if not lines:
        return Intent.UNKNOWN
    if len(lines) == 1:
        for intent, pattern in _TALK.items():
            if re.fullmatch(pattern, lines[0], re.IGNORECASE):
                return intent
    return Intent.RUN if is_command(lines[0]) else Intent.UNKNOWN


def _join_lines(text: str) -> Iterator[str]:
    """Yield the commands, each with the lines that belong to it, without their common indentation."""
    for found in _COMMAND.finditer("\n".join(textwrap.dedent(text).strip().splitlines())):
        head, _newline, below = found[0].partition("\n")
        yield f"{head.strip()}\n{textwrap.dedent(below)}".rstrip()


def _groups(lines: Sequence[str]) -> Iterator[list[Item]]:
    """Yield the commands of each step."""
    group: list[Item] = []
    for line in lines:
        command = line
        if then := _THEN.match(line):
            command = line[then.end() :].strip()
            yield group
            group = []
        if command:
            group.append(read(command))
    yield group


def _arrange(groups: Sequence[list[Item]]) -> tuple[tuple[Step, ...], tuple[Speech, ...]]:
    """Make steps of the groups. An answer without calls ends a turn, so lone speech waits for the next calls."""
    steps: list[Step] = []
    said: tuple[Speech, ...] = ()
    for group in groups:
        said += tuple(item.what for item in group if isinstance(item.what, Speech))
        for calls in _steps_of(group):
            steps.append(Step(calls=calls, speeches=said))
            said = ()
            if len(steps) > MAX_STEPS:
                raise CommandProblem(
                    _("At most %(max)d steps can be asked for.") % {"max": MAX_STEPS}
                )
    return tuple(steps), said


def _steps_of(group: Sequence[Item]) -> Iterator[tuple[PlannedCall, ...]]:
    """Yield the calls of each step of a group: all of them, then what is still to be repeated."""
    calls = [(item.what, item.count) for item in group if isinstance(item.what, PlannedCall)]
    if len(calls) > MAX_CALLS_IN_STEP:
        raise CommandProblem(
            _("At most %(max)d calls can run side by side; put a line `then` between them.")
            % {"max": MAX_CALLS_IN_STEP}
        )
    for number in range(max((count for _call, count in calls), default=0)):
        yield tuple(call for call, count in calls if count > number)
