"""The runtime of this process: one for each event loop, started at its first use or with the server."""

import asyncio
import contextvars
import gc
from collections.abc import Sequence
from functools import cache
from uuid import UUID

from django.db import connections

from governance import LiveCall
from governance.db import run_in_db_thread
from governance.per_loop import PerLoop
from turns.conf import app_settings
from turns.core.requests import PendingRequest
from turns.core.running_turn import RunningTurn
from turns.endings import recovery
from turns.processes import process_registry, wakeups
from turns.queueing import dispatchers
from turns.running.loop_runtime import Runtime

OBJECTS_BETWEEN_ROUNDS = 10_000  # of the garbage collector


class _Role:
    """What this process is: `runner` only where `become_runner` said so."""

    runner_limit: int | None = None
    name = ""

    @classmethod
    def of_this_process(cls) -> tuple[str, int]:
        """Return the role, and how many turns may be busy here."""
        if cls.runner_limit is not None:
            return "runner", cls.runner_limit
        if dispatchers.get_dispatcher().is_embedded:
            return "embedded", app_settings.MAX_LIVE
        return "web", 0


class RuntimeStart:
    """The start of the runtime of one event loop: under way, done or failed; None if it has not begun."""

    def __init__(self) -> None:
        self.task: asyncio.Task[Runtime] | None = None

    @property
    def runtime(self) -> Runtime | None:
        task = self.task
        if task is None or not task.done() or task.cancelled() or task.exception() is not None:
            return None
        return task.result()

    @property
    def has_failed(self) -> bool:
        """Whether it ended without a runtime."""
        return self.task is not None and self.task.done() and self.runtime is None


_starts: PerLoop[RuntimeStart] = PerLoop()


def become_runner(max_live: int, *, name: str = "") -> None:
    """Let this process run up to `max_live` turns that others have queued; said before the runtime starts."""
    _Role.runner_limit, _Role.name = max_live, name


def turns_run_here() -> bool:
    """Return whether the settings let the processes that serve people run turns as well."""
    try:
        return dispatchers.get_dispatcher().is_embedded
    except ImportError:  # a check of its own says so
        return True


async def ensure_started() -> Runtime:
    """Return the runtime of this loop. The first time, end what a dead process left behind, then begin (H4).

    Where turns are run by runners, that of a process that serves people claims none.
    """
    start = _starts.get_or_make(RuntimeStart)
    if start.task is None or start.has_failed:
        # an empty context: what lives as long as the process must not hang on the request that came first
        start.task = asyncio.get_running_loop().create_task(
            _begin(), name="start of the turn supervisor", context=contextvars.Context()
        )
    return await asyncio.shield(start.task)


async def unreachable() -> list[str]:
    """Return what other processes use the same database and do not hear this one, nor are heard. Each has one line."""
    process = (await ensure_started()).process
    return [str(other) for other in await run_in_db_thread(process_registry.unreachable)(process)]


async def wake(conversation_id: UUID) -> None:
    """Tell this process that a turn of a conversation waits."""
    (await ensure_started()).supervisor.wake(conversation_id)


async def check_requests() -> None:
    """Read what is stored for the turns that this loop runs, and apply it."""
    runtime = _running()
    if runtime is not None:
        await runtime.supervisor.check_requests()


async def notify_owner(owner_id: UUID, requests: Sequence[PendingRequest]) -> None:
    """Let the owner of turns apply requests that were stored for them (C12).

    In this process it gets them as they are, another one is woken to read them. A wake-up that gets lost costs a second:
    every process reads the requests for its turns that often.
    """
    runtime = _running()
    if runtime is not None and owner_id == runtime.process.pk:
        runtime.supervisor.apply_requests(requests)
    else:
        await wakeups.send(owner_id)


async def live_turns() -> int:
    runtime = _running()
    return runtime.live_count if runtime else 0


def live_count() -> int:
    """Return how many turns this process runs now, over all of its loops; safe in any thread."""
    runtimes = [start.runtime for start in _starts.values()]
    return sum(runtime.live_count for runtime in runtimes if runtime is not None)


async def is_draining() -> bool:
    """Return whether this loop begins no more turns because the process goes down."""
    runtime = _running()
    return runtime is not None and runtime.supervisor.is_draining


async def takes_work() -> bool:
    """Return whether this loop can do what its process is for. One that runs turns may do so only under its lease."""
    runtime = _running()
    return runtime is None or not runtime.process.turn_limit or runtime.ownership.lease.is_held


def find_turn(turn_id: UUID) -> RunningTurn | None:
    runtime = _running()
    return runtime.supervisor.find_turn(turn_id) if runtime else None


async def find_call(turn_id: UUID, tool_id: str) -> LiveCall | None:
    """Return a call that waits or runs in this process."""
    runtime = _running()
    return runtime.supervisor.find_call(turn_id, tool_id) if runtime else None


def cut_grace() -> None:
    """Take what is left of the grace from the turns of this loop that is being drained."""
    runtime = _running()
    if runtime is not None:
        runtime.supervisor.cut_grace()


async def stop(*, grace: float | None = None, for_good: bool = False) -> None:
    """Drain: start nothing more, let live turns end within `grace`, cancel the rest, close every worker process.

    `for_good`: no runtime is started on this loop again. What is queued meanwhile waits for another process.
    """
    start = _starts.get()
    if start is None or start.task is None:
        return
    runtime = await asyncio.shield(start.task)
    if runtime.is_over:
        return
    await runtime.drain(grace=app_settings.DRAIN_GRACE if grace is None else grace)
    await runtime.close()
    if not for_good:
        _starts.pop()


def abandon(loop: asyncio.AbstractEventLoop) -> None:
    """End the turns of a loop that does not answer any more, without it. Another thread of a process that leaves calls this.

    Their epoch grows, so if it should answer after all, nothing more is written.
    """
    start = _starts.get(loop)
    if start is None or start.runtime is None:
        return
    try:
        recovery.end_abandoned(start.runtime.process)
    finally:
        connections.close_all()


def _running() -> Runtime | None:
    start = _starts.get()
    return start.runtime if start is not None else None


async def _begin() -> Runtime:
    role, max_live = _Role.of_this_process()
    runtime = await Runtime.begin(
        role=role, name=_Role.name, max_live=max_live, notify_owner=notify_owner
    )
    _calm_collector()
    return runtime


@cache
def _calm_collector() -> None:
    """Make the rounds of the garbage collector short and rare, once.

    What was imported is left out of them: a full round held up the event loop for 90 ms. A turn makes thousands of
    objects, nearly none of them in circles. The usual threshold had them looked at after every 700.
    """
    gc.freeze()
    youngest, *older = gc.get_threshold()
    if 0 < youngest < OBJECTS_BETWEEN_ROUNDS:
        gc.set_threshold(OBJECTS_BETWEEN_ROUNDS, *older)
