"""Tasks that outlive their request: a service completes even if its caller is cancelled.

A server cancels the view when its client disconnects. A cancel or a new turn would then be stored but not published
until the next poll. Services therefore run in separate tasks, which the process awaits before it exits. A cancelled
call also uses such a task for its last writes, because its grace period is too short for a database.
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
_tasks: PerLoop[set[asyncio.Task[Any]]] = PerLoop()  # the tasks that are not done yet


def shielded(
    service: Callable[P, Coroutine[Any, Any, R]],
) -> Callable[P, Coroutine[Any, Any, R]]:
    """Return a service that completes even if its caller is cancelled."""

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
    """Run work in a task that is not awaited; failures are logged.

    The task has an empty context, because asgiref would otherwise use the thread of a request that may be over.
    """
    _begin(work, name=name, context=Context()).add_done_callback(_log_failure)


async def join() -> None:
    """Wait for the tasks of this loop, for at most `SETTLE_LIMIT` seconds."""
    if under_way := set(_tasks.get_or_make(set)):
        await asyncio.wait(under_way, timeout=SETTLE_LIMIT)


def _begin(
    work: Coroutine[Any, Any, R], *, name: str, context: Context | None = None
) -> "asyncio.Task[R]":
    task = asyncio.create_task(work, name=f"background {name}", context=context)
    tasks = _tasks.get_or_make(set)
    tasks.add(task)
    task.add_done_callback(tasks.discard)
    return task


def _log_failure(task: asyncio.Task[Any]) -> None:
    failure = None if task.cancelled() else task.exception()
    if failure is not None and not isinstance(failure, TurnsError):
        logger.error(
            "A requested operation failed after its caller had stopped waiting", exc_info=failure
        )
