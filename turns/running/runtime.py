"""The supervisor of this process: one for each event loop, started at its first use or with the server."""

import asyncio
import contextvars
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from uuid import UUID
from weakref import WeakKeyDictionary

from django.db import connections

from governance import CancellationToken, LiveCall, LoopDetector
from governance.db import run_in_db_thread
from governance.runtime import close_executor, get_executor, refresh_policies
from turns.calls import timeout_changes
from turns.chat_models.catalog import close_connections, warm
from turns.conf import app_settings
from turns.core.ports import ClaimedTurn
from turns.core.runner import TurnRunner
from turns.core.running_turn import RunningTurn
from turns.core.supervisor import TurnSupervisor
from turns.endings import recovery
from turns.events.notifications import notify
from turns.models import Process
from turns.presence.tracker import PresenceTracker
from turns.processes import background, process_registry, wakeups
from turns.processes.wakeups import WakeupListener
from turns.queueing import dispatchers
from turns.running import progress
from turns.running.journal import DatabaseJournal
from turns.running.ownership import Ownership
from turns.running.store import DatabaseStore
from turns.running.turn_config import turn_config_of
from turns.storage.retries import until_done

logger = logging.getLogger(__name__)

TELL_BOUND = 2.0  # seconds


@dataclass(slots=True, kw_only=True)
class Runtime:
    """What runs turns on one event loop, until it `is_over`."""

    supervisor: TurnSupervisor
    ownership: Ownership
    presence: PresenceTracker
    wakeups_heard: WakeupListener
    is_over: bool = False

    @property
    def process(self) -> Process:
        """The row of this process: another one after it has lost its lease."""
        return self.ownership.process


class _Role:
    """What this process is: `runner` only where `become_runner` said so."""

    runner_limit: int | None = None

    @classmethod
    def of_this_process(cls) -> tuple[str, int]:
        """Return the role, and how many turns may be busy here."""
        if cls.runner_limit is not None:
            return "runner", cls.runner_limit
        if dispatchers.get_dispatcher().is_embedded:
            return "embedded", app_settings.MAX_LIVE
        return "web", 0


_starting: "WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Task[Runtime]]" = (
    WeakKeyDictionary()
)

_on_draining: "WeakKeyDictionary[asyncio.AbstractEventLoop, list[Callable[[], object]]]" = (
    WeakKeyDictionary()
)


def become_runner(max_live: int) -> None:
    """Let this process run up to `max_live` turns that others have queued; said before the runtime starts."""
    _Role.runner_limit = max_live


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
    loop = asyncio.get_running_loop()
    starting = _starting.get(loop)
    if starting is None or (starting.done() and (starting.cancelled() or starting.exception())):
        # an empty context: what lives as long as the process must not hang on the request that came first
        starting = _starting[loop] = loop.create_task(
            _start(), name="start of the turn supervisor", context=contextvars.Context()
        )
    return await asyncio.shield(starting)


async def unreachable() -> list[str]:
    """Return what other processes use the same database and do not hear this one, nor are heard: one line for each."""
    process = (await ensure_started()).process
    return [str(other) for other in await run_in_db_thread(process_registry.unreachable)(process)]


async def wake(conversation_id: UUID) -> None:
    """Tell this process that a turn of a conversation waits."""
    (await ensure_started()).supervisor.wake(conversation_id)


async def check_requests(owner_id: UUID | None = None) -> None:
    """Let the owner of a turn obey what is stored for it now: this process, or another one by a hint (C12).

    A hint that gets lost costs a second: every process reads the stored requests of its turns that often.
    """
    runtime = _running()
    if runtime is not None and owner_id in (None, runtime.process.pk):
        await _obey(runtime.supervisor)
    elif owner_id is not None:
        await wakeups.send(owner_id)


async def live_turns() -> int:
    """Return how many turns this loop runs now."""
    runtime = _running()
    return len(tuple(runtime.supervisor.live_turns)) if runtime else 0


def live_count() -> int:
    """Return how many turns this process runs now, over all of its loops; safe in any thread."""
    starting = [task for _, task in list(_starting.items())]
    started = [task.result() for task in starting if _has_started(task)]
    return sum(len(tuple(runtime.supervisor.live_turns)) for runtime in started)


async def is_draining() -> bool:
    """Return whether this loop begins no more turns because the process goes down."""
    runtime = _running()
    return runtime is not None and runtime.supervisor.is_draining


async def takes_work() -> bool:
    """Return whether this loop can do what its process is for: one that runs turns may do so only under its lease."""
    runtime = _running()
    return runtime is None or not runtime.process.turn_limit or runtime.ownership.lease.is_held


def find_turn(turn_id: UUID) -> RunningTurn | None:
    """Return a turn that this loop runs now."""
    runtime = _running()
    return runtime.supervisor.find_turn(turn_id) if runtime else None


async def find_call(turn_id: UUID, tool_id: str) -> LiveCall | None:
    """Return a call that waits or runs in this process."""
    runtime = _running()
    return runtime.supervisor.find_call(turn_id, tool_id) if runtime else None


def on_draining(told: Callable[[], object]) -> None:
    """Call `told` once, when this loop begins to drain."""
    _on_draining.setdefault(asyncio.get_running_loop(), []).append(told)


def cut_grace() -> None:
    """Take what is left of the grace from the turns of this loop that is being drained."""
    runtime = _running()
    if runtime is not None:
        runtime.supervisor.cut_grace()


async def stop(*, grace: float | None = None, for_good: bool = False) -> None:
    """Drain: start nothing more, let live turns end within `grace`, cancel the rest, close every worker process.

    `for_good`: no runtime is started on this loop again. What is queued meanwhile waits for another process.
    """
    loop = asyncio.get_running_loop()
    starting = _starting.get(loop)
    if starting is None:
        return
    runtime = await asyncio.shield(starting)
    if runtime.is_over:
        return
    dispatchers.detach()
    runtime.supervisor.close()
    for told in _on_draining.pop(loop, ()):
        told()
    await _tell_draining(runtime.process)
    await runtime.supervisor.drain(grace=app_settings.DRAIN_GRACE if grace is None else grace)
    runtime.is_over = True
    for step in (
        background.join,
        progress.close,
        close_executor,
        close_connections,
        runtime.wakeups_heard.close,
        runtime.ownership.end,
    ):
        try:
            await step()
        except Exception:
            logger.exception("A part of the runtime could not be closed")
    if not for_good:
        _starting.pop(loop, None)


def abandon(loop: asyncio.AbstractEventLoop) -> None:
    """End the turns of a loop that does not answer any more, without it; for another thread of a process that leaves.

    Their epoch grows, so if it should answer after all, nothing more is written.
    """
    starting = _starting.get(loop)
    if starting is None or not starting.done() or starting.cancelled() or starting.exception():
        return
    try:
        recovery.end_abandoned(starting.result().process)
    finally:
        connections.close_all()


def _running() -> Runtime | None:
    starting = _starting.get(asyncio.get_running_loop())
    return starting.result() if starting is not None and _has_started(starting) else None


def _has_started(starting: "asyncio.Task[Runtime]") -> bool:
    return starting.done() and not starting.cancelled() and starting.exception() is None


async def _tell_draining(process: Process) -> None:
    """Let others see that this process starts nothing more; it drains whether they do or not."""
    try:
        async with asyncio.timeout(TELL_BOUND):
            await run_in_db_thread(process_registry.note_draining)(process)
    except Exception:
        logger.exception("It could not be noted that the process drains")


async def _start() -> Runtime:
    await get_executor()
    role, max_live = _Role.of_this_process()
    if max_live:
        warm(app_settings.CHAT_MODEL)
    register = partial(process_registry.register, role=role, turn_limit=max_live)
    ownership = Ownership(lambda: run_in_db_thread(register)(has_shared_layer=wakeups.are_shared()))
    await ownership.begin()
    presence = PresenceTracker(ownership.process, check_requests=check_requests)

    async def on_poll() -> None:
        await timeout_changes.obey(supervisor)
        await refresh_policies()
        await presence.poll()

    supervisor = TurnSupervisor(
        store=DatabaseStore(ownership),
        make_runner=partial(_make_runner, ownership),
        poll_interval=app_settings.POLL_INTERVAL,
        cancel_bound=app_settings.CANCEL_BOUND,
        sweep_interval=app_settings.SWEEP_INTERVAL,
        on_poll=on_poll,
        max_live=max_live,
    )
    wakeups_heard = WakeupListener(partial(_obey, supervisor))

    def moved(process: Process) -> None:
        presence.move(process)
        wakeups_heard.listen_for(process.pk)

    ownership.cover(supervisor, moved=moved)
    recovered, waiting = await run_in_db_thread(recovery.recover)()
    if await run_in_db_thread(process_registry.lack_shared_layer)():
        logger.error("Several processes are alive that do not hear each other: set REDIS_URL")
    await notify(recovered, check_requests=wakeups.send)
    supervisor.start()
    for conversation_id in waiting:
        supervisor.wake(conversation_id)
    dispatchers.attach(supervisor.wake)
    wakeups_heard.listen_for(ownership.process.pk)
    return Runtime(
        supervisor=supervisor, ownership=ownership, presence=presence, wakeups_heard=wakeups_heard
    )


async def _obey(supervisor: TurnSupervisor) -> None:
    """Read what is stored for the turns that run here, and do it."""
    await supervisor.check_requests()
    await timeout_changes.obey(supervisor)


async def _make_runner(
    ownership: Ownership, turn: ClaimedTurn, token: CancellationToken
) -> TurnRunner:
    lease = ownership.lease
    return TurnRunner(
        turn,
        config=await until_done(partial(turn_config_of, turn, token=token), lease=lease),
        executor=await get_executor(),
        journal=DatabaseJournal(turn, token=token, lease=lease),
        loops=_loop_detector(),
        token=token,
    )


def _loop_detector() -> LoopDetector:
    if app_settings.LOOP_WARN_AFTER is None:
        return LoopDetector.off()
    return LoopDetector(
        window=app_settings.LOOP_WINDOW,
        warn_after=app_settings.LOOP_WARN_AFTER,
        halt_after=app_settings.LOOP_HALT_AFTER,
    )
