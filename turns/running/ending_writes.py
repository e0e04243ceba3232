"""Stores the endings of the turns of a process: those that end together, as a family that is cancelled, are one transaction."""

import asyncio
import contextvars
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID

from governance.db import run_in_db_thread_plainly
from governance.transactions import atomic
from turns.core.ports import ClaimedTurn
from turns.core.turns import TurnEnding
from turns.endings import report_delivery, turn_endings
from turns.events import log
from turns.events.notifications import Notifications
from turns.storage.priority_lock import PriorityLock, Urgency

logger = logging.getLogger(__name__)

MOST_AT_ONCE = 10  # what comes on top waits, so that other writes need not


class Ended(NamedTuple):
    """What is to be told of an ending, what was queued with it, whether a turn may begin anywhere now.

    `told` is None if the turn had ended before, or is not ours any more.
    """

    told: Notifications | None
    deliveries: list[log.Batch]
    others_wait: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class EndingWrite:
    """How a turn ends; `facts` are what `turn_endings.end_turn` takes besides. Its log lines are those of its context."""

    turn: ClaimedTurn
    ending: TurnEnding
    facts: dict[str, Any]
    context: contextvars.Context = field(default_factory=contextvars.copy_context)

    def __call__(self, *, waits: bool = True) -> Notifications | None:
        """Write it (sync ORM)."""
        return self.context.run(
            turn_endings.end_turn,
            self.turn.id,
            self.ending,
            epoch=self.turn.epoch,
            waits=waits,
            **self.facts,
        )


Waiting: TypeAlias = tuple[EndingWrite, "asyncio.Future[Ended]"]


class EndingWrites:
    """Writes for one event loop: all that waits while one transaction is under way becomes the next one."""

    def __init__(self, lock: PriorityLock) -> None:
        self._lock = lock
        self._waiting: list[Waiting] = []
        self._writing: asyncio.Task[None] | None = None

    async def store(self, write: EndingWrite) -> Ended:
        """Store an ending; that goes before whatever else waits to be written. Raise what the database raises."""
        loop = asyncio.get_running_loop()
        stored: asyncio.Future[Ended] = loop.create_future()
        self._waiting.append((write, stored))
        if self._writing is None or self._writing.done():
            self._writing = loop.create_task(
                self._write(), name="endings of turns", context=contextvars.Context()
            )
        return await stored

    async def _write(self) -> None:
        await asyncio.sleep(0)  # those that end in the same moment come along
        while self._waiting:
            async with self._lock.acquired(Urgency.ENDING):
                taken, self._waiting = self._waiting[:MOST_AT_ONCE], self._waiting[MOST_AT_ONCE:]
                try:
                    results = await _store([write for write, _ in taken])
                except Exception as error:  # noqa: BLE001 - whoever waits raises it
                    results = [error for _ in taken]
            for (_, stored), result in zip(taken, results, strict=True):
                _settle(stored, result)


def store(writes: Sequence[EndingWrite]) -> list[Ended | Exception]:
    """Store endings, and queue the reports that are due after each. Return what each has come to, or has raised (sync ORM)."""
    together = _store_together(writes) if len(writes) > 1 else {}
    return [_end(write, together.get(write.turn.id)) for write in writes]


def _store_together(writes: Sequence[EndingWrite]) -> dict[UUID, Notifications]:
    """Store endings as one transaction; one that is not among the results has to be tried alone.

    That is one whose conversation somebody is writing, and each of them if one fails. None is waited for, so any order
    will do: who ends after its sub-agents need not ask them to stop.
    """
    parents = {write.turn.id: write.turn.parent_id for write in writes}
    try:
        with atomic():
            told = {
                write.turn.id: write(waits=False)
                for write in sorted(writes, key=lambda write: -_depth(write.turn.id, parents))
            }
    except Exception:
        logger.warning("Turns could not be ended together", exc_info=True)
        return {}
    return {turn_id: one for turn_id, one in told.items() if one is not None}


def _depth(turn_id: UUID, parents: Mapping[UUID, UUID | None]) -> int:
    """How many turns, of those that end together, a turn works for."""
    above = parents.get(turn_id)
    return 0 if above is None else 1 + _depth(above, parents)


def _end(write: EndingWrite, told: Notifications | None) -> Ended | Exception:
    try:
        told = told or write()
    except Exception as error:  # noqa: BLE001 - whoever waits raises it
        return error
    if told is None:
        return Ended(None, [], others_wait=True)
    try:
        return Ended(told, *report_delivery.enqueue_due_after(write.turn.id))
    except Exception:  # the turn has ended whatever comes of it
        logger.exception("Reports are left to the sweep", extra={"turn_id": str(write.turn.id)})
        return Ended(told, [], others_wait=True)


def _settle(stored: "asyncio.Future[Ended]", result: Ended | Exception) -> None:
    if stored.done():
        return
    if isinstance(result, Exception):
        stored.set_exception(result)
    else:
        stored.set_result(result)


_store = run_in_db_thread_plainly(store)
