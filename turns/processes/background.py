"""Tasks that outlive their request: a service runs to its end even if its caller is cancelled.

A server cancels the view of a client that goes away. A cancel or a new turn would then be stored but not published, and
wait for the next poll. So the service runs in a task of its own, and the end of the process waits for it. A cancelled
call leaves its last work to such a task, too: its grace is too short for a database.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextvars import Context
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from governance.per_loop import PerLoop
from turns.exceptions import TurnsError

logger = logging.getLogger(__name__)

P = ParamSpec("P")
R = TypeVar("R")

SETTLE_LIMIT = 5.0  # seconds
_tasks: PerLoop[set[asyncio.Task[Any]]] = PerLoop()  # until they are done


def shielded(
    service: Callable[P, Coroutine[Any, Any, R]],
) -> Callable[P, Coroutine[Any, Any, R]]:
    """Return a service that runs to its end even if its caller is cancelled."""

    @wraps(service)
    async def run(*args: P.args, **kwargs: P.kwargs) -> R:
        task = _begin(service(*args, **kwargs), name=service.__name__)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(_log_failure)
            raise

    return run


def spawn(work: Coroutine[Any, Any, object], *, name: str) -> None:
    """Run work in a task that nobody awaits; a failure is logged.

    It inherits nothing: asgiref would send its statements to the thread of a request that may be over.
    """
    _begin(work, name=name, context=Context()).add_done_callback(_log_failure)


async def join() -> None:
    """Wait for the tasks of this loop, for `SETTLE_LIMIT` seconds at most."""
    if under_way := set(_tasks.get_or_make(set)):
        await asyncio.wait(under_way, timeout=SETTLE_LIMIT)


def _begin(
    work: Coroutine[Any, Any, R], *, name: str, context: Context | None = None
) -> "asyncio.Task[R]":
    task = asyncio.create_task(work, name=f"background {name}", context=context)
    known = _tasks.get_or_make(set)
    known.add(task)
    task.add_done_callback(known.discard)
    return task


def _log_failure(task: asyncio.Task[Any]) -> None:
    failure = None if task.cancelled() else task.exception()
    if failure is not None and not isinstance(failure, TurnsError):
        logger.error(
            "What was asked for failed, and nobody waits for it any more", exc_info=failure
        )
