"""Cuts database connections that do not respond in time. The statement then fails as on any lost connection.

PostgreSQL's own time limits are enforced by its server, and the kernel's timeouts only detect a machine that is
unreachable. Neither ends a wait if a proxy in between accepts the bytes and drops them.
"""

import logging
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

logger = logging.getLogger(__name__)

LOOK_INTERVAL = 1.0  # seconds


@dataclass(eq=False, slots=True)
class _Wait:
    """A thread's wait for queries on one of Django's connections, with its deadline."""

    connection: Any
    until: float


class _Watch:
    """Watches all such waits of this process, in a thread that sleeps while there are none."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waits: set[_Wait] = set()
        self._thread: threading.Thread | None = None
        self.cut = 0

    def add(self, wait: _Wait) -> None:
        with self._changed:
            self._waits.add(wait)
            if (
                self._thread is None or not self._thread.is_alive()
            ):  # or the thread was lost in a fork
                self._thread = threading.Thread(
                    target=self._look, name="database answers", daemon=True
                )
                self._thread.start()
            if len(self._waits) == 1:
                self._changed.notify()

    def remove(self, wait: _Wait) -> None:
        with self._changed:
            self._waits.discard(wait)

    def _look(self) -> None:
        while True:
            with self._changed:
                while not self._waits:
                    self._changed.wait()
                # Cut under the lock, because a connection that has answered may already serve another thread.
                for wait in self._waits:
                    if time.monotonic() > wait.until:
                        wait.until += LOOK_INTERVAL
                        self.cut += _cut(wait.connection)
            time.sleep(LOOK_INTERVAL)


_watch = _Watch()


@contextmanager
def answered_within(seconds: float, connection: Any) -> Iterator[None]:
    """Cut Django's `connection` if the queries of the `with` block take longer than `seconds`."""
    if connection.vendor != "postgresql":
        yield
        return
    wait = _Wait(connection, time.monotonic() + seconds)
    _watch.add(wait)
    try:
        yield
    finally:
        _watch.remove(wait)


def cut_count() -> int:
    """Return how many connections this process has cut."""
    return _watch.cut


def _cut(connection: Any) -> bool:
    """Shut the socket down, because closing it would not wake the waiting thread. Return whether that succeeded."""
    line = connection.connection
    if line is None:  # it is still connecting, which has a separate time limit
        return False
    try:
        with socket.socket(fileno=os.dup(line.fileno())) as ours:
            ours.shutdown(socket.SHUT_RDWR)
    except Exception:
        logger.warning("A connection to the database could not be cut", exc_info=True)
        return False
    logger.error("The database has not answered in time; a connection to it was cut")
    return True
