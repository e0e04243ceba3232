"""Stores the progress of running calls for all turns of a process at once, without delaying other writes (V1).

Many tools report every second. Progress is a hint for those who watch. The newest of each call is kept until it can be
written, and dropped when the call ends.
"""

import asyncio
import logging
from collections.abc import Sequence
from contextvars import Context
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db import transaction

from governance import CallStatus, LiveCall, recorder
from governance.db import run_in_db_thread
from turns.core.events import milliseconds
from turns.core.ports import ClaimedTurn
from turns.core.tool_events import ToolProgress
from turns.core.turns import LIVE_STATUSES
from turns.events import log, sinks
from turns.models import Conversation, Turn
from turns.processes.leases import Lease
from turns.storage.priority_lock import PriorityLock, Urgency

logger = logging.getLogger(__name__)

PAUSE = 0.5  # seconds between two writes at least,
SHARE = 10  # and so many times as long as the last one took,
LONGEST_PAUSE = 2.0  # but not longer than this: for whoever waits, progress is the sign of life


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The progress of one call at one moment."""

    turn: ClaimedTurn
    tool_id: str
    tool_name: str
    progress: dict[str, Any]
    elapsed_ms: int

    @classmethod
    def of(cls, turn: ClaimedTurn, call: LiveCall) -> "Report":
        return cls(
            turn=turn,
            tool_id=call.id,
            tool_name=call.call.tool_name,
            progress=recorder.progress_of(call),
            elapsed_ms=milliseconds(call.elapsed) or 0,
        )

    @property
    def key(self) -> recorder.CallKey:
        """The turn and the id of the call, as governance knows it."""
        return str(self.turn.id), self.tool_id

    def event(self) -> ToolProgress:
        """Return what clients are told."""
        return ToolProgress(
            tool_id=self.tool_id,
            tool_name=self.tool_name,
            elapsed_ms=self.elapsed_ms,
            status="running",
            progress=self.progress.get("progress"),
            total=self.progress.get("total"),
            message=self.progress.get("message") or None,
            tail=self.progress.get("tail"),
        )


class ProgressWriter:
    """Writes the newest progress of the calls of one event loop, behind all other writes."""

    def __init__(self, lock: PriorityLock) -> None:
        self._lock = lock
        self._pending: dict[LiveCall, tuple[ClaimedTurn, Lease | None]] = {}
        self._writing: asyncio.Task[None] | None = None

    def note(self, turn: ClaimedTurn, call: LiveCall, *, lease: Lease | None) -> None:
        """Let the progress of a call be written soon, as it is then."""
        self._pending[call] = turn, lease
        if self._writing is None or self._writing.done():
            loop = asyncio.get_running_loop()
            self._writing = loop.create_task(
                self._write(), name="writes of progress", context=Context()
            )

    async def close(self) -> None:
        self._pending.clear()
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.wait({self._writing})

    async def _write(self) -> None:
        loop = asyncio.get_running_loop()
        while self._pending:
            began_at = loop.time()
            try:
                async with self._lock.acquired(Urgency.PROGRESS):
                    batches = await _store(self._take())
            except Exception as failure:  # noqa: BLE001 - the next one says more
                logger.warning("The progress of calls was not stored: %s", type(failure).__name__)
            else:
                for conversation_id, events in batches:
                    await sinks.publish(conversation_id, events)
            took = loop.time() - began_at
            await asyncio.sleep(max(PAUSE, min(SHARE * took, LONGEST_PAUSE)))

    def _take(self) -> list[Report]:
        pending, self._pending = self._pending, {}
        return [
            Report.of(turn, call)
            for call, (turn, lease) in pending.items()
            if call.status is CallStatus.RUNNING and (lease is None or lease.is_held)
        ]


def store(reports: Sequence[Report]) -> list[log.Batch]:
    """Store the progress of calls that run, of turns that are still ours, and return what is to be published.

    A conversation that somebody else is writing is left out. This waits for nobody, so nobody waits for it in a circle.
    """
    with transaction.atomic():
        conversations = _free([report.turn.conversation_id for report in reports])
        ours = _live([report.turn.id for report in reports])
        written = {
            report.key: report
            for report in reports
            if report.turn.conversation_id in conversations
            and (report.turn.id, report.turn.epoch) in ours
        }
        running = recorder.record_progress({key: it.progress for key, it in written.items()})
        told: dict[UUID, list[Report]] = {}
        for key, report in written.items():  # in the order in which calls have reported
            if key in running:
                told.setdefault(report.turn.conversation_id, []).append(report)
        return log.append_to_all(
            (conversations[place], of_place[0].turn.id, [report.event() for report in of_place])
            for place, of_place in told.items()
        )


_store = run_in_db_thread(store)


def _free(conversation_ids: Sequence[UUID]) -> dict[UUID, Conversation]:
    rows = Conversation.objects.select_for_update(skip_locked=True)
    return {row.pk: row for row in rows.filter(pk__in=conversation_ids)}


def _live(turn_ids: Sequence[UUID]) -> set[tuple[UUID, int]]:
    live = Turn.objects.filter(pk__in=turn_ids, status__in=LIVE_STATUSES)
    return set(live.values_list("pk", "epoch"))
