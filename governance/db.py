"""Calls ORM code from coroutines: each function here picks the thread, and checks the connections."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from functools import partial, wraps
from threading import RLock, local
from typing import Any, ParamSpec, TypeVar

from asgiref.sync import AsyncToSync, SyncToAsync, sync_to_async
from django.db import (
    DEFAULT_DB_ALIAS,
    close_old_connections,
    connection,
    connections,
    transaction,
)

from governance.connection_health import has_something_to_read

P = ParamSpec("P")
R = TypeVar("R")

_KEEPERS = 2  # threads that keep a connection from a pool: that of the database and that of polls
MAX_LOCK_WAIT = 20.0  # seconds; after that the database's own lock decides
_kept = local()
_of_request: ContextVar[Any] = SyncToAsync.thread_sensitive_context  # None outside a request
_write_lock = RLock()  # one who is through may cross again, by way of a coroutine
_polls = ThreadPoolExecutor(max_workers=1, thread_name_prefix="database polls")
_queries = ThreadPoolExecutor(max_workers=2, thread_name_prefix="database queries")
_probes = ThreadPoolExecutor(max_workers=1, thread_name_prefix="database probes")


def thread_connection() -> Any:
    """Return the default connection of this thread, which has it as long as it lives. Looking it up takes a while."""
    found = getattr(_kept, "connection", None)
    if found is None:
        found = _kept.connection = connections[DEFAULT_DB_ALIAS]
    return found


def run_in_db_thread(function: Callable[P, R]) -> Callable[P, Coroutine[Any, Any, R]]:
    """Return an async version of `function` that runs in Django's database thread, with connections checked first."""
    return sync_to_async(_in_turn(function), thread_sensitive=True)


def run_in_db_thread_plainly(function: Callable[P, R]) -> Callable[P, Coroutine[Any, Any, R]]:
    """Return the same for a function that needs no language, such as a turn's.

    It runs in the same thread. With SQLite alone a request over HTTP goes to that of the process, too. What asgiref does
    besides takes longer than the thread takes to begin.
    """
    crossing = _in_turn(function)
    by_asgiref = sync_to_async(crossing, thread_sensitive=True)

    @wraps(function)
    async def cross(*args: P.args, **kwargs: P.kwargs) -> R:
        if not _crosses_to_the_one_thread(asyncio.get_running_loop()):
            return await by_asgiref(*args, **kwargs)
        run = partial(crossing, *args, **kwargs)
        return await _cross_plainly(run, SyncToAsync.single_thread_executor)

    return cross


def run_in_pool_thread(function: Callable[P, R]) -> Callable[P, Coroutine[Any, Any, R]]:
    """Return an async version of `function` for long reads: it runs in a pool thread and delays no other query."""
    fresh = _checked(function, check=close_old_connections)
    return sync_to_async(fresh, thread_sensitive=False)


def run_in_query_thread(function: Callable[P, R]) -> Callable[P, Coroutine[Any, Any, R]]:
    """Return an async version of `function` for short reads: it waits for no writer.

    In SQLite a reader need not wait for a writer. In the database thread it would wait behind writers, and behind
    every process that locks the file. So it runs in a thread for queries.
    """
    in_turn = run_in_db_thread(function)
    crossing = _with_connections(function, lives_on=True)
    beside = sync_to_async(crossing, thread_sensitive=False, executor=_queries)

    @wraps(function)
    async def query(*args: P.args, **kwargs: P.kwargs) -> R:
        return await (beside if _is_sqlite_file() else in_turn)(*args, **kwargs)

    return query


def run_in_poll_thread(function: Callable[P, R]) -> Callable[P, Coroutine[Any, Any, R]]:
    """Return an async version of `function` for short reads that must be on time; its thread does nothing else (C12).

    They need no language.
    """
    crossing = _with_connections(function, keeps=True)

    @wraps(function)
    async def poll(*args: P.args, **kwargs: P.kwargs) -> R:
        return await _cross_plainly(partial(crossing, *args, **kwargs), _polls)

    return poll


def run_in_probe_thread(function: Callable[P, R]) -> Callable[P, Coroutine[Any, Any, R]]:
    """Return an async version of `function` that probes the database; if it hangs, nothing else does."""
    return sync_to_async(_with_connections(function), thread_sensitive=False, executor=_probes)


@contextmanager
def read_snapshot() -> Iterator[None]:
    """Open a transaction that only reads one snapshot; in SQLite it waits for no writer.

    PostgreSQL gives each statement its own snapshot: a caller that needs a single one has to lock the rows.
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
    """Let a write fail at once (`OperationalError`) while another process locks the file; for writes that may be lost."""
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


def _crosses_to_the_one_thread(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether ORM code of this task may run in the one thread of the process: nobody waits for it in another.

    A request has a thread of its own, which would open SQLite's file anew. That takes longer than to store a message.
    """
    return (
        getattr(AsyncToSync.executors, "current", None) is None
        and (_of_request.get(None) is None or _is_sqlite_file())
        and loop not in AsyncToSync.loop_thread_executors
        and not SyncToAsync.deadlock_context.get(False)
    )


async def _cross_plainly(run: Callable[[], R], executor: ThreadPoolExecutor) -> R:
    """Run in a thread of an executor that is no request's, with all that is bound here."""
    loop = asyncio.get_running_loop()
    crossed: asyncio.Future[R] = loop.create_future()
    context = copy_context()
    context.run(_of_request.set, None)
    work = executor.submit(_run_and_report, partial(context.run, run), crossed, loop)
    try:
        return await crossed
    except asyncio.CancelledError:
        work.cancel()  # unless it has begun
        raise


def _run_and_report(
    run: Callable[[], R], crossed: "asyncio.Future[R]", loop: asyncio.AbstractEventLoop
) -> None:
    """Run a crossing in this thread, and tell the loop what it has come to."""
    try:
        tell = partial(_set_result, crossed, run())
    except BaseException as error:  # noqa: BLE001 - raised where it is awaited
        tell = partial(_set_exception, crossed, error)
    with suppress(RuntimeError):  # the loop is closed: nobody waits
        loop.call_soon_threadsafe(tell)


def _set_result(crossed: "asyncio.Future[R]", result: R) -> None:
    if not crossed.done():
        crossed.set_result(result)


def _set_exception(crossed: "asyncio.Future[Any]", error: BaseException) -> None:
    if not crossed.done():
        crossed.set_exception(error)


def _in_turn(function: Callable[P, R]) -> Callable[P, R]:
    return _with_connections(_serialised(function), keeps=True)


def _serialised(function: Callable[P, R]) -> Callable[P, R]:
    """Queue writers in this process, where SQLite would let them retry.

    Each HTTP request has a thread of its own, and SQLite lets one of them write. The others would sleep longer and
    longer, newcomers would overtake them, and the turns of a busy process would stall.
    """

    @wraps(function)
    def serialised(*args: P.args, **kwargs: P.kwargs) -> R:
        if thread_connection().vendor != "sqlite":
            return function(*args, **kwargs)
        has_lock = _write_lock.acquire(timeout=MAX_LOCK_WAIT)
        try:
            return function(*args, **kwargs)
        finally:
            if has_lock:
                _write_lock.release()

    return serialised


def _with_connections(
    function: Callable[P, R], *, keeps: bool = False, lives_on: bool = False
) -> Callable[P, R]:
    """Check the connections before and after a crossing whose thread lives on, unless it is a request's.

    `keeps` is for the threads that are asked all the time. Of those from a pool each may keep one. `lives_on` is for
    threads that are no request's, although requests ask them.
    """
    check = partial(_close_unusable_connections, keeps=keeps, lives_on=lives_on)
    return _checked(function, check=check)


def _checked(function: Callable[P, R], *, check: Callable[[], None]) -> Callable[P, R]:
    @wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        check()
        try:
            return function(*args, **kwargs)
        finally:
            check()

    return checked


def _close_unusable_connections(*, keeps: bool, lives_on: bool) -> None:
    """Do what Django does around a request, but leave whole connections open where the thread lives on.

    To open SQLite's file again takes longer than most of what is asked of it. To get a connection from a pool and
    give it back takes as long as four statements.
    """
    lives_on = lives_on or _of_request.get(None) is None
    is_only_one = len(connections.settings) == 1
    for known in [thread_connection()] if is_only_one else connections.all(initialized_only=True):
        if not (lives_on and _is_whole(known, keeps=keeps)):
            known.close_if_unusable_or_obsolete()


def _is_whole(database: Any, *, keeps: bool) -> bool:
    """Whether a connection can stay open: nothing has failed on it, nobody has closed it, others have more."""
    if database.errors_occurred or database.connection is None:
        return False
    if database.vendor == "sqlite":
        return True
    pool = getattr(database, "pool", None) if keeps else None
    return (
        pool is not None
        and pool.max_size > _KEEPERS
        and database.get_autocommit() == database.settings_dict["AUTOCOMMIT"]
        and not has_something_to_read(database.connection)
    )
