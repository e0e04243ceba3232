"""What several tests share: a bounded wait for a condition, and where the browser is."""

import asyncio
import inspect
import shutil
import subprocess
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar, overload

from governance import ApprovalRule, LiveCall, PolicyLevels, Tool, ToolLimits

T = TypeVar("T")

_BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
PATIENCE = 45.0  # seconds until a test gives a state up; whoever waits for it goes on at once when it is there
LONG_PATIENCE = 180.0  # the same where a whole program has to start or end
ROOM = 4.0  # how many times slower a machine may be than those on which the promises were measured
_PAUSE = 0.01  # seconds
_LONGEST_PAUSE = 0.05


def with_room(promised: float) -> float:
    """Return the bound that a test asserts for a promise; `make bench` measures some of the promises themselves."""
    return promised * ROOM


class NoApprovals:
    """A policy source under which nobody is asked: the limits are what the tools declare."""

    def levels(self, tool: Tool) -> PolicyLevels:
        return PolicyLevels(override=ToolLimits(approval=ApprovalRule.NEVER), declared=tool.limits)


@overload
async def eventually(
    condition: Callable[[], Awaitable[T | None]], *, timeout: float = PATIENCE
) -> T: ...
@overload
async def eventually(condition: Callable[[], T | None], *, timeout: float = PATIENCE) -> T: ...
async def eventually(condition: Callable[[], Any], *, timeout: float = PATIENCE) -> Any:
    """Return the first true answer of `condition`, plain or awaitable; fail if none comes in time."""
    deadline = time.monotonic() + timeout
    while True:
        answer = condition()
        if inspect.isawaitable(answer):
            answer = await answer
        if answer:
            return answer
        if time.monotonic() >= deadline:
            raise AssertionError(_too_late(condition, timeout=timeout, answer=answer))
        await asyncio.sleep(_PAUSE)


def eventually_sync(condition: Callable[[], T | None], *, timeout: float = PATIENCE) -> T:
    """Return the first true answer of `condition`; fail if none comes in time."""
    deadline = time.monotonic() + timeout
    pause = _PAUSE
    while not (answer := condition()):
        if time.monotonic() >= deadline:
            raise AssertionError(_too_late(condition, timeout=timeout, answer=answer))
        time.sleep(pause)
        pause = min(
            pause * 1.3, _LONGEST_PAUSE
        )  # who asks all the time slows down what he waits for
    return answer


def pass_time(seconds: float) -> None:
    """Put the clock of this event loop ahead, for good: what becomes due by then is due now."""
    loop: Any = asyncio.get_running_loop()
    now = loop.time
    loop.time = lambda: now() + seconds


async def until_touched(call: LiveCall) -> None:
    """Wait until a sign of life has moved the moment at which a call is silent for too long."""
    deadline = call.limits.deadline
    assert deadline is not None
    assert deadline.idle_timeout is not None
    due = deadline.loop_time() + deadline.idle_timeout
    await eventually(lambda: deadline.reached_by(due) is None)


async def cancel(task: asyncio.Task[Any]) -> None:
    """Cancel a task, and wait until it has ended so."""
    task.cancel()
    await asyncio.wait({task}, timeout=PATIENCE)
    assert task.cancelled()


def run_program(command: Sequence[str | Path], **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a program to its end; return its exit code and what it said."""
    return subprocess.run(
        command, capture_output=True, text=True, timeout=LONG_PATIENCE, check=False, **options
    )


def browser_path() -> str | None:
    """Return the program of an installed Chromium, or None: no test downloads a browser."""
    return next(filter(None, map(shutil.which, _BROWSERS)), None)


def _too_late(condition: Callable[[], object], *, timeout: float, answer: object) -> str:
    return f"not within {timeout} s: {inspect.getsource(condition).strip()} (the last answer was {answer!r})"
