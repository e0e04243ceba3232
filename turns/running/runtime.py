"""Start here for how a process runs turns: one `Runtime` per event loop, started at its first use or with the server.

The class creates, starts and closes its parts. The functions below are the interface for the rest of the process.
"""

import asyncio
import contextvars
import gc
import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache, partial
from pathlib import Path
from uuid import UUID

from django.db import connections

from governance import Cancellation, LoopDetector, rollups
from governance.db import run_in_db_thread, thread_of_test
from governance.per_loop import PerLoop
from governance.runtime import close_executor, get_executor, prepare_tools, refresh_policies
from turns.chat_models.providers import close_connections, warm
from turns.conf import app_settings
from turns.core.periodic import run_periodically
from turns.core.runner import TurnRunner
from turns.core.supervisor import RunningTurn, TurnSupervisor
from turns.core.turns import PendingCancel, PendingRequest
from turns.endings import deletions, recovery
from turns.events.notifications import NotifyOwner, notify
from turns.models import Process
from turns.presence.viewers import PresenceTracker
from turns.processes import background, process_registry, wakeups
from turns.processes.tool_reports import ToolReporter
from turns.processes.wakeups import WakeupListener
from turns.queueing import dispatchers
from turns.running.journal import DatabaseJournal, ProgressWriter, TextWrites
from turns.running.ownership import Ownership
from turns.running.store import DatabaseStore
from turns.running.turn_config import turn_config_of
from turns.running.write_queue import PriorityLock, until_done

logger = logging.getLogger(__name__)

NOTE_LIMIT = 2.0  # seconds
ROLL_UP_INTERVAL = 300.0  # seconds between two checks for a completed hour
ROLL_UP_JITTER = 0.2
DELETIONS_JITTER = 0.2
LOOP_WINDOW = 30  # remembered calls of a turn; more if the settings need them
OBJECTS_BETWEEN_ROUNDS = 10_000  # allocations between two runs of the garbage collector


class Runtime:
    """Runs turns on one event loop until it `is_over`; up to `max_live` of them may be busy."""

    def __init__(
        self,
        ownership: Ownership,
        *,
        max_live: int,
        notify_owner: NotifyOwner,
    ) -> None:
        self.is_over = False
        self.ownership = ownership
        self.lock = PriorityLock()
        self.progress = ProgressWriter(self.lock)
        self.texts = TextWrites()
        self.presence = PresenceTracker(ownership.process, notify_owner=notify_owner)
        self.supervisor = TurnSupervisor(
            store=DatabaseStore(ownership, lock=self.lock, notify_owner=notify_owner),
            make_runner=self._make_runner,
            poll_interval=app_settings.POLL_INTERVAL,
            cancel_bound=app_settings.CANCEL_BOUND,
            sweep_interval=app_settings.SWEEP_INTERVAL,
            on_poll=self._poll,
            max_live=max_live,
        )
        self._notify_owner = notify_owner
        self._tool_reporter = ToolReporter()
        self._listener = WakeupListener(self.supervisor.check_requests)
        self._deletions = partial(deletions.finish, notify_owner=notify_owner)
        self._runs_turns = max_live > 0
        self._callbacks: list[Callable[[], object]] = []
        self._periodic_tasks: set[asyncio.Task[None]] = set()

    @classmethod
    async def begin(
        cls, *, role: str, name: str = "", max_live: int, notify_owner: NotifyOwner
    ) -> "Runtime":
        """Register this process, end the turns of dead processes, then start turns (H4).

        `notify_owner` notifies the process that owns a turn.
        """
        await get_executor()
        if max_live:
            warm(app_settings.CHAT_MODEL)
        register = partial(process_registry.register, role=role, name=name, turn_limit=max_live)
        ownership = Ownership(
            lambda: run_in_db_thread(register)(has_shared_layer=wakeups.are_shared()),
            notify_owner=notify_owner,
        )
        await ownership.begin()
        runtime = cls(ownership, max_live=max_live, notify_owner=notify_owner)
        await runtime._start()
        return runtime

    @property
    def process(self) -> Process:
        """Return this process's row, which changes after a lost lease."""
        return self.ownership.process

    def finish_deletions(self) -> None:
        """Continue deleting conversations now if this process has workspaces; a process without turns leaves this to
        others.
        """
        if self._runs_turns:
            background.spawn(self._deletions(), name="deleted conversations")

    def on_draining(self, callback: Callable[[], object]) -> None:
        """Call `callback` once when the runtime starts to drain."""
        self._callbacks.append(callback)

    async def drain(self, *, grace: float) -> None:
        """Start no more turns, give live ones `grace` seconds to end, and cancel those that do not end."""
        dispatchers.detach()
        self.supervisor.close()
        for callback in self._callbacks:
            callback()
        await self._note_draining()
        await self.supervisor.drain(grace=grace)
        self.is_over = True

    async def close(self) -> None:
        """Close all parts; a failure of one does not prevent the others from closing."""
        for step in (
            background.join,
            self.progress.close,
            close_executor,
            close_connections,
            self._listener.close,
            self._stop_periodic_tasks,
            self.ownership.end,
        ):
            try:
                await step()
            except Exception:
                logger.exception("A part of the runtime could not be closed")

    async def _start(self) -> None:
        self.ownership.cover(self.supervisor, moved=self._move)
        recovered = await run_in_db_thread(recovery.recover)()
        if await run_in_db_thread(process_registry.lack_shared_layer)():
            logger.error(
                "Several processes are alive that do not hear each other: give them one CHANNEL_LAYERS"
            )
        await notify(recovered, notify_owner=self._notify_owner)
        self.supervisor.start()
        dispatchers.attach(self.supervisor.wake)
        self._listener.listen_for(self.process.pk)
        self._start_periodic_tasks()
        if self._runs_turns:
            # Start them now, because the first turn would otherwise lack the tools of servers that start slowly.
            background.spawn(prepare_tools(), name="MCP servers")

    def _start_periodic_tasks(self) -> None:
        self._periodic_tasks.add(
            run_periodically(
                _roll_up,
                name="roll-up of durations",
                interval=ROLL_UP_INTERVAL,
                jitter=ROLL_UP_JITTER,
            )
        )
        if self._runs_turns:
            self._periodic_tasks.add(
                run_periodically(
                    self._deletions,
                    name="deleted conversations",
                    interval=app_settings.SWEEP_INTERVAL,
                    jitter=DELETIONS_JITTER,
                )
            )

    async def _stop_periodic_tasks(self) -> None:
        for task in self._periodic_tasks:
            task.cancel()
        if self._periodic_tasks:
            await asyncio.wait(self._periodic_tasks)

    def _move(self, process: Process) -> None:
        """Continue under another row after a lost lease."""
        self.presence.move(process)
        self._listener.listen_for(process.pk)

    async def _poll(self) -> None:
        await refresh_policies()
        await self.presence.poll()
        await self._tool_reporter.report(self.process)

    async def _make_runner(self, live: RunningTurn) -> TurnRunner:
        turn, token, lease = live.turn, live.token, self.ownership.lease
        config = await until_done(partial(turn_config_of, turn, token=token), lease=lease)
        live.when_lost = partial(self._clear_up, turn.id, config.workspace)
        return TurnRunner(
            turn,
            config=config,
            executor=await get_executor(),
            journal=DatabaseJournal(
                turn,
                token=token,
                obey=live.apply,
                until_stored=live.until_stored,
                lease=lease,
                lock=self.lock,
                progress=self.progress,
                texts=self.texts,
            ),
            loops=loop_detector(),
            token=token,
        )

    def _clear_up(self, turn_id: UUID, workspace: Path | None) -> None:
        """Remove the workspace of a turn that was deleted while it ran."""
        if workspace is not None and self.ownership.lease.is_held:
            work = deletions.remove_left_behind(turn_id, workspace)
            background.spawn(work, name="workspace of a deleted turn")

    async def _note_draining(self) -> None:
        """Record that this process is draining; a failure does not prevent the drain."""
        try:
            async with asyncio.timeout(NOTE_LIMIT):
                await run_in_db_thread(process_registry.note_draining)(self.process)
        except Exception:
            logger.exception("It could not be noted that the process drains")


async def _roll_up() -> None:
    """Roll up the durations of each completed hour, releasing the database thread in between."""
    is_behind = True
    while is_behind:
        is_behind = await run_in_db_thread(rollups.roll_up)()


def loop_detector() -> LoopDetector:
    """Return a loop detector for one turn. Raise `ValueError` if the settings are inconsistent."""
    warn_after, halt_after = app_settings.LOOP_WARN_AFTER, app_settings.LOOP_HALT_AFTER
    if warn_after is None:
        return LoopDetector.off()
    window = max(LOOP_WINDOW, halt_after or warn_after)
    return LoopDetector(window=window, warn_after=warn_after, halt_after=halt_after)


class _Role:
    """The role of this process. It is `runner` only after `become_runner`."""

    runner_limit: int | None = None
    name = ""

    @classmethod
    def of_this_process(cls) -> tuple[str, int]:
        """Return the role, and the number of turns that may be busy here."""
        if cls.runner_limit is not None:
            return "runner", cls.runner_limit
        if dispatchers.get_dispatcher().is_embedded:
            return "embedded", app_settings.MAX_LIVE
        return "web", 0


class RuntimeStart:
    """The start of an event loop's runtime: in progress, done or failed. `task` is None before the start."""

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
        return self.task is not None and self.task.done() and self.runtime is None


_starts: PerLoop[RuntimeStart] = PerLoop()


def become_runner(max_live: int, *, name: str = "") -> None:
    """Make this process a runner with up to `max_live` concurrent turns; call it before the runtime starts."""
    _Role.runner_limit, _Role.name = max_live, name


def turns_run_here() -> bool:
    """Return whether the processes that serve users also run turns."""
    try:
        return dispatchers.get_dispatcher().is_embedded
    except ImportError:  # a system check reports this
        return True


async def ensure_started() -> Runtime:
    """Return this loop's runtime. The first call ends the turns of dead processes, then starts it (H4).

    If runners run the turns, the runtime of a web process claims none.
    """
    thread_of_test()  # look it up now, because the task below has an empty context
    start = _starts.get_or_make(RuntimeStart)
    if start.task is None or start.has_failed:
        # an empty context, because long-lived tasks must not keep the context of the first request
        start.task = asyncio.get_running_loop().create_task(
            _begin(), name="start of the turn supervisor", context=contextvars.Context()
        )
    return await asyncio.shield(start.task)


async def unreachable() -> list[str]:
    """Return a line for each process that uses the same database but cannot exchange messages with this one."""
    process = (await ensure_started()).process
    return [str(other) for other in await run_in_db_thread(process_registry.unreachable)(process)]


async def notify_owner(owner_id: UUID, requests: Sequence[PendingRequest]) -> None:
    """Make the owner of turns apply their stored requests (C12).

    An owner in this process receives them directly; another process is notified to read them. A lost notification costs
    at most a second, because every process polls the requests of its turns once a second.
    """
    runtime = _running()
    if runtime is not None and owner_id == runtime.process.pk:
        runtime.supervisor.apply_requests(requests)
    else:
        await wakeups.send(owner_id)


def live_count() -> int:
    """Return the number of turns that this process runs on all loops; safe in any thread."""
    runtimes = [start.runtime for start in _starts.values()]
    return sum(len(runtime.supervisor.live_turns) for runtime in runtimes if runtime is not None)


async def is_draining() -> bool:
    """Return whether the process is shutting down, so that this loop starts no more turns."""
    runtime = _running()
    return runtime is not None and runtime.supervisor.is_draining


async def takes_work() -> bool:
    """Return whether this loop can do its work; a loop that runs turns needs a valid lease."""
    runtime = _running()
    return runtime is None or not runtime.process.turn_limit or runtime.ownership.lease.is_held


def find_turn(turn_id: UUID) -> RunningTurn | None:
    runtime = _running()
    return runtime.supervisor.find_turn(turn_id) if runtime else None


def obeyed(
    request: PendingCancel, *, for_descendants: Cancellation | None = None
) -> AbstractContextManager[frozenset[UUID]]:
    """Cancel a turn that runs on this loop while the request is being stored. With `for_descendants`, cancel its
    descendants on this loop too.

    The context manager returns the ids of the turns that were cancelled here.
    """
    runtime = _running()
    return (
        nullcontext(frozenset())
        if runtime is None
        else runtime.supervisor.obeyed(request, for_descendants=for_descendants)
    )


def cut_grace() -> None:
    """End the grace period of this loop's drain."""
    runtime = _running()
    if runtime is not None:
        runtime.supervisor.cut_grace()


async def stop(*, grace: float | None = None, for_good: bool = False) -> None:
    """Drain: start no more turns, give live ones `grace` seconds to end, cancel those that do not, and close every
    worker process.

    With `for_good`, no runtime is started on this loop again. Turns that are queued later wait for another process.
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
    """End the turns of a blocked loop from another thread, while the process exits.

    This increases their epoch, so the loop can no longer write if it recovers.
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
    """Make garbage collection short and rare, once per process.

    Imported objects are frozen, because a full collection blocked the event loop for 90 ms. The threshold is raised,
    because a turn creates thousands of objects, almost none in cycles, and the default runs a collection every 700.
    """
    gc.freeze()
    youngest, *older = gc.get_threshold()
    if 0 < youngest < OBJECTS_BETWEEN_ROUNDS:
        gc.set_threshold(OBJECTS_BETWEEN_ROUNDS, *older)
