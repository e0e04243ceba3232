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

    @wraps(function)
    def with_checked_connections(*args: P.args, **kwargs: P.kwargs) -> R:
        close_old_connections()
        try:
            return function(*args, **kwargs)
        finally:
            close_old_connections()

    return sync_to_async(with_checked_connections, thread_sensitive=True)
