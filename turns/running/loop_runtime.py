"""What runs turns on one event loop: its parts are made, started and closed here."""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from uuid import UUID

from governance import LoopDetector, rollups
from governance.db import run_in_db_thread
from governance.runtime import close_executor, get_executor, refresh_policies
from turns.chat_models.catalog import close_connections, warm
from turns.conf import app_settings
from turns.core.periodic import run_periodically
from turns.core.ports import ClaimedTurn
from turns.core.runner import TurnRunner
from turns.core.running_turn import RunningTurn
from turns.core.supervisor import TurnSupervisor
from turns.endings import deletions, recovery
from turns.events.notifications import NotifyOwner, notify
from turns.models import Process
from turns.presence.tracker import PresenceTracker
from turns.processes import background, process_registry, wakeups
from turns.processes.tool_reports import ToolReporter
from turns.processes.wakeups import WakeupListener
from turns.queueing import dispatchers
from turns.running.journal import DatabaseJournal
from turns.running.ownership import Ownership
from turns.running.progress import ProgressWriter
from turns.running.store import DatabaseStore
from turns.running.text_writes import TextWrites
from turns.running.turn_config import turn_config_of
from turns.storage.priority_lock import PriorityLock
from turns.storage.retries import until_done

logger = logging.getLogger(__name__)

NOTE_LIMIT = 2.0  # seconds
ROLL_UP_INTERVAL = 300.0  # seconds between two looks for an hour that is over
ROLL_UP_JITTER = 0.2
DELETIONS_JITTER = 0.2


class Runtime:
    """Runs turns on one event loop, until it `is_over`; up to `max_live` of them may be busy at once."""

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
        """Register this process, end what a dead one left behind, then let turns begin (H4).

        `notify_owner` reaches the owner of a turn, in whatever process it is.
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
        """The row of this process: another one after it has lost its lease."""
        return self.ownership.process

    @property
    def live_count(self) -> int:
        return len(tuple(self.supervisor.live_turns))

    def finish_deletions(self) -> None:
        """Go on with deleted conversations now, where workspaces are; a process without turns leaves it to the others."""
        if self._runs_turns:
            background.spawn(self._deletions(), name="deleted conversations")

    def reserve(self, conversation_id: UUID) -> "asyncio.Future[ClaimedTurn | None] | None":
        """Take a slot for a turn that is about to be stored, if it can run here at once."""
        return self.supervisor.reserve(conversation_id) if self.ownership.lease.is_held else None

    def on_draining(self, callback: Callable[[], object]) -> None:
        """Call this once, when the runtime begins to drain."""
        self._callbacks.append(callback)

    async def drain(self, *, grace: float) -> None:
        """Start nothing more, let live turns end within `grace` seconds, and cancel the rest."""
        dispatchers.detach()
        self.supervisor.close()
        for callback in self._callbacks:
            callback()
        await self._note_draining()
        await self.supervisor.drain(grace=grace)
        self.is_over = True

    async def close(self) -> None:
        """Close all that was begun here; what fails keeps nothing else open."""
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
        recovered, waiting = await run_in_db_thread(recovery.recover)()
        if await run_in_db_thread(process_registry.lack_shared_layer)():
            logger.error("Several processes are alive that do not hear each other: set REDIS_URL")
        await notify(recovered, notify_owner=self._notify_owner)
        self.supervisor.start()
        for conversation_id in waiting:
            self.supervisor.wake(conversation_id)
        dispatchers.attach(self.supervisor.wake)
        self._listener.listen_for(self.process.pk)
        self._start_periodic_tasks()

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
        """Go on under another row, since the lease of the last one was lost."""
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
                lease=lease,
                lock=self.lock,
                progress=self.progress,
                texts=self.texts,
            ),
            loops=_loop_detector(),
            token=token,
        )

    def _clear_up(self, turn_id: UUID, workspace: Path | None) -> None:
        """Leave no workspace of a turn that is not ours any more because it was deleted."""
        if workspace is not None and self.ownership.lease.is_held:
            work = deletions.remove_left_behind(turn_id, workspace)
            background.spawn(work, name="workspace of a deleted turn")

    async def _note_draining(self) -> None:
        """Let others see that this process starts nothing more; it drains whether they do or not."""
        try:
            async with asyncio.timeout(NOTE_LIMIT):
                await run_in_db_thread(process_registry.note_draining)(self.process)
        except Exception:
            logger.exception("It could not be noted that the process drains")


async def _roll_up() -> None:
    """Roll up each hour that is over; others have the database's thread between two of them."""
    is_behind = True
    while is_behind:
        is_behind = await run_in_db_thread(rollups.roll_up)()


def _loop_detector() -> LoopDetector:
    if app_settings.LOOP_WARN_AFTER is None:
        return LoopDetector.off()
    return LoopDetector(
        window=app_settings.LOOP_WINDOW,
        warn_after=app_settings.LOOP_WARN_AFTER,
        halt_after=app_settings.LOOP_HALT_AFTER,
    )
