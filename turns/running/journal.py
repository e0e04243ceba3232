"""Start here for what a running turn stores: its journal, whose methods first persist and then publish (invariants 2,
10).

`DatabaseJournal` combines waiting changes into one transaction (`_Write`). The functions after these two classes are
the changes: each writes its rows with the synchronous ORM, and returns its events. At the end are the two kinds of
writes that turns share, streamed text and the progress of calls.

Changes lost in a database failure are written again while this process owns the turn, so every change must be
idempotent.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from contextvars import Context
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from django.db.models import Exists, F

from governance import (
    CallStatus,
    CancellationToken,
    DeadlineChange,
    Decision,
    Disposition,
    LateSettlement,
    LiveCall,
    Obstacle,
    ToolCall,
    ToolOutcome,
    Verdict,
    checkpoint,
    db_clock,
    recorder,
)
from governance.db import atomic, run_in_db_thread, run_in_pool_thread
from governance.sanitize import sanitize_text
from turns.calls import approvals, late_settlements
from turns.calls.serializers import deadline_event, queued_event, result_events, start_event
from turns.cancelling import cancel_requests
from turns.core.chat_model import Notice
from turns.core.events import ToolProgress, TurnError, TurnEvent, milliseconds
from turns.core.exceptions import Fenced
from turns.core.messages import Message
from turns.core.ports import Answer, ClaimedTurn, Prompt
from turns.core.prompt_changes import PromptChange, PromptHead
from turns.core.turns import LIVE_STATUSES, PendingCancel, TurnStatus
from turns.core.window import Kept
from turns.events import log, sinks
from turns.history import messages, prompts
from turns.history.histories import Checked, note_checked
from turns.models import Conversation, Turn
from turns.models import Message as MessageRow
from turns.processes.leases import Lease
from turns.queueing.turn_tree import share_usage
from turns.running.write_queue import Batches, PriorityLock, Take, Urgency, until_done
from turns.storage.turn_rows import has_requests, lock_live_turn

logger = logging.getLogger(__name__)

R = TypeVar("R")

TEXTS_AT_ONCE = 50  # maximum texts per write, so that other writes need not wait long
PROGRESS_PAUSE = 0.5  # minimum seconds between two writes of progress
PROGRESS_SHARE = 10  # the pause after a slow write of progress, as a multiple of its duration
LONGEST_PROGRESS_PAUSE = (
    2.0  # seconds; not more, because viewers rely on progress as a sign of life
)
Events = list[TurnEvent]


Obey = Callable[[PendingCancel], object]
"""Applies a cancel request to the turn in this process. It must be idempotent."""

Change = Callable[[Turn, Sequence[Any]], list[TurnEvent]]
"""Writes the changes of all its items, and returns their events."""

# In the pool, because reading a long history must not delay writes.
_read_prompt = run_in_pool_thread(prompts.read_prompt)
_repair_prompt = run_in_db_thread(prompts.repair_prompt)


class _Entry(NamedTuple):
    change: Change
    item: Any
    urgency: Urgency


class DatabaseJournal:
    """The journal of one claimed turn. Its methods raise `Fenced` once the turn has another owner or has ended.

    A write also applies stored cancel requests, so that nothing starts after an accepted cancel, even if this process
    has not been notified of it yet (C1). If requests were applied before they were stored, a write waits until they are
    stored (`until_stored`). Once its `lease` is lost, the journal writes nothing and does not query the database.
    """

    def __init__(
        self,
        turn: ClaimedTurn,
        *,
        token: CancellationToken,
        obey: Obey = lambda _: None,
        until_stored: Callable[[], Awaitable[None]] | None = None,
        lease: Lease | None = None,
        lock: PriorityLock | None = None,
        progress: "ProgressWriter | None" = None,
        texts: "TextWrites | None" = None,
    ) -> None:
        self._turn = turn
        self._obey = obey
        self._until_stored = until_stored
        self._lease = lease
        self._lock = lock or PriorityLock()
        self._batches: Batches[_Entry, None] = Batches(
            self._store, name=f"writes of turn {turn.id}"
        )
        self._progress = progress or ProgressWriter(self._lock)
        self._texts = texts or TextWrites()
        self._group = str(turn.id)
        self._begun = 0  # the last step with a partial message
        self._answer: Answer | None = None
        self._reply: asyncio.Future[None] | None = (
            None  # done when the last message with calls is stored
        )
        self._token = token
        self._lasts = False  # whether a call takes time to end after a cancel
        self._left: list[
            tuple[LiveCall, ToolOutcome]
        ] = []  # stored with the end of a cancelled turn

    async def prompt(self, head: PromptHead) -> Prompt:
        """Return the valid history and the note on the previous turn. Store and publish repairs."""
        turn = self._turn
        arguments = (turn.conversation_id, turn.id, head)
        read = await self._until_done(partial(_read_prompt, *arguments))
        if read is None:
            read = await self._until_done(partial(_repair_prompt, *arguments))
        if read.checked is not None:  # stored in the background
            self._add(_note_checked, read.checked)
        await sinks.publish(turn.conversation_id, read.events)
        if read.opening is not None:
            opened = self._add(_open_prompt, (read.opening,))
            if read.opening.is_waited_for:
                await opened
        return read.prompt

    async def keep(self, selection: Kept, change: PromptChange) -> None:
        """Store which messages the next prompts contain, and publish the change."""
        await self._write(one_by_one(prompts.keep), selection, change)

    async def share_usage(self, usage: Mapping[str, int]) -> int:
        """Store the turn's usage so far; return the tokens used by the other turns of its family."""
        return await self._write_for(lambda turn: ([], share_usage(turn, usage)))

    @property
    def answer(self) -> Answer | None:
        """Return the last answer if it has not been stored yet."""
        return self._answer

    async def save_text(self, step: int, text: str) -> None:
        """Store the text so far.

        This is frequent, so it uses a single statement, except for the first text of a step and after a change of the
        turn.
        """
        if self._begun != step:
            await self._store_answer()
            await self._write(one_by_one(_begin_reply), step, text)
            self._begun = step
        elif not await self._until_done(
            partial(self._texts.save, StreamedText(turn=self._turn, step=step, text=text))
        ):
            await self._write(
                _nothing
            )  # this write reports why: the turn has another owner, or is to be cancelled

    async def save_reply(
        self,
        step: int,
        message: Message,
        calls: Sequence[ToolCall],
        *,
        interrupted: bool = False,
        usage: Mapping[str, int] | None = None,
    ) -> None:
        """Queue the message and its calls for storing; a message without calls is stored with the end of the turn.

        This does not wait, because later writes about its calls are stored with it or after it.
        """
        await self._store_answer()
        await self.flush()
        if message.interrupted != interrupted:
            message = replace(message, interrupted=interrupted)
        answer = Answer(step=step, message=message)
        if not calls:
            self._answer = answer
            return
        self._reply = self._add(one_by_one(_save_reply), (answer, calls, self._begun, usage or {}))
        self._reply.add_done_callback(lambda _: checkpoint("after_reply"))

    async def flush(self) -> None:
        """Wait until the last message with calls is stored; raise its error."""
        if self._reply is not None:
            await self._reply

    async def _store_answer(self) -> None:
        """Store the last answer, because the turn continues."""
        if (answer := self._answer) is not None:
            await self._write(one_by_one(_save_answer), answer, self._begun)
            self._answer = None

    def publish_text(
        self, text: str, offset: int, *, step: int, are_thoughts: bool = False
    ) -> None:
        """Publish a delta, which is neither stored nor numbered."""
        delta = {
            "type": "thought_delta" if are_thoughts else "text_delta",
            "turn_id": self._group,
            "at": db_clock.now().isoformat(),
            "text": sanitize_text(text),
            "offset": offset,
            "step": step,
        }
        # not copied, because a copy costs as much as the delta itself
        sinks.push(self._turn.conversation_id, delta)
        checkpoint("mid_stream")

    async def notify(self, notice: Notice) -> None:
        """Show the person a notice that is not part of the answer."""
        await self._write(one_by_one(_notify), notice)

    async def ask(self, call: LiveCall) -> Decision | None:
        """Ask people about a call, unless an earlier decision covers the whole conversation."""
        return await self._write_for(lambda turn: approvals.ask(turn, call))

    async def conclude(self, call: LiveCall, decision: Decision) -> Decision:
        """Record that the question ended without a decision, unless a person's decision is already stored."""
        if decision.verdict in (Verdict.APPROVED, Verdict.DENIED):
            return decision
        return await self._write_for(lambda turn: approvals.conclude(turn, decision))

    async def call_queued(self, call: LiveCall) -> None:
        """Store and publish the reason why the call waits."""
        if call.waits_for is not None:
            await self._write(note_queued, call, call.waits_for)

    async def call_started(self, call: LiveCall) -> None:
        """Store the start of a call before its body runs."""
        checkpoint("before_call_start")
        await self._write(start_calls, call)
        self._check_lease()  # the write may have taken so long that another process owns the turn
        checkpoint("after_call_start")

    async def call_progressed(self, call: LiveCall) -> None:
        """Queue the latest progress for storing, with low priority."""
        self._progress.note(self._turn, call, lease=self._lease)

    async def deadline_moved(self, call: LiveCall, change: DeadlineChange) -> None:
        """Store and publish the new limit of a call (T9)."""
        await self._write(one_by_one(move_deadline), call, change)

    async def call_cancelling(self, call: LiveCall) -> None:
        """Queue the cancel request of a call for storing; the call's end does not wait for it.

        Because the body takes time to end, outcomes held back for the end of the turn are stored too.
        """
        self._lasts = True
        items, self._left = self._left, []
        for item in items:
            self._add(end_calls, item, urgency=Urgency.ENDING)
        self._add(note_cancelling, (call,), urgency=Urgency.ENDING)

    async def call_ended(self, call: LiveCall, outcome: ToolOutcome) -> None:
        """Store and publish the outcome. If the turn is cancelled, its end stores all outcomes together (C1)."""
        checkpoint("before_result")
        # An abandoned call may settle before the turn's end, so its row must be stored first.
        item = (call, outcome)
        is_known = outcome.disposition is not Disposition.INDETERMINATE
        is_stored = self._reply is None or self._reply.done()
        if self._token.is_cancelled and is_known and is_stored and not self._lasts:
            self._left.append(item)
            return
        await self._add(end_calls, item, urgency=Urgency.ENDING)
        checkpoint("after_result")

    async def call_settled_late(self, call: LiveCall, late: LateSettlement) -> None:
        """Store and publish that the body has ended (T11); the turn may already be over."""
        with suppress(Fenced):
            settle = partial(_settle_late, self._turn.id, call.id, late)
            if (publication := await self._until_done(settle)) is not None:
                await sinks.publish(*publication)

    async def _write(self, change: Change, *item: Any) -> None:
        try:
            await self._add(change, item)
        except Exception:
            await self.flush()  # raises the cause if that write failed
            raise

    async def _write_for(self, change: "Callable[[Turn], tuple[Events, R]]") -> R:
        """Write a change, and return the result of the last attempt."""
        results: list[R] = []

        def write(turn: Turn, _items: Sequence[Any]) -> Events:
            events, result = change(turn)
            results.append(result)
            return events

        await self._write(write)
        return results[-1]

    def _add(
        self, change: Change, item: Any = (), *, urgency: Urgency = Urgency.WORK
    ) -> "asyncio.Future[None]":
        """Queue a change, which is written together with others; the future is done when it is stored and published.

        The future raises `Fenced` if the turn has another owner or has ended, and `NotStored` if the database refuses
        the change.
        """
        return self._batches.add(_Entry(change, item, urgency))

    async def _store(self, take: Take[_Entry]) -> list[Exception | None]:
        """Write the queued changes together. If that fails, try each alone, because only some may be invalid."""
        write = _Write(turn=self._turn)
        failure = await self._try(write, take)
        if failure is None or isinstance(failure, Fenced) or len(parts := write.parts()) < 2:
            return [failure for _ in write.entries]
        failures = {part.entries[0].change: await self._try(part) for part in parts}
        return [failures[entry.change] for entry in write.entries]

    async def _try(self, write: "_Write", take: Take[_Entry] | None = None) -> Exception | None:
        if self._until_stored is not None:
            await self._until_stored()

        async def attempt() -> list[PendingCancel]:
            urgency = min(entry.urgency for entry in write.entries or self._batches.waiting)
            async with self._lock.acquired(urgency):
                if not write.entries and take is not None:
                    write.entries = take()
                return await _in_db(write)

        try:
            requests = await until_done(attempt, lease=self._lease)
        except Exception as error:  # noqa: BLE001 - raised where the change is awaited
            if not write.entries and take is not None:
                write.entries = take()
            return error
        for request in requests:
            self._obey(request)
        await sinks.publish(self._turn.conversation_id, write.all_events())
        return None

    async def _until_done(self, crossing: Callable[[], Awaitable[R]]) -> R:
        return await until_done(crossing, lease=self._lease)

    def _check_lease(self) -> None:
        if self._lease is not None and not self._lease.is_held:
            raise Fenced(f"the owner of turn {self._turn.id} has lost its lease")


@dataclass(slots=True, kw_only=True)
class _Write:
    """The changes of a turn that are written in one transaction; a retry makes the same changes.

    A retry after an unconfirmed commit finds its first event in the log, with the same number and time, and then writes
    nothing. Changes without events must be idempotent.
    """

    turn: ClaimedTurn
    entries: list[_Entry] = field(default_factory=list)
    events: dict[Change, list[log.WireEvent]] = field(default_factory=dict)

    def store(self) -> list[PendingCancel]:
        """Write the changes and append the events if this process still owns the turn. Return the open cancel
        requests.

        Raises: Fenced: the turn has another owner or has ended.
        """
        turn = self.turn
        with atomic():
            row = lock_live_turn(turn.id, epoch=turn.epoch)
            if row is None:
                raise Fenced(f"turn {turn.id} is not ours any more")
            earlier = self.all_events()
            if not (earlier and log.has(row.conversation_id, earlier[0])):
                events = {change: change(row, items) for change, items in self._items().items()}
                stored_events = iter(
                    log.append(
                        row.conversation,
                        turn.id,
                        *(event for part in events.values() for event in part),
                        is_news=False,
                    )
                )
                self.events = {
                    change: [next(stored_events) for _ in part] for change, part in events.items()
                }
            return cancel_requests.pending([turn.id]) if has_requests(row) else []

    def all_events(self) -> list[log.WireEvent]:
        return [event for part in self.events.values() for event in part]

    def parts(self) -> "list[_Write]":
        """Return one write per change, in order, with the events of an earlier attempt that may be in the log."""
        return [
            _Write(
                turn=self.turn,
                entries=[entry for entry in self.entries if entry.change == change],
                events={change: self.events.get(change, [])},
            )
            for change in self._items()
        ]

    def _items(self) -> dict[Change, list[Any]]:
        items: dict[Change, list[Any]] = {}
        for entry in self.entries:
            items.setdefault(entry.change, []).append(entry.item)
        return items


_in_db = run_in_db_thread(_Write.store)


def one_by_one(change: Callable[..., list[TurnEvent]]) -> Change:
    """Return a change that calls `change` once per item, with the item as its arguments."""

    def changes(turn: Turn, items: Sequence[Any]) -> list[TurnEvent]:
        return [event for item in items for event in change(turn, *item)]

    return changes


def _note_checked(turn: Turn, items: Sequence[Checked]) -> Events:
    for checked in items:
        note_checked(turn.conversation_id, checked)
    return []


_open_prompt = one_by_one(prompts.open_prompt)
_settle_late = run_in_db_thread(late_settlements.settle)


def _begin_reply(turn: Turn, step: int, text: str) -> Events:
    messages.begin(turn, step=step, text=sanitize_text(text), at=db_clock.now())
    return []


def _nothing(_turn: Turn, _items: Sequence[Any]) -> Events:
    return []


def _save_reply(
    turn: Turn,
    answer: Answer,
    calls: Sequence[ToolCall],
    begun_step: int,
    usage: Mapping[str, int],
) -> Events:
    recorder.insert_pending(calls, group=str(turn.pk), step=answer.step)
    Turn.objects.filter(pk=turn.pk).update(
        steps=answer.step,
        tool_call_count=F("tool_call_count") + len(calls),
        usage=dict(usage),
    )
    return _save_answer(turn, answer, begun_step, usage)


def _save_answer(
    turn: Turn, answer: Answer, begun_step: int, usage: Mapping[str, int] | None = None
) -> Events:
    is_begun = answer.step == begun_step
    return messages.save(turn, answer, is_begun=is_begun, at=db_clock.now(), usage=usage)


def _notify(turn: Turn, notice: Notice) -> Events:
    wait_ms = milliseconds(notice.wait)
    event = TurnError(
        code=notice.code, message=notice.message, reason=notice.reason, wait_ms=wait_ms
    )
    return [] if notice.lasts and log.has_equal(turn.conversation, event) else [event]


def note_queued(turn: Turn, items: Sequence[tuple[LiveCall, Obstacle]]) -> Events:
    obstacles = {call.id: obstacle for call, obstacle in items}
    rows = recorder.record_queued(obstacles, group=str(turn.pk))
    return [queued_event(row) for row in rows]


def start_calls(turn: Turn, items: Sequence[tuple[LiveCall]]) -> Events:
    """Store the start of calls before their bodies run. A call for which a cancel is stored is cancelled instead."""
    if turn.status == TurnStatus.CANCELLING:
        return []
    calls = {call.id: call for (call,) in items}
    cancelled = cancel_requests.stored_of_calls(turn, list(calls)) if has_requests(turn) else {}
    for tool_id, cancellation in cancelled.items():
        calls.pop(tool_id).cancel(cancellation)
    rows = recorder.record_start(*calls.values(), group=str(turn.pk))
    if closed := calls.keys() - {row.call_id for row in rows}:
        raise Fenced(f"tool calls {sorted(closed)} were closed before they started")
    return [start_event(row) for row in rows]


def move_deadline(turn: Turn, call: LiveCall, change: DeadlineChange) -> Events:
    row = recorder.record_deadline(change, group=str(turn.pk), call_id=call.id)
    return [] if row is None else [deadline_event(row)]


def note_cancelling(turn: Turn, items: Sequence[tuple[LiveCall]]) -> Events:
    recorder.record_cancelling(*(call.id for (call,) in items), group=str(turn.pk))
    return []


def end_calls(turn: Turn, items: Sequence[tuple[LiveCall, ToolOutcome]]) -> Events:
    outcomes = {call.id: outcome for call, outcome in items}
    rows = recorder.record_end(outcomes, group=str(turn.pk))
    if has_requests(turn):
        cancel_requests.settle_calls(turn.pk, {row.call_id: row.status for row in rows})
    return [event for row in rows for event in result_events(row)]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamedText:
    """The text of a step's message so far."""

    turn: ClaimedTurn
    step: int
    text: str


class TextWrites:
    """Stores the streamed text of all turns of a process together, as soon as the previous write is done."""

    def __init__(self) -> None:
        self._batches: Batches[StreamedText, bool] = Batches(
            _store_each, name="writes of streamed text", most=TEXTS_AT_ONCE, of_many_turns=True
        )

    async def save(self, text: StreamedText) -> bool:
        """Store the text; return False if the turn or the message has changed. Raise the database's error."""
        return await self._batches.add(text)


async def _store_each(take: Take[StreamedText]) -> list[bool | Exception]:
    """Store texts together, or one by one after a failure, so that one bad text does not fail the others."""
    texts = take()
    try:
        return list(await _store_texts(texts))
    except Exception as error:  # noqa: BLE001 - raised where the text is saved
        if len(texts) == 1:
            return [error]
    results: list[bool | Exception] = []
    for text in texts:
        results += await _store_each(partial(list, [text]))
    return results


def store_texts(texts: Sequence[StreamedText]) -> list[bool]:
    """Store texts together without a lock. Return, for each, whether its message could still be updated.

    The statement's condition fences former owners, and no other process writes the text of an incomplete message. Rows
    are ordered like all writes to several conversations, to prevent deadlocks.
    """
    ordered = sorted(range(len(texts)), key=lambda place: texts[place].turn.conversation_id)
    results = [False] * len(texts)
    with atomic() if len(texts) > 1 else nullcontext():
        for place in ordered:
            text = texts[place]
            ours = Turn.objects.filter(
                pk=text.turn.id, epoch=text.turn.epoch, status=TurnStatus.RUNNING
            )
            streaming = MessageRow.objects.filter(
                Exists(ours), turn=text.turn.id, step=text.step, is_streaming=True
            )
            content = [{"type": "text", "text": sanitize_text(text.text)}]
            results[place] = streaming.update(content=content) > 0
    return results


_store_texts = run_in_db_thread(store_texts)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressReport:
    """The progress of a call at a certain time."""

    turn: ClaimedTurn
    tool_id: str
    tool_name: str
    progress: dict[str, Any]
    elapsed_ms: int

    @classmethod
    def of(cls, turn: ClaimedTurn, call: LiveCall) -> "ProgressReport":
        return cls(
            turn=turn,
            tool_id=call.id,
            tool_name=call.call.tool_name,
            progress=recorder.progress_of(call),
            elapsed_ms=milliseconds(call.elapsed) or 0,
        )

    @property
    def key(self) -> recorder.CallKey:
        """Return the key by which governance identifies the call: the turn's id and the call's id."""
        return str(self.turn.id), self.tool_id

    def event(self) -> ToolProgress:
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
    """Writes the latest progress of an event loop's calls together, after all other writes (V1).

    Many tools report every second. Progress is only a hint for viewers, so only the latest report of each call is kept,
    and it is dropped when the call ends.
    """

    def __init__(self, lock: PriorityLock) -> None:
        self._lock = lock
        self._pending: dict[LiveCall, tuple[ClaimedTurn, Lease | None]] = {}
        self._writing: asyncio.Task[None] | None = None

    def note(self, turn: ClaimedTurn, call: LiveCall, *, lease: Lease | None) -> None:
        """Schedule a write of a call's progress; the value is read when it is written."""
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
                    batches = await _store_progress(self._take())
            except Exception as failure:  # noqa: BLE001 - the next report replaces this one
                logger.warning("The progress of calls was not stored: %s", type(failure).__name__)
            else:
                for conversation_id, events in batches:
                    await sinks.publish(conversation_id, events)
            took = loop.time() - began_at
            await asyncio.sleep(
                max(PROGRESS_PAUSE, min(PROGRESS_SHARE * took, LONGEST_PROGRESS_PAUSE))
            )

    def _take(self) -> list[ProgressReport]:
        pending, self._pending = self._pending, {}
        return [
            ProgressReport.of(turn, call)
            for call, (turn, lease) in pending.items()
            if call.status is CallStatus.RUNNING and (lease is None or lease.is_held)
        ]


def store_progress(reports: Sequence[ProgressReport]) -> list[log.Batch]:
    """Store the progress of running calls whose turns this process owns, and return the events to publish.

    Locked conversations are skipped, because waiting for several locks could deadlock.
    """
    with atomic():
        conversations = _free([report.turn.conversation_id for report in reports])
        ours = _live([report.turn.id for report in reports])
        reports_by_key = {
            report.key: report
            for report in reports
            if report.turn.conversation_id in conversations
            and (report.turn.id, report.turn.epoch) in ours
        }
        running = recorder.record_progress({key: it.progress for key, it in reports_by_key.items()})
        reports_by_turn: dict[UUID, list[ProgressReport]] = {}
        for key, report in reports_by_key.items():  # in the order of the reports
            if key in running:
                reports_by_turn.setdefault(report.turn.conversation_id, []).append(report)
        return log.append_to_all(
            (conversations[place], of_place[0].turn.id, [report.event() for report in of_place])
            for place, of_place in reports_by_turn.items()
        )


_store_progress = run_in_db_thread(store_progress)


def _free(conversation_ids: Sequence[UUID]) -> dict[UUID, Conversation]:
    rows = Conversation.objects.select_for_update(skip_locked=True)
    return {row.pk: row for row in rows.filter(pk__in=conversation_ids)}


def _live(turn_ids: Sequence[UUID]) -> set[tuple[UUID, int]]:
    live = Turn.objects.filter(pk__in=turn_ids, status__in=LIVE_STATUSES)
    return set(live.values_list("pk", "epoch"))
