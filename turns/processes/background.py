"""Errands: what was asked for is seen through, although nobody waits for it (any more).

A server cancels the view of a client that goes away. Between a write and the news of it that would leave a cancel, or
the start of a turn, to the next poll; so the errand goes on in a task of its own, which the end of the process awaits.
So does what a cancelled call leaves to be done: its grace is too short to wait for a database.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

from turns.exceptions import TurnsError

logger = logging.getLogger(__name__)

P = ParamSpec("P")
R = TypeVar("R")

SETTLE_LIMIT = 5.0  # seconds

_errands: "WeakKeyDictionary[asyncio.AbstractEventLoop, set[asyncio.Task[Any]]]" = (
    WeakKeyDictionary()
)


def shielded(
    service: Callable[P, Coroutine[Any, Any, R]],
) -> Callable[P, Coroutine[Any, Any, R]]:
    """Return a service that goes on to its end even if whoever awaits it is cancelled."""

    @wraps(service)
    async def errand(*args: P.args, **kwargs: P.kwargs) -> R:
        task = _begin(service(*args, **kwargs), name=service.__name__)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(_tell_failure)
            raise

    return errand


def spawn(work: Coroutine[Any, Any, object], *, name: str) -> None:
    """Let something be seen through that nobody waits for; what goes wrong with it is logged."""
    _begin(work, name=name).add_done_callback(_tell_failure)


async def join() -> None:
    """Wait for the errands of this loop that are under way."""
    under_way = set(_errands.get(asyncio.get_running_loop(), ()))
    if under_way:
        await asyncio.wait(under_way, timeout=SETTLE_LIMIT)


def _begin(work: Coroutine[Any, Any, R], *, name: str) -> "asyncio.Task[R]":
    loop = asyncio.get_running_loop()
    task = loop.create_task(work, name=f"errand {name}")
    known = _errands.setdefault(loop, set())
    known.add(task)
    task.add_done_callback(known.discard)
    return task


def _tell_failure(task: asyncio.Task[Any]) -> None:
    """Log what nobody is there to hear."""
    failure = None if task.cancelled() else task.exception()
    if failure is not None and not isinstance(failure, TurnsError):
        logger.error(
            "What was asked for failed, and nobody waits for it any more", exc_info=failure
        )
