"""Errands: what a client has asked for is seen through, although the client hangs up in the middle of it.

A server cancels the view of a client that goes away. Between a write and the news of it that would leave a cancel, or
the start of a turn, to the next poll; so the errand goes on in a task of its own, which the end of the process awaits.
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


def seen_through(
    service: Callable[P, Coroutine[Any, Any, R]],
) -> Callable[P, Coroutine[Any, Any, R]]:
    """Return a service that goes on to its end even if whoever awaits it is cancelled."""

    @wraps(service)
    async def errand(*args: P.args, **kwargs: P.kwargs) -> R:
        loop = asyncio.get_running_loop()
        task = loop.create_task(service(*args, **kwargs), name=f"errand {service.__name__}")
        known = _errands.setdefault(loop, set())
        known.add(task)
        task.add_done_callback(known.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(_tell_failure)
            raise

    return errand


async def settle() -> None:
    """Wait for the errands of this loop that are under way."""
    under_way = set(_errands.get(asyncio.get_running_loop(), ()))
    if under_way:
        await asyncio.wait(under_way, timeout=SETTLE_LIMIT)


def _tell_failure(task: asyncio.Task[Any]) -> None:
    """Log what nobody is there to hear any more."""
    failure = None if task.cancelled() else task.exception()
    if failure is not None and not isinstance(failure, TurnsError):
        logger.error("What a client has asked for failed after it was gone", exc_info=failure)
