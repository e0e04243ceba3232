"""The door between coroutines and the database: every crossing goes through `database_door`, once."""

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from asgiref.sync import sync_to_async
from django.db import close_old_connections

P = ParamSpec("P")
R = TypeVar("R")


def database_door(function: Callable[P, R]) -> Callable[P, Coroutine[Any, Any, R]]:
    """Return `function` for coroutines; it runs in Django's database thread with connections that are checked first."""
    return sync_to_async(_with_checked_connections(function), thread_sensitive=True)


def reading_door(function: Callable[P, R]) -> Callable[P, Coroutine[Any, Any, R]]:
    """Return a function that reads much for coroutines; it runs in a thread of its own and holds up no other crossing."""
    return sync_to_async(_with_checked_connections(function), thread_sensitive=False)


def _with_checked_connections(function: Callable[P, R]) -> Callable[P, R]:
    @wraps(function)
    def with_checked_connections(*args: P.args, **kwargs: P.kwargs) -> R:
        close_old_connections()
        try:
            return function(*args, **kwargs)
        finally:
            close_old_connections()

    return with_checked_connections
