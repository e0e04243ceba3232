"""Rounds: work that is done again and again at a steady pace, each kind in a task of its own."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable

logger = logging.getLogger(__name__)

SWEEP_LIMIT = 100  # rows that one sweep takes; what is left waits for the next one
LEAST_PAUSE = 0.25  # of the interval: work that takes long shall not go on without a break


def run_periodically(
    work: Callable[[], Awaitable[object]], *, name: str, interval: float, jitter: float = 0.0
) -> "asyncio.Task[None]":
    """Return a task that awaits `work` every `interval` seconds, give or take the share `jitter`, until it is cancelled.

    The interval counts from start to start, so that slow work does not delay the next run.
    Work that fails is logged under `name`, and tried again in the next round.
    """
    return asyncio.create_task(
        _repeat(work, name=name, interval=interval, jitter=jitter), name=name
    )


async def _repeat(
    work: Callable[[], Awaitable[object]], *, name: str, interval: float, jitter: float
) -> None:
    now = asyncio.get_running_loop().time
    begun_at = now()
    while True:
        span = interval * random.uniform(1 - jitter, 1 + jitter)  # noqa: S311 - no secret
        await asyncio.sleep(max(begun_at + span - now(), span * LEAST_PAUSE))
        begun_at = now()
        try:
            await work()
        except Exception:
            logger.exception("A round failed: %s", name)
