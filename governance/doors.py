"""The door between coroutines and the database: every crossing goes through `database_door`, once."""

from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import wraps
from threading import Lock
from typing import Any, ParamSpec, TypeVar

from asgiref.sync import sync_to_async
from django.db import close_old_connections, connection

P = ParamSpec("P")
R = TypeVar("R")

LONGEST_WAIT = 20.0  # seconds in the line; then the database decides
_line = Lock()
_polls = ThreadPoolExecutor(max_workers=1, thread_name_prefix="database polls")


def database_door(function: Callable[P, R]) -> Callable[P, Coroutine[Any, Any, R]]:
    """Return `function` for coroutines; it runs in Django's database thread with connections that are checked first."""
    return sync_to_async(_with_checked_connections(_in_line(function)), thread_sensitive=True)


def reading_door(function: Callable[P, R]) -> Callable[P, Coroutine[Any, Any, R]]:
    """Return a function that reads much for coroutines; it runs in a thread of its own and holds up no other crossing."""
    return sync_to_async(_with_checked_connections(function), thread_sensitive=False)


def polling_door(function: Callable[P, R]) -> Callable[P, Coroutine[Any, Any, R]]:
    """Return a function that reads little, and must not be late, for coroutines; its thread is for nothing else (C12)."""
    checked = _with_checked_connections(function)
    return sync_to_async(checked, thread_sensitive=False, executor=_polls)


def _in_line(function: Callable[P, R]) -> Callable[P, R]:
    """Let crossings wait for each other where the database would let them try again and again.

    Each HTTP request has a thread of its own. SQLite lets one of them write; the others would sleep, for longer and
    longer, and whoever comes then is faster: the turns of a busy process would stand still.
    """

    @wraps(function)
    def in_line(*args: P.args, **kwargs: P.kwargs) -> R:
        with _place_in_line():
            return function(*args, **kwargs)

    return in_line


@contextmanager
def _place_in_line() -> Iterator[None]:
    if connection.vendor != "sqlite":
        yield
        return
    has_place = _line.acquire(timeout=LONGEST_WAIT)
    try:
        yield
    finally:
        if has_place:
            _line.release()


def _with_checked_connections(function: Callable[P, R]) -> Callable[P, R]:
    @wraps(function)
    def with_checked_connections(*args: P.args, **kwargs: P.kwargs) -> R:
        close_old_connections()
        try:
            return function(*args, **kwargs)
        finally:
            close_old_connections()

    return with_checked_connections
