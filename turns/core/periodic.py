"""Runs periodic work at a steady pace, each kind of work in a separate task."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable

logger = logging.getLogger(__name__)

SWEEP_LIMIT = 100  # maximum rows per sweep; the next sweep continues with the others
LEAST_PAUSE = 0.25  # minimum pause, as a share of the interval, so that slow work does not run without a break


def run_periodically(
    work: Callable[[], Awaitable[object]], *, name: str, interval: float, jitter: float = 0.0
) -> "asyncio.Task[None]":
    """Return a task that awaits `work` every `interval` seconds until the task is cancelled.

    Each interval varies at random by up to the fraction `jitter`. It is measured from start to start, so that slow work
    does not delay the next run. Failures are logged under `name`, and the work is retried in the next round. Only the
    first of several consecutive failures of the same type is logged with its traceback, so that an outage does not fill
    the log.
    """
    return asyncio.create_task(
        _repeat(work, name=name, interval=interval, jitter=jitter), name=name
    )


async def _repeat(
    work: Callable[[], Awaitable[object]], *, name: str, interval: float, jitter: float
) -> None:
    now = asyncio.get_running_loop().time
    started_at = now()
    failure: type[Exception] | None = None
    while True:
        span = interval * random.uniform(1 - jitter, 1 + jitter)  # noqa: S311 - no secret
        await asyncio.sleep(max(started_at + span - now(), span * LEAST_PAUSE))
        started_at = now()
        try:
            await work()
        except Exception as error:
            logger.error(  # noqa: TRY400 - with a traceback only if it is new
                "A round failed: %s: %s", name, error, exc_info=type(error) is not failure
            )
            failure = type(error)
        else:
            failure = None
