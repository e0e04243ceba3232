"""Threads that do something at the same moment."""

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from django.db import connection

from tests.support import PATIENCE

T = TypeVar("T")


def at_once(works: Iterable[Callable[[], T]]) -> list[T]:
    """Call each in a thread of its own, all at the same moment; return what they return, in order."""
    waiting = list(works)
    begin = threading.Barrier(len(waiting))

    def run(work: Callable[[], T]) -> T:
        try:
            begin.wait(PATIENCE)
            return work()
        finally:
            connection.close()

    with ThreadPoolExecutor(len(waiting)) as pool:
        return list(pool.map(run, waiting, timeout=PATIENCE))
