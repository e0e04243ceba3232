"""Repeats a turn's database work for as long as the process owns the turn."""

import asyncio
import itertools
import logging
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from django.db import InterfaceError, InternalError, OperationalError

from turns.core.exceptions import Fenced, NotStored
from turns.processes.leases import Lease

logger = logging.getLogger(__name__)

R = TypeVar("R")

FIRST_PAUSE = 0.05  # seconds
LONGEST_PAUSE = 1.0
PATIENCE = 15.0  # seconds of failing after which a database that keeps our lease will not take this any more
# A lost connection, a lock, a full disk; a server that takes no writes, as one that was demoted.
_MAY_PASS = (OperationalError, InterfaceError, InternalError)


async def until_done(crossing: Callable[[], Awaitable[R]], *, lease: Lease | None = None) -> R:
    """Await a crossing to the database, again and again if it fails in a way that may pass. Return what it comes to.

    Its answer may be lost after it was committed, so it must be one that can be repeated.

    Raises:
        Fenced: the lease was lost meanwhile.
        NotStored: it has failed for so long that it never will come through, although the lease holds.
    """
    loop = asyncio.get_running_loop()
    gives_up_at = loop.time() + PATIENCE
    for attempt in itertools.count():
        if lease is not None and not lease.is_held:
            raise Fenced("the owner of the turn has lost its lease")
        try:
            return await crossing()
        except _MAY_PASS as failure:
            pause = _pause_after(attempt)
            if loop.time() + pause > gives_up_at:
                raise NotStored("the database has not taken it") from failure
            logger.warning("The database is asked again: %s", type(failure).__name__)
        await asyncio.sleep(pause)
    raise AssertionError("the attempts never end")


def _pause_after(attempt: int) -> float:
    """Longer each time, and never the same for all who wait."""
    return min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(attempt, 10)) * random.uniform(0.5, 1)  # noqa: S311
