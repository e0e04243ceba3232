"""Checkpoints: named places at which a test can make the process die, stop, sleep or fail.

`TURNKEEPER_CRASH` lists failpoints, separated by commas. `after_claim:3` kills the process (SIGKILL) at the third
pass of that place, `after_claim` at the first. `after_claim:stop` stops it (SIGSTOP), `after_claim:sleep=20` blocks
its thread for 20 seconds, `after_claim:raise` raises, `after_claim:raise:3` at the third pass. `@` and the path of a
file reads the failpoints from there at each pass. Without the variable a checkpoint costs one truth test.
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
    """Raised at a checkpoint that was told to fail."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failpoint:
    """What to do at a place, at which of its passes."""

    place: str
    action: Callable[[], None]
    at_pass: int = 1
    passes: Iterator[int] = field(default_factory=lambda: itertools.count(1))


def parse_failpoints(text: str) -> tuple[Failpoint, ...]:
    """Read the failpoints of the variable. Raise `ValueError` if they cannot be understood."""
    return tuple(_read(part.strip()) for part in text.split(",") if part.strip())


def checkpoint(place: str) -> None:
    """Trigger the failpoint of this place, if the environment sets one."""
    if _source is not None:
        trigger(_source(), place)


def trigger(failpoints: tuple[Failpoint, ...], place: str) -> None:
    """Do what is ordered for this pass of a place."""
    for failpoint in failpoints:
        if failpoint.place == place and next(failpoint.passes) == failpoint.at_pass:
            logger.warning("Failing on purpose at a checkpoint", extra={"place": place})
            failpoint.action()


def _read(text: str) -> Failpoint:
    place, _, rest = text.partition(":")
    word, _, number = rest.partition(":")
    if word.isdecimal() and not number:
        word, number = "", word
    if not place or (number and not number.isdecimal()):
        raise ValueError(f"{VARIABLE} is not understood: {text!r}")
    return Failpoint(place=place, action=_action_for(word), at_pass=int(number or 1))


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
    time.sleep(0.2)  # the other threads may stop first; this one must not run on


def _fail() -> None:
    raise CheckpointFailure("a checkpoint was told to fail")


class _FailpointFile:
    """Failpoints that may change while the process runs; a change restarts the count of passes."""

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
