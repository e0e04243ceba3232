"""The door between coroutines and the database: every crossing goes through `run_in_db_thread`, once."""

from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import wraps
from threading import RLock
from typing import Any, ParamSpec, TypeVar

from asgiref.sync import SyncToAsync, sync_to_async
from django.db import (
    DEFAULT_DB_ALIAS,
    close_old_connections,
    connection,
    connections,
    transaction,
)

P = ParamSpec("P")
R = TypeVar("R")

MAX_LOCK_WAIT = 20.0  # seconds in the line; then the database decides
_write_lock = RLock()  # one who is through may cross again, by way of a coroutine
_polls = ThreadPoolExecutor(max_workers=1, thread_name_prefix="database polls")
_queries = ThreadPoolExecutor(max_workers=2, thread_name_prefix="database queries")
_probes = ThreadPoolExecutor(max_workers=1, thread_name_prefix="database probes")


def run_in_db_thread(function: Callable[P, R]) -> Callable[P, Coroutine[Any, Any, R]]:
    """Return `function` for coroutines; it runs in Django's database thread with connections that are checked first."""
    return sync_to_async(_with_connections(_serialised(function)), thread_sensitive=True)


def run_in_pool_thread(function: Callable[P, R]) -> Callable[P, Coroutine[Any, Any, R]]:
    """Return a function that reads much for coroutines; it runs in a thread of its own and holds up no other crossing."""
    fresh = _checked(function, check=close_old_connections)
    return sync_to_async(fresh, thread_sensitive=False)


def run_in_query_thread(function: Callable[P, R]) -> Callable[P, Coroutine[Any, Any, R]]:
    """Return a function that only reads, and not much, for coroutines; it waits for no writer.

    In a file whoever reads does not need to wait for whoever writes, but would stand in line behind him, and be held up by
    every other process that keeps the file locked. So it goes past the line, in a thread for queries.
    """
    in_turn = run_in_db_thread(function)
    beside = sync_to_async(_with_connections(function), thread_sensitive=False, executor=_queries)

    @wraps(function)
    async def query(*args: P.args, **kwargs: P.kwargs) -> R:
        return await (beside if _is_sqlite_file() else in_turn)(*args, **kwargs)

    return query


def run_in_poll_thread(function: Callable[P, R]) -> Callable[P, Coroutine[Any, Any, R]]:
    """Return a function that reads little, and must not be late, for coroutines; its thread is for nothing else (C12)."""
    return sync_to_async(_with_connections(function), thread_sensitive=False, executor=_polls)


def run_in_probe_thread(function: Callable[P, R]) -> Callable[P, Coroutine[Any, Any, R]]:
    """Return a function that finds out whether the database answers, for coroutines; where it hangs, nothing else does."""
    return sync_to_async(_with_connections(function), thread_sensitive=False, executor=_probes)


@contextmanager
def read_snapshot() -> Iterator[None]:
    """A transaction that only reads: all of it sees one moment, and in a file it waits for nobody who writes.

    A server shows each statement its own moment, so there whoever needs one has to lock what others change.
    """
    database: Any = connections[DEFAULT_DB_ALIAS]
    if database.vendor != "sqlite":
        with transaction.atomic():
            yield
        return
    database.ensure_connection()  # which reads the mode from the settings
    mode, database.transaction_mode = database.transaction_mode, "DEFERRED"
    try:
        with transaction.atomic():
            yield
    finally:
        database.transaction_mode = mode


@contextmanager
def without_lock_wait() -> Iterator[None]:
    """Let a write fail at once (`OperationalError`) where another process keeps the file locked; it was not important."""
    if connection.vendor != "sqlite":
        yield
        return
    patience = connection.settings_dict["OPTIONS"].get("timeout", 5.0)
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA busy_timeout = 0")
        try:
            yield
        finally:
            cursor.execute(f"PRAGMA busy_timeout = {round(patience * 1000)}")


def _is_sqlite_file() -> bool:
    """Whether the database is a file: one in memory is that of a test, whose transaction only its thread sees."""
    database = connections.settings[DEFAULT_DB_ALIAS]
    is_in_memory = any(part in str(database["NAME"]) for part in (":memory:", "mode=memory"))
    return str(database["ENGINE"]).endswith("sqlite3") and not is_in_memory


def _serialised(function: Callable[P, R]) -> Callable[P, R]:
    """Let crossings wait for each other where the database would let them try again and again.

    Each HTTP request has a thread of its own. SQLite lets one of them write; the others would sleep, for longer and
    longer, and whoever comes then is faster: the turns of a busy process would stand still.
    """

    @wraps(function)
    def serialised(*args: P.args, **kwargs: P.kwargs) -> R:
        with _write_slot():
            return function(*args, **kwargs)

    return serialised


@contextmanager
def _write_slot() -> Iterator[None]:
    if connection.vendor != "sqlite":
        yield
        return
    has_lock = _write_lock.acquire(timeout=MAX_LOCK_WAIT)
    try:
        yield
    finally:
        if has_lock:
            _write_lock.release()


def _with_connections(function: Callable[P, R]) -> Callable[P, R]:
    """Check the connections before and after a crossing whose thread lives on, unless it is a request's."""
    return _checked(function, check=_close_unusable_connections)


def _checked(function: Callable[P, R], *, check: Callable[[], None]) -> Callable[P, R]:
    @wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        check()
        try:
            return function(*args, **kwargs)
        finally:
            check()

    return checked


def _close_unusable_connections() -> None:
    """Do what Django does around a request, but leave a whole connection to SQLite open where the thread lives on.

    To open the file again takes longer than most of what is asked of it.
    """
    lives_on = SyncToAsync.thread_sensitive_context.get(None) is None
    for known in connections.all(initialized_only=True):
        if not (lives_on and known.vendor == "sqlite" and not known.errors_occurred):
            known.close_if_unusable_or_obsolete()
