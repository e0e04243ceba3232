"""Writes of a turn's owner: what waits is one fenced transaction, which can be repeated if its answer was lost.

Calls of a step start and end side by side. All that waits while one transaction is under way becomes the next one. So a
cancel is not late, however many calls there are (C1).
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from governance.db import run_in_db_thread_plainly
from governance.transactions import atomic
from turns.cancelling import cancel_requests
from turns.core.events import TurnEvent
from turns.core.exceptions import Fenced
from turns.core.ports import ClaimedTurn
from turns.core.requests import PendingCancel
from turns.events import log, sinks
from turns.models import Turn
from turns.processes.leases import Lease
from turns.storage.priority_lock import PriorityLock, Urgency
from turns.storage.retries import until_done
from turns.storage.turn_lock import has_requests, lock_live_turn

Obey = Callable[[PendingCancel], object]
"""Applies a request to the turn as it runs here; a second time it has no effect."""

Change = Callable[[Turn, Sequence[Any]], list[TurnEvent]]
"""Writes what all its items ask for, and returns the events of that."""


def one_by_one(change: Callable[..., list[TurnEvent]]) -> Change:
    """Return a change that is made once for each item, a tuple of arguments."""

    def changes(turn: Turn, items: Sequence[Any]) -> list[TurnEvent]:
        return [event for item in items for event in change(turn, *item)]

    return changes


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    change: Change
    item: Any
    urgency: Urgency
    done: "asyncio.Future[None]"


class Write:
    """Changes of a turn that are made together, and the `events` that they have come to (sync ORM).

    If a commit was lost on its way back, the first event tells. It is in the log, under its number and its moment. A
    change without events has to be one that is the same done twice. `events` are those of an earlier try that may be in
    the log.
    """

    def __init__(
        self,
        turn: ClaimedTurn,
        entries: Sequence[_Entry],
        *,
        events: Sequence[log.WireEvent] = (),
    ) -> None:
        self.events = list(events)
        self._turn = turn
        self._items: dict[Change, list[Any]] = {}
        self._ends: dict[Change, int] = {}  # of the events that each change has come to
        for entry in entries:
            self._items.setdefault(entry.change, []).append(entry.item)

    def __call__(self) -> list[PendingCancel]:
        """Carry them out and append the events, if the turn is still ours. Return the requests to cancel that are open.

        Raises:
            Fenced: the turn has another owner or has ended.
        """
        turn = self._turn
        with atomic():
            row = lock_live_turn(turn.id, epoch=turn.epoch)
            if row is None:
                raise Fenced(f"turn {turn.id} is not ours any more")
            if not (self.events and log.has(row.conversation_id, self.events[0])):
                events: list[TurnEvent] = []
                row.batch = self._items  # what one change can do for another
                for change, items in self._items.items():
                    events += change(row, items)
                    self._ends[change] = len(events)
                self.events = log.append(row.conversation, turn.id, *events, is_news=False)
            return cancel_requests.pending([turn.id]) if has_requests(row) else []

    def parts(self) -> dict[Change, list[log.WireEvent]]:
        """Return the changes, in their order, each with the events that it has come to."""
        begin, parts = 0, {}
        for change in self._items:
            end = self._ends.get(change, begin)
            parts[change] = self.events[begin:end]
            begin = end
        return parts


class Writer:
    """The writes of one claimed turn, one transaction after the other.

    A write that finds stored cancel requests lets them be obeyed at once (C1). Without its `lease` nothing is written,
    and the database is not asked.
    """

    def __init__(
        self,
        turn: ClaimedTurn,
        *,
        obey: Obey,
        lock: PriorityLock,
        lease: Lease | None = None,
    ) -> None:
        self._turn = turn
        self._obey = obey
        self._lock = lock
        self._lease = lease
        self._waiting: list[_Entry] = []
        self._writing: asyncio.Task[None] | None = None

    def add(
        self,
        change: Change,
        item: Any = (),
        *,
        urgency: Urgency = Urgency.WORK,
        more_follows: bool = False,
    ) -> "asyncio.Future[None]":
        """Let a change be written with what else waits; the future is done when it is stored and published.

        If `more_follows`, tasks that were just begun add what they have first. The future raises `Fenced` if the turn has
        another owner or has ended, `NotStored` if the database refuses.
        """
        loop = asyncio.get_running_loop()
        entry = _Entry(change=change, item=item, urgency=urgency, done=loop.create_future())
        self._waiting.append(entry)
        if self._writing is None or self._writing.done():
            writing = self._write(pauses=more_follows)
            self._writing = loop.create_task(writing, name=f"writes of turn {self._turn.id}")
        return entry.done

    async def _write(self, *, pauses: bool) -> None:
        if pauses:
            await asyncio.sleep(0)
        while self._waiting:
            batch = _Batch(self._turn, self._waiting, lock=self._lock)
            for part in await self._store(batch):
                await self._store(part)

    async def _store(self, batch: "_Batch") -> "list[_Batch]":
        """Write, publish, and tell who waits. Return the parts to be tried alone: one may be taken without the other."""
        try:
            requests = await until_done(batch.trigger, lease=self._lease)
        except Exception as error:  # noqa: BLE001 - raised where it is waited for
            parts = [] if isinstance(error, Fenced) else batch.parts()
            if not parts:
                batch.fail(error)
            return parts
        for request in requests:
            self._obey(request)
        await sinks.publish(self._turn.conversation_id, batch.events)
        batch.succeed()
        return []


class _Batch:
    """What waits when the lock is free for the first time; a repetition writes the same again."""

    def __init__(
        self,
        turn: ClaimedTurn,
        waiting: list[_Entry],
        *,
        lock: PriorityLock,
        events: Sequence[log.WireEvent] = (),
    ) -> None:
        self._turn = turn
        self._lock = lock
        self._waiting = waiting
        self._entries: list[_Entry] = []
        self._write = Write(turn, (), events=events)

    @property
    def events(self) -> list[log.WireEvent]:
        return self._write.events

    async def trigger(self) -> list[PendingCancel]:
        """Pass the lane and write."""
        urgency = min(entry.urgency for entry in self._entries or self._waiting)
        async with self._lock.acquired(urgency):
            self._take()
            return await _write_in_db(self._write)

    def parts(self) -> "list[_Batch]":
        """Return a batch for each of several changes, in their order; none if it is one change.

        The whole may be stored although no answer came: a part finds its events in the log then.
        """
        parts = self._write.parts()
        if len(parts) < 2:
            return []
        batches = []
        for change, events in parts.items():
            entries = [entry for entry in self._entries if entry.change == change]
            batches.append(_Batch(self._turn, entries, lock=self._lock, events=events))
        return batches

    def succeed(self) -> None:
        """Tell everybody who waits for a part of it."""
        for entry in self._entries:
            if not entry.done.done():
                entry.done.set_result(None)

    def fail(self, error: Exception) -> None:
        """Tell everybody who waits for a part of it, also if it never began."""
        self._take()
        for entry in self._entries:
            if not entry.done.done():
                entry.done.set_exception(error)
                entry.done.exception()  # looked at, in case nobody waits for it (any more)

    def _take(self) -> None:
        if not self._entries:
            self._entries, self._waiting[:] = list(self._waiting), []
            self._write = Write(self._turn, self._entries, events=self._write.events)


_write_in_db = run_in_db_thread_plainly(Write.__call__)
