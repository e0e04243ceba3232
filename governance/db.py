"""Access to the database: its alias, and the threads in which coroutines call ORM code.

All models of the three apps live in one database, which the project's routers name. Coroutines use it through dedicated
threads: neither Django's thread-sensitive thread nor the event loop's default executor. Tools and the host do not use
these threads, so that slow queries of other code never delay a cancel. A test may run all database work in its own
thread (`in_test_thread`).
"""

import select
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Executor
from contextlib import AbstractContextManager, contextmanager
from contextvars import copy_context
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from asgiref.sync import AsyncToSync, sync_to_async
from django.apps import apps
from django.db import connections, router, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created

from governance.per_loop import PerLoop
from governance.threads import DaemonPool
from governance.unanswered import answered_within

P = ParamSpec("P")
R = TypeVar("R")

# Time limits for PostgreSQL's responses, in seconds. Most responses take milliseconds.
ANSWER_LIMIT = 20.0
LONG_ANSWER_LIMIT = 60.0

# SQLite allows only one connection to write at a time. Writers that wait in this queue keep their order. If they waited
# for the file's lock instead, they would sleep longer and longer while later writers overtake them.
_sqlite_writes = DaemonPool(max_workers=1, name="database writes")
_server_writes = DaemonPool(max_workers=4, name="database writes")
_queries = DaemonPool(max_workers=2, name="database queries")
_long_reads = DaemonPool(max_workers=4, name="database long reads")
_polls = DaemonPool(max_workers=1, name="database polls")
_probes = DaemonPool(max_workers=1, name="database probes")
_host_code = DaemonPool(max_workers=4, name="database of the host")
_around_functions: list[
    Callable[[], AbstractContextManager[object]]
] = []  # filled by `in_test_thread`
_test_threads: PerLoop[Executor] = PerLoop()
_pools = (
    _sqlite_writes,
    _server_writes,
    _queries,
    _long_reads,
    _polls,
    _probes,
    _host_code,
)


def waited() -> dict[str, float]:
    """Return how many seconds the statements of this process have waited in total for a thread and for a connection."""
    seconds = {"thread": sum(pool.waited for pool in _pools), "connection": 0.0}
    if (pool := getattr(database_connection(), "pool", None)) is not None:
        seconds["connection"] = pool.get_stats().get("requests_wait_ms", 0) / 1000
    return seconds


def database_alias() -> str:
    """Return the alias of the database that holds our models, as the project's routers name it."""
    return router.db_for_write(apps.get_model("governance", "ToolCall"))


def database_connection() -> Any:
    """Return this thread's connection to the database that holds our models."""
    return connections[database_alias()]


@contextmanager
def atomic() -> Iterator[None]:
    """Open a transaction in the database that holds our models. It can also be used as a decorator."""
    with transaction.atomic(using=database_alias()):
        yield


def on_commit(function: Callable[[], object], *, robust: bool = False) -> None:
    """Call a function when the transaction in the database that holds our models is committed."""
    transaction.on_commit(function, using=database_alias(), robust=robust)


def run_in_db_thread(function: Callable[P, R]) -> Callable[P, Coroutine[Any, Any, R]]:
    """Return an async version of a function that writes.

    With SQLite, a process has only one such thread, so that its writers wait in a queue instead of competing for the
    file's lock.
    """
    return _crossing(function, lambda: _sqlite_writes if _is_sqlite() else _server_writes)


def run_in_query_thread(function: Callable[P, R]) -> Callable[P, Coroutine[Any, Any, R]]:
    """Return an async version of a function for short reads, which do not wait for writers.

    With an in-memory SQLite database, which only tests use, the function runs in the writing thread, because only that
    thread sees the test's transaction.
    """
    return _crossing(function, lambda: _sqlite_writes if _is_in_memory() else _queries)


def run_in_pool_thread(function: Callable[P, R]) -> Callable[P, Coroutine[Any, Any, R]]:
    """Return an async version of a function for long reads. It runs in separate threads, so that it delays no other
    query.
    """
    return _crossing(function, lambda: _long_reads, limit=LONG_ANSWER_LIMIT)


def run_in_poll_thread(function: Callable[P, R]) -> Callable[P, Coroutine[Any, Any, R]]:
    """Return an async version of a function for short reads that must be on time; its thread does nothing else (C12)."""
    return _crossing(function, lambda: _polls)


def run_in_probe_thread(function: Callable[P, R]) -> Callable[P, Coroutine[Any, Any, R]]:
    """Return an async version of a function that probes the database; a probe that hangs blocks nothing else.

    A probe reads no rows of the caller, so it runs in its own thread even if the caller waits in `async_to_sync`.
    """
    return _crossing(function, lambda: _probes, never_in_caller=True)


@contextmanager
def in_test_thread(around: Callable[[], AbstractContextManager[object]]) -> Iterator[None]:
    """Run the database work of tools and of this package in the thread that waits in `async_to_sync`. Only for tests.

    Each function of this package runs inside `around`. `turns.testing.one_database_thread` is the public name.
    """
    _around_functions.append(around)
    try:
        yield
    finally:
        _around_functions.pop()


def thread_of_test() -> Executor | None:
    """Return the executor that runs functions in the test's thread, or None outside such a test.

    Raises:
        RuntimeError: no thread waits for this event loop.
    """
    if not _around_functions:
        return None
    if (executor := _waiting_thread()) is not None:
        _test_threads.set(executor)
    if (thread := _test_threads.get()) is None:
        raise RuntimeError(
            "No thread waits for this coroutine. Call it from a synchronous test, or from an asynchronous one of a"
            " TestCase of Django."
        )
    return thread


def run_in_host_thread(function: Callable[P, R]) -> Callable[P, Coroutine[Any, Any, R]]:
    """Return an async version of a function that calls the host's code, for example its authentication backends,
    which may hang.
    """
    return _crossing(function, lambda: _sqlite_writes if _is_in_memory() else _host_code)


@contextmanager
def read_snapshot() -> Iterator[None]:
    """Open a transaction that only reads. In SQLite, it reads one snapshot and does not wait for writers.

    In PostgreSQL, each statement has its own snapshot, so a caller that needs a single snapshot has to lock the rows.
    """
    database = database_connection()
    if database.vendor != "sqlite":
        with atomic():
            yield
        return
    database.ensure_connection()  # this reads the mode from the settings
    mode, database.transaction_mode = database.transaction_mode, "DEFERRED"
    try:
        with atomic():
            yield
    finally:
        database.transaction_mode = mode


@contextmanager
def without_lock_wait() -> Iterator[None]:
    """Make a write fail immediately (`OperationalError`) while another process locks the file. Use it only for writes
    that may be lost.
    """
    database = database_connection()
    if database.vendor != "sqlite":
        yield
        return
    patience = database.settings_dict["OPTIONS"].get("timeout", 5.0)
    with database.cursor() as cursor:
        cursor.execute("PRAGMA busy_timeout = 0")
        try:
            yield
        finally:
            cursor.execute(f"PRAGMA busy_timeout = {round(patience * 1000)}")


def _crossing(
    function: Callable[P, R],
    executor: Callable[[], Executor],
    *,
    limit: float = ANSWER_LIMIT,
    never_in_caller: bool = False,
) -> Callable[P, Coroutine[Any, Any, R]]:
    @wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        with answered_within(limit, database_connection()):
            _close_unusable_connections()
            try:
                return function(*args, **kwargs)
            finally:
                _close_unusable_connections()

    def surrounded(*args: P.args, **kwargs: P.kwargs) -> R:
        with _around_functions[-1]():
            return function(*args, **kwargs)

    @wraps(function)
    async def cross(*args: P.args, **kwargs: P.kwargs) -> R:
        # A thread that waits in `async_to_sync` may be in a transaction, whose rows only its own connection sees and
        # whose locks would block ours. No public API reports whether there is such a thread.
        if (test := thread_of_test()) is not None:
            in_test: Any = test  # asgiref's types allow only one kind of executor
            run = sync_to_async(surrounded, thread_sensitive=False, executor=in_test)
            return await run(*args, **kwargs)
        if _waiting_thread() is not None and not never_in_caller:
            return await sync_to_async(function, thread_sensitive=True)(*args, **kwargs)
        pool: Any = executor()
        # Run with a separate context, because asgiref would otherwise copy every context variable of the thread back
        # into the task, which would keep these copies for as long as it lives.
        in_thread = sync_to_async(
            checked, thread_sensitive=False, executor=pool, context=copy_context()
        )
        return await in_thread(*args, **kwargs)

    return cross


def _waiting_thread() -> Executor | None:
    executor: Executor | None = getattr(AsyncToSync.executors, "current", None)
    return executor


def _is_sqlite() -> bool:
    return str(connections.settings[database_alias()]["ENGINE"]).endswith("sqlite3")


def _is_in_memory() -> bool:
    name = str(connections.settings[database_alias()]["NAME"])
    return _is_sqlite() and (":memory:" in name or "mode=memory" in name)


def _close_unusable_connections() -> None:
    """Close unusable connections, as Django does before and after a request, because these threads outlive requests.

    SQLite's file stays open unless a statement has failed on it, because opening it again takes longer than most
    queries.
    """
    for connection in connections.all(initialized_only=True):
        is_open_file = connection.vendor == "sqlite" and connection.connection is not None
        if not (is_open_file and not connection.errors_occurred):
            connection.close_if_unusable_or_obsolete()


def replace_lost_connections() -> None:
    """Install a hook that replaces pooled connections that the server has closed, before a statement fails on them.

    A pool does not check its connections. Django's `CONN_HEALTH_CHECKS` queries the server each time, which costs a
    round trip. After each lost connection it also waits longer, which adds up to seconds for a whole pool. Checking the
    socket needs no round trip, because the socket is readable only if the server has closed it.
    """
    connection_created.connect(_replace_if_lost, dispatch_uid="governance.replace_lost_connections")


def _replace_if_lost(connection: BaseDatabaseWrapper, **_: Any) -> None:
    """Replace a lost connection, and drop the other lost connections from the pool."""
    pool = getattr(connection, "pool", None)
    if pool is None or not has_something_to_read(connection.connection) or connection.is_usable():
        return
    pool.check()
    connection.close()
    connection.connect()


def has_something_to_read(connection: Any) -> bool:
    """Return whether a psycopg connection's socket is readable. This needs no round trip."""
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))
