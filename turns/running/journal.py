"""The journal of one turn as it runs: each method persists, then publishes (invariants 2, 10).

What a database loses that stumbles is written again, as long as the turn is ours; so each change can be made twice.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from django.db.models import Exists, F
from django.utils import timezone

from governance import (
    CancellationToken,
    DeadlineChange,
    Decision,
    LateSettlement,
    LiveCall,
    Obstacle,
    ToolCall,
    ToolOutcome,
    Verdict,
    checkpoint,
    recorder,
)
from governance.db import run_in_db_thread, run_in_pool_thread
from governance.durations import limit_ms
from governance.sanitize import sanitize_json, sanitize_text
from turns.calls import late_settlements
from turns.calls.approvals import Asking, Concluding
from turns.calls.serializers import queued_event, result_events, start_event
from turns.cancelling import cancel_requests
from turns.core.chat_model import Notice
from turns.core.events import TextDelta, ToolDeadline, TurnError, TurnEvent, milliseconds
from turns.core.exceptions import Fenced
from turns.core.messages import Message
from turns.core.ports import ClaimedTurn, Prompt
from turns.core.turns import TurnStatus
from turns.events import log, sinks
from turns.history import messages
from turns.history.histories import History, load_repaired, note_on_previous, read
from turns.models import Message as MessageRow
from turns.models import Turn
from turns.processes.leases import Lease
from turns.queueing.turn_tree import SharedUsage
from turns.running.progress import ProgressWriter
from turns.running.writes import Change, Writer, one_by_one
from turns.storage.priority_lock import PriorityLock, Urgency
from turns.storage.retries import until_done

logger = logging.getLogger(__name__)

R = TypeVar("R")
Events = list[TurnEvent]


class DatabaseJournal:
    """The journal of one claimed turn; raises `Fenced` once the turn has another owner or has ended.

    A write that finds a stored wish to cancel passes it to `token` at once, so that nothing starts after a cancel was
    accepted, even before its nudge has come (C1). Without its `lease` it writes nothing, and does not ask the database.
    """

    def __init__(
        self,
        turn: ClaimedTurn,
        *,
        token: CancellationToken,
        lease: Lease | None = None,
        lock: PriorityLock | None = None,
        progress: ProgressWriter | None = None,
    ) -> None:
        lock = lock or PriorityLock()
        self._turn = turn
        self._lease = lease
        self._writer = Writer(turn, token=token, lock=lock, lease=lease)
        self._progress = progress or ProgressWriter(lock)
        self._group = str(turn.id)

    async def prompt(self) -> Prompt:
        """Return the valid history and the note on the previous turn; a repair is stored and told."""
        valid = await self._until_done(partial(_read_prompt, self._turn))
        if valid is not None:
            return valid
        prompt, events = await self._until_done(partial(_repair_prompt, self._turn))
        await sinks.publish(self._turn.conversation_id, events)
        return prompt

    async def share_usage(self, usage: Mapping[str, int]) -> int:
        """Store what the turn has cost so far; return what the rest of its family has."""
        shared = SharedUsage(usage)
        await self._write(lambda turn, _: shared(turn))
        return shared.others

    async def open_reply(self, step: int) -> None:
        """Begin the assistant message of a step."""
        await self._write(one_by_one(_open_reply), step)

    async def save_text(self, step: int, text: str) -> None:
        """Store the text so far; this comes so often that it takes one statement, unless something has changed."""
        if not await self._until_done(partial(_save_text, self._turn, step, text)):
            await self._write(
                _nothing
            )  # says what has: the turn is not ours any more, or is to be cancelled

    async def save_reply(
        self, step: int, message: Message, calls: Sequence[ToolCall], *, interrupted: bool = False
    ) -> None:
        """Store the message and its calls, before any of them starts."""
        whole = replace(message, interrupted=interrupted)
        await self._write(one_by_one(_save_reply), step, whole, calls)
        checkpoint("after_reply")

    async def publish_text(self, text: str, offset: int) -> None:
        """Push a delta: not stored, not numbered."""
        delta: TextDelta = {
            "type": "text_delta",
            "turn_id": self._group,
            "at": timezone.now().isoformat(),
            "text": sanitize_text(text),
            "offset": offset,
        }
        # A copy would cost as much as the piece itself.
        await sinks.publish(self._turn.conversation_id, [delta])  # type: ignore[list-item]
        checkpoint("mid_stream")

    async def notify(self, notice: Notice) -> None:
        """Tell the person something that is no answer."""
        await self._write(one_by_one(_notify), notice)

    async def ask(self, call: LiveCall) -> Decision | None:
        """Put the question of a call to people, unless one of them has answered it for the whole conversation."""
        asking = Asking(call)
        await self._write(lambda turn, _: asking(turn))
        return asking.earlier

    async def conclude(self, call: LiveCall, decision: Decision) -> Decision:
        """Store that nobody decided, unless somebody was faster; a person's word is stored already."""
        if decision.verdict in (Verdict.APPROVED, Verdict.DENIED):
            return decision
        concluding = Concluding(decision)
        await self._write(lambda turn, _: concluding(turn))
        return concluding.decision

    async def call_queued(self, call: LiveCall) -> None:
        """Store and tell what the call waits for."""
        if call.waits_for is not None:
            await self._write(_note_queued, call, call.waits_for)

    async def call_started(self, call: LiveCall) -> None:
        """Write the start ahead of the run."""
        checkpoint("before_call_start")
        await self._write(_start_calls, call)
        self._check_lease()  # the write may have taken so long that somebody else has the turn now
        checkpoint("after_call_start")

    async def call_progressed(self, call: LiveCall) -> None:
        """Let the last progress be stored and told, as soon as nothing else is in the way."""
        self._progress.note(self._turn, call, lease=self._lease)

    async def deadline_moved(self, call: LiveCall, change: DeadlineChange) -> None:
        """Store and tell the new limit (T9)."""
        await self._write(one_by_one(_move_deadline), call, change)

    async def call_cancelling(self, call: LiveCall) -> None:
        """Let it be stored that a stop was asked for; the end of the call does not wait for that."""
        self._writer.add(_note_cancelling, (call,), urgency=Urgency.ENDING)

    async def call_ended(self, call: LiveCall, outcome: ToolOutcome) -> None:
        """Store and tell the one outcome."""
        checkpoint("before_result")
        await self._writer.add(_end_calls, (call, outcome), urgency=Urgency.ENDING)
        checkpoint("after_result")

    async def call_settled_late(self, call: LiveCall, late: LateSettlement) -> None:
        """Store and tell that the body has ended after all (T11); the turn may be over by now."""
        with suppress(Fenced):
            settle = partial(_settle_late, self._turn.id, call.id, late)
            if (told := await self._until_done(settle)) is not None:
                await sinks.publish(*told)

    async def _write(self, change: Change, *item: Any) -> None:
        await self._writer.add(change, item)

    async def _until_done(self, crossing: Callable[[], Awaitable[R]]) -> R:
        return await until_done(crossing, lease=self._lease)

    def _check_lease(self) -> None:
        if self._lease is not None and not self._lease.is_held:
            raise Fenced(f"the owner of turn {self._turn.id} has lost its lease")


@run_in_pool_thread
def _read_prompt(turn: ClaimedTurn) -> Prompt | None:
    """Return the prompt unless something has to be repaired; a long history holds up nobody else's writes."""
    history = read(turn.conversation_id)
    return None if history is None else _prompt(turn, history)


@run_in_db_thread
def _repair_prompt(turn: ClaimedTurn) -> tuple[Prompt, list[log.WireEvent]]:
    history = load_repaired(turn.conversation_id, found_when="before_model_call")
    return _prompt(turn, history), list(history.events)


def _prompt(turn: ClaimedTurn, history: History) -> Prompt:
    return Prompt(messages=history.messages, note=note_on_previous(Turn.objects.get(pk=turn.id)))


_settle_late = run_in_db_thread(late_settlements.settle)


def _open_reply(turn: Turn, step: int) -> Events:
    if Turn.objects.filter(pk=turn.pk, steps__lt=step).update(steps=step):  # else it was begun
        messages.add(
            turn.conversation,
            turn,
            role="assistant",
            content=[],
            at=timezone.now(),
            step=step,
            is_streaming=True,
        )
    return []


@run_in_db_thread
def _save_text(turn: ClaimedTurn, step: int, text: str) -> bool:
    """Fenced by the statement itself, without a lock: nobody else writes the text of a message that is not complete."""
    ours = Turn.objects.filter(pk=turn.id, epoch=turn.epoch, status=TurnStatus.RUNNING)
    streaming = MessageRow.objects.filter(Exists(ours), turn=turn.id, step=step, is_streaming=True)
    return bool(streaming.update(content=[{"type": "text", "text": sanitize_text(text)}]))


def _nothing(_turn: Turn, _items: Sequence[Any]) -> Events:
    return []


def _save_reply(turn: Turn, step: int, message: Message, calls: Sequence[ToolCall]) -> Events:
    streaming = MessageRow.objects.filter(turn=turn, step=step, is_streaming=True)
    if message.is_empty:
        streaming.delete()
        return []
    row = streaming.get()
    row.content = sanitize_json([block.to_json() for block in message.content])
    row.is_streaming, row.interrupted = False, message.interrupted
    row.save(update_fields=["content", "is_streaming", "interrupted"])
    if calls:
        recorder.insert_pending(calls, group=str(turn.pk), step=step)
        Turn.objects.filter(pk=turn.pk).update(tool_call_count=F("tool_call_count") + len(calls))
    return [messages.message_event(row)]


def _notify(turn: Turn, notice: Notice) -> Events:
    wait_ms = milliseconds(notice.wait)
    return [
        TurnError(code=notice.code, message=notice.message, reason=notice.reason, wait_ms=wait_ms)
    ]


def _note_queued(turn: Turn, items: Sequence[tuple[LiveCall, Obstacle]]) -> Events:
    obstacles = {call.id: obstacle for call, obstacle in items}
    rows = recorder.record_queued(obstacles, group=str(turn.pk))
    return [queued_event(row) for row in rows]


def _start_calls(turn: Turn, items: Sequence[tuple[LiveCall]]) -> Events:
    if turn.status == TurnStatus.CANCELLING:
        return []
    calls = {call.id: call for (call,) in items}
    wished = cancel_requests.stored_of_calls(turn, list(calls))
    for tool_id, wish in wished.items():
        calls.pop(tool_id).cancel(wish)
    rows = recorder.record_start(*calls.values(), group=str(turn.pk))
    if closed := calls.keys() - {row.call_id for row in rows}:
        raise Fenced(f"tool calls {sorted(closed)} were closed before they started")
    return [start_event(row) for row in rows]


def _move_deadline(turn: Turn, call: LiveCall, change: DeadlineChange) -> Events:
    timeout_ms, idle_timeout_ms = limit_ms(change.to_timeout), limit_ms(change.to_idle_timeout)
    moved = recorder.record_deadline(
        group=str(turn.pk),
        call_id=call.id,
        change=recorder.deadline_change(change),
        timeout_ms=timeout_ms,
        timeout_source=change.source.value,
        idle_timeout_ms=idle_timeout_ms,
    )
    event = ToolDeadline(
        tool_id=call.id,
        timeout_ms=timeout_ms,
        idle_timeout_ms=idle_timeout_ms or None,
        timeout_source=change.source.value,
        changed_by=change.by,
    )
    return [event] if moved else []


def _note_cancelling(turn: Turn, items: Sequence[tuple[LiveCall]]) -> Events:
    recorder.record_cancelling(*(call.id for (call,) in items), group=str(turn.pk))
    return []


def _end_calls(turn: Turn, items: Sequence[tuple[LiveCall, ToolOutcome]]) -> Events:
    outcomes = {call.id: outcome for call, outcome in items}
    rows = recorder.record_end(outcomes, group=str(turn.pk))
    cancel_requests.settle_calls(turn.pk, {row.call_id: row.status for row in rows})
    return [event for row in rows for event in result_events(row)]
