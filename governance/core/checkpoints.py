"""Checkpoints, which are named points in the code at which a test can make the process die, stop, sleep or fail.

`TURNKEEPER_CRASH` lists failpoints, separated by commas. `after_claim:3` kills the process (SIGKILL) at the third pass
of that place, and `after_claim` at the first. `after_claim:stop` stops it (SIGSTOP), `after_claim:sleep=20` blocks the
thread for 20 seconds, `after_claim:raise` raises an exception, and `after_claim:raise:3` raises it at the third pass.
If the value is `@` followed by a path, the failpoints are read from that file at each pass. Without the variable, a
checkpoint costs a single comparison.
"""

import itertools
import logging
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

logger = logging.getLogger(__name__)

VARIABLE = "TURNKEEPER_CRASH"


class CheckpointFailure(RuntimeError):
    """Raised at a checkpoint that is set to fail."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failpoint:
    """An action at a place, and the number of the pass at which it runs."""

    place: str
    action: Callable[[], None]
    at_pass: int = 1
    passes: Iterator[int] = field(default_factory=lambda: itertools.count(1))


def parse_failpoints(text: str) -> tuple[Failpoint, ...]:
    """Read the failpoints of the variable. Raise `ValueError` if the text is malformed."""
    return tuple(_read(part.strip()) for part in text.split(",") if part.strip())


def checkpoint(place: str) -> None:
    """Trigger the failpoint of this place, if the environment sets one."""
    if _source is not None:
        trigger(_source(), place)


def trigger(failpoints: tuple[Failpoint, ...], place: str) -> None:
    """Run the failpoint's action if it is set for this pass of the place."""
    for failpoint in failpoints:
        if failpoint.place == place and next(failpoint.passes) == failpoint.at_pass:
            logger.warning("Failing on purpose at a checkpoint", extra={"place": place})
            failpoint.action()


def _read(text: str) -> Failpoint:
    name, _, action = text.partition(":")
    word, _, number = action.partition(":")
    if word.isdecimal() and not number:
        word, number = "", word
    if not name or (number and not number.isdecimal()):
        raise ValueError(f"{VARIABLE} is not understood: {text!r}")
    return Failpoint(place=name, action=_action_for(word), at_pass=int(number or 1))


def _action_for(word: str) -> Callable[[], None]:
    verb, _, argument = word.partition("=")
    match verb:
        case "" | "kill":
            return lambda: os.kill(os.getpid(), signal.SIGKILL)
        case "stop":
            return _stop_process
        case "sleep":
            seconds = float(argument)
            return lambda: time.sleep(seconds)
        case "raise":
            return _fail
        case _:
            raise ValueError(f"{VARIABLE} does not know {word!r}")


def _stop_process() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(0.2)  # other threads may be stopped first, and this one must not continue meanwhile


def _fail() -> None:
    raise CheckpointFailure("this checkpoint was configured to fail")


class _FailpointFile:
    """The failpoints of a file that may change while the process runs. A change restarts the count of passes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._text = ""
        self._failpoints: tuple[Failpoint, ...] = ()

    def __call__(self) -> tuple[Failpoint, ...]:
        try:
            text = self._path.read_text("utf-8")
        except FileNotFoundError:
            text = ""
        if text != self._text:
            self._text, self._failpoints = text, parse_failpoints(text)
        return self._failpoints


def _find_source(text: str) -> Callable[[], tuple[Failpoint, ...]] | None:
    if text.startswith("@"):
        return _FailpointFile(Path(text[1:]))
    failpoints = parse_failpoints(text)
    return (lambda: failpoints) if failpoints else None


_source = _find_source(os.environ.get(VARIABLE, ""))
