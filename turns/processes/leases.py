"""The lease of this process. Its own thread renews it, so a blocked event loop or a busy database thread does not
delay it. A lease that is not renewed in time is lost for good (H4).

Somebody else ends the turns of a process whose lease has run out by the database's clock. This process stops sooner by
its own: after `fence_after` seconds without a renewal it owns nothing any more.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from django.db import DEFAULT_DB_ALIAS, connections, transaction

from turns.conf import app_settings
from turns.core.loop_watch import LoopWatch
from turns.models import Process
from turns.processes import process_registry

logger = logging.getLogger(__name__)

LOOK_INTERVAL = (
    0.5  # seconds between two looks at the event loop, and between attempts to renew that failed
)
LOGGED_LAG = 1.0  # seconds that the loop may be behind before its stack is logged
JOIN_BOUND = 1.0  # seconds to wait for the thread; it may hang in the database, and is a daemon


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTiming:
    """Seconds: how often the lease is renewed, when the process gives up by itself, when others may take it."""

    renew: float
    fence_after: float
    ttl: float

    @property
    def statement_timeout(self) -> float:
        """The longest that one renewal may take in the database."""
        return min(3.0, self.renew)


def timing() -> LeaseTiming:
    return LeaseTiming(
        renew=app_settings.LEASE_RENEW_INTERVAL,
        fence_after=app_settings.LEASE_FENCE_AFTER,
        ttl=app_settings.LEASE_TTL,
    )


class Lease:
    """The lease of one registration, lost once and for good. Made on the event loop whose turns it covers.

    `registered_at` is the moment (`time.monotonic`) before the row was written. `on_lost` is called on the loop, once.
    """

    def __init__(
        self,
        process: Process,
        *,
        timing: LeaseTiming,
        registered_at: float,
        on_lost: Callable[[], None],
    ) -> None:
        self.process = process
        self._timing = timing
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._watch = LoopWatch()
        self._held_until = registered_at + timing.fence_after
        self._is_over = threading.Event()
        self._is_lost = False
        self._thread = threading.Thread(target=self._keep, name=f"lease {process.pk}", daemon=True)
        self._timer = self._loop.call_later(timing.fence_after, self._check)

    @property
    def is_held(self) -> bool:
        """Whether this process may still write as an owner of turns; from any thread."""
        return not self._is_lost and time.monotonic() < self._held_until

    def start(self) -> None:
        self._thread.start()

    async def close(self) -> None:
        """Renew no more; the row stays as it is."""
        self._is_over.set()
        self._timer.cancel()
        if self._thread.is_alive():
            await asyncio.to_thread(self._thread.join, JOIN_BOUND)

    def _check(self) -> None:
        """Give up when the time is over, even if the thread hangs in the database and cannot say so."""
        left = self._held_until - time.monotonic()
        if left > 0:
            self._timer = self._loop.call_later(left, self._check)
        else:
            self._lose()

    def _lose(self) -> None:
        if self._is_lost or self._is_over.is_set():
            return
        self._is_lost = True
        self._is_over.set()
        self._timer.cancel()
        logger.error("The lease is lost", extra={"process_id": str(self.process.pk)})
        self._on_lost()

    # What follows runs in the thread.

    def _keep(self) -> None:
        with own_connection(timeout=self._timing.statement_timeout):
            try:
                self._renew_for_ever()
            except RuntimeError:
                if not self._loop.is_closed():
                    raise

    def _renew_for_ever(self) -> None:
        pause = min(LOOK_INTERVAL, self._timing.renew)
        due = time.monotonic() + self._timing.renew
        is_logged = False
        looked_at = time.monotonic()
        while not self._is_over.wait(pause):
            now = time.monotonic()
            if now - looked_at > pause + LOGGED_LAG:
                self._watch.restart()
            looked_at = now
            lag = self._watch.lag()
            is_logged = lag > LOGGED_LAG and (is_logged or self._log_lag(lag))
            # a process whose loop is dead cancels nothing any more, so it has to lose its lease
            if now >= due and lag <= self._timing.fence_after:
                due = now + (self._timing.renew if self._renew() else pause)

    def _log_lag(self, lag: float) -> bool:
        logger.error(
            "The event loop has been held up for %.1f s; it is here:\n%s", lag, self._watch.stack()
        )
        return True

    def _renew(self) -> bool:
        """Renew once. False if the database did not answer; the loop is told if the row has been ended."""
        asked_at = time.monotonic()
        try:
            with bounded(self._timing.statement_timeout):
                is_ours = process_registry.renew(self.process)
        except Exception:
            logger.warning("The lease was not renewed", exc_info=True)
            connections[DEFAULT_DB_ALIAS].close()
            return False
        if is_ours:
            self._held_until = asked_at + self._timing.fence_after
        else:
            self._held_until = asked_at
            self._loop.call_soon_threadsafe(self._lose)
        return True


@contextmanager
def own_connection(*, timeout: float) -> Iterator[None]:
    """Give this thread a connection of its own, out of no pool, that waits `timeout` seconds for others at most."""
    connection = connections[DEFAULT_DB_ALIAS].copy()
    options: dict[str, Any] = connection.settings_dict["OPTIONS"]
    options.pop("pool", None)
    if connection.vendor == "sqlite":
        options["timeout"] = timeout
    elif connection.vendor == "postgresql":
        options["connect_timeout"] = max(2, round(timeout))
    connections[DEFAULT_DB_ALIAS] = connection
    try:
        yield
    finally:
        connection.close()


@contextmanager
def bounded(seconds: float) -> Iterator[None]:
    """Run a transaction in which no statement may take longer, where the database can promise that."""
    with transaction.atomic():
        connection = connections[DEFAULT_DB_ALIAS]
        if connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                cursor.execute(f"SET LOCAL statement_timeout = {seconds * 1000:.0f}")
        yield
