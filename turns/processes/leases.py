"""The lease of this process. A separate thread renews it, so that a blocked event loop or busy database threads delay
no renewal. A lease that is not renewed in time is lost permanently (H4).

Another process ends the turns of a process whose lease has expired by the database's clock. This process stops earlier
by its own clock: `fence_after` seconds after the last renewal, it no longer owns any turns. If the whole process was
suspended, for example by C code that holds the GIL, it could not renew. It then first queries the database to find out
whether another process has taken over its turns.
"""

import asyncio
import logging
import math
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

from django.db import connections

from governance.db import atomic, database_connection, thread_of_test
from governance.threads import run_in_thread
from governance.unanswered import answered_within
from turns.conf import app_settings
from turns.core.turns import DATABASE_AWAY, STOOD_STILL
from turns.models import Process
from turns.models.processes import ProcessEnding
from turns.processes import process_registry

logger = logging.getLogger(__name__)

LOOK_INTERVAL = (
    0.5  # seconds between two checks of the event loop, and between failed attempts to renew
)
STANDSTILL = 2.0  # seconds without either the event loop or the lease's thread running
LOGGED_LAG = 1.0  # seconds of delay of the loop after which its stack is logged
ANSWER_ROOM = 1.0  # seconds beyond the statement timeout that the database should enforce itself
JOIN_BOUND = 1.0  # seconds to wait for the thread; it may hang in the database, and is a daemon


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTiming:
    """The times of a lease in seconds: between renewals (`renew`), from a renewal until the process gives up its turns
    (`fence_after`), and from a renewal until other processes may take them over (`ttl`).
    """

    renew: float
    fence_after: float
    ttl: float

    @property
    def statement_timeout(self) -> float:
        """Return the maximum duration of one renewal in the database."""
        return min(3.0, self.renew)


def timing() -> LeaseTiming:
    return LeaseTiming(
        renew=app_settings.LEASE_RENEW_INTERVAL,
        fence_after=app_settings.LEASE_FENCE_AFTER,
        ttl=app_settings.LEASE_TTL,
    )


class LoopWatch:
    """Measures how long an event loop takes to respond. Create it on the loop, and use it in one other thread."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._asked = self._answered = 0
        self._asked_at = 0.0

    def lag(self) -> float:
        """Return the seconds for which the loop has not responded. Raise `RuntimeError` once it is closed."""
        if self._answered == self._asked:
            self._asked += 1
            self._asked_at = time.monotonic()
            self._loop.call_soon_threadsafe(self._answer, self._asked)
        return time.monotonic() - self._asked_at

    def restart(self) -> None:
        """Reset the delay after the whole process was suspended."""
        self._asked_at = time.monotonic()

    def stack(self) -> str:
        """Return the current stack of the loop's thread."""
        # Documented by Python despite its private name, and the only way to see another thread's stack.
        frame = sys._current_frames().get(self._thread)
        return "".join(traceback.format_stack(frame)) if frame else ""

    def _answer(self, number: int) -> None:
        self._answered = number


class Lease:
    """The lease of one registration, which can be lost only once. Create it on the event loop whose turns it protects.

    `registered_at` is a time (`time.monotonic`) before the row was written. `on_lost` is called once, on the loop.
    `lost_here` is the number of leases that this process has lost.
    """

    lost_here: ClassVar[int] = 0

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
        self._asks_until = 0.0  # after a suspension, while the database is being queried
        self._looks = {"loop": time.monotonic(), "thread": time.monotonic()}
        self._is_over = threading.Event()
        self._is_lost = False
        self._lacks_database = False
        self._thread = threading.Thread(target=self._keep, name=f"lease {process.pk}", daemon=True)
        self._timer = self._loop.call_later(LOOK_INTERVAL, self._check)

    @property
    def is_held(self) -> bool:
        """Whether this process may still write as an owner of turns; safe in any thread.

        After a suspension, it may write until the database has answered, because the database fences each write too.
        """
        now = time.monotonic()
        if self._is_lost:
            return False
        return now < max(self._held_until, self._asks_until) or self._stood_still(now)

    def start(self) -> None:
        process_registry.leases_here.add(self.process.pk)
        if (
            thread_of_test() is not None
        ):  # no other process can see the row in the test's transaction
            self._held_until = math.inf
        else:
            self._thread.start()

    async def close(self) -> None:
        """Stop renewing; the row is not changed."""
        self._is_over.set()
        process_registry.leases_here.discard(self.process.pk)
        self._timer.cancel()
        if self._thread.is_alive():
            await run_in_thread(self._thread.join, JOIN_BOUND)

    def _check(self) -> None:
        """Give up after the deadline, even if the thread hangs in the database."""
        self._look("loop")
        if time.monotonic() < max(self._held_until, self._asks_until):
            self._timer = self._loop.call_later(LOOK_INTERVAL, self._check)
        else:
            self._lose()

    def _look(self, place: str) -> bool:
        """Record that the loop or the thread is running. Return whether the process had been suspended."""
        now = time.monotonic()
        stood_still = self._stood_still(now)
        if stood_still:
            logger.warning("The process was suspended and asks whether it still owns its turns")
            self._asks_until = now + self._timing.statement_timeout + LOOK_INTERVAL
        self._looks[place] = now
        return stood_still

    def _stood_still(self, now: float) -> bool:
        return now - max(self._looks.values()) > STANDSTILL

    def _lose(self) -> None:
        if self._is_lost or self._is_over.is_set():
            return
        self._is_lost = True
        Lease.lost_here += 1
        self._is_over.set()
        process_registry.leases_here.discard(self.process.pk)
        process_registry.lost_here[self.process.pk] = (
            DATABASE_AWAY if self._lacks_database else STOOD_STILL
        )
        self._timer.cancel()
        logger.error("The lease is lost", extra={"process_id": str(self.process.pk)})
        self._on_lost()

    # The following methods run in the thread.

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
            if self._look("thread"):
                due = time.monotonic()
            now = time.monotonic()
            if now - looked_at > pause + LOGGED_LAG:
                self._watch.restart()
            looked_at = now
            lag = self._watch.lag()
            is_logged = lag > LOGGED_LAG and (is_logged or self._log_lag(lag))
            # a process with a dead loop cannot apply cancels, so it must lose its lease
            if now >= due and lag <= self._timing.fence_after:
                due = now + (self._timing.renew if self._renew() else pause)

    def _log_lag(self, lag: float) -> bool:
        logger.error(
            "The event loop has been held up for %.1f s; it is here:\n%s", lag, self._watch.stack()
        )
        return True

    def _renew(self) -> bool:
        """Renew once; return False if the database did not answer. If the registration was ended, notify the loop."""
        asked_at = time.monotonic()
        lacked_database, self._lacks_database = self._lacks_database, True
        try:
            with answered(self._timing.statement_timeout):
                is_ours = process_registry.renew(self.process)
        except Exception as error:
            # Only the first failure is logged with a traceback, because an outage would fill the log.
            logger.warning("The lease was not renewed: %s", error, exc_info=not lacked_database)
            database_connection().close()
            if self._is_alone():
                self._held_until = asked_at + self._timing.fence_after
            return False
        self._lacks_database = lacked_database and not is_ours
        if is_ours:
            self._held_until = asked_at + self._timing.fence_after
        else:
            self._held_until = asked_at
            self._loop.call_soon_threadsafe(self._lose)
        return True

    def _is_alone(self) -> bool:
        """Return whether no other process can take the turns, because a locked SQLite file can be read and shows no
        other process.
        """
        try:
            return database_connection().vendor == "sqlite" and process_registry.is_alone(
                self.process
            )
        except Exception as error:  # noqa: BLE001 - databases raise different exceptions
            logger.warning("The other processes could not be read: %s", error)
            return False


def retire_alone(process: Process) -> None:
    """Retire a process that has lost its lease, on a separate connection. Raise the database's error."""
    limit = timing().statement_timeout
    with own_connection(timeout=limit), answered(limit):
        process_registry.retire(process, ProcessEnding.SILENT)


@contextmanager
def answered(seconds: float) -> Iterator[None]:
    """Run a transaction in which both the database and the client limit the duration of each statement."""
    with answered_within(seconds + ANSWER_ROOM, database_connection()), bounded(seconds):
        yield


@contextmanager
def own_connection(*, timeout: float) -> Iterator[None]:
    """Use a separate connection in this thread, outside the pool, which waits at most `timeout` seconds for others."""
    connection = database_connection().copy()
    options: dict[str, Any] = connection.settings_dict["OPTIONS"]
    options.pop("pool", None)
    if connection.vendor == "sqlite":
        options["timeout"] = timeout
    elif connection.vendor == "postgresql":
        options["connect_timeout"] = max(2, round(timeout))
    connections[connection.alias] = connection
    try:
        yield
    finally:
        connection.close()


@contextmanager
def bounded(seconds: float) -> Iterator[None]:
    """Run a transaction with a limit per statement, if the database supports that."""
    with atomic():
        connection = database_connection()
        if connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                cursor.execute(f"SET LOCAL statement_timeout = {seconds * 1000:.0f}")
        yield
