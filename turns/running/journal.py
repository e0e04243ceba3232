"""The journal of one turn as it runs: each method persists, then publishes (invariants 2, 10).

What a database loses that stumbles is written again, as long as the turn is ours. So each change can be made twice.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from django.db.models import F, IntegerField, UUIDField
from django.utils import timezone

from governance import (
    CancellationToken,
    DeadlineChange,
    Decision,
    Disposition,
    LateSettlement,
    LiveCall,
    ToolCall,
    ToolOutcome,
    Verdict,
    checkpoint,
)
from governance.db import run_in_db_thread, run_in_pool_thread
from governance.prepared_statements import Update
from governance.sanitize import sanitize_text
from turns.calls import approvals, late_settlements
from turns.core.chat_model import Notice
from turns.core.events import TextDelta, TurnError, TurnEvent, milliseconds
from turns.core.exceptions import Fenced
from turns.core.messages import Message
from turns.core.ports import Answer, ClaimedTurn, Prompt
from turns.events import log, sinks
from turns.history import messages, prompts
from turns.history.histories import Checked, note_checked
from turns.models import Turn
from turns.processes.leases import Lease
from turns.queueing.turn_tree import share_usage
from turns.running import call_writes
from turns.running.call_writes import Held
from turns.running.progress import ProgressWriter
from turns.running.text_writes import StreamedText, TextWrites
from turns.running.writes import Change, Obey, Writer, one_by_one
from turns.storage.priority_lock import PriorityLock, Urgency
from turns.storage.retries import until_done

logger = logging.getLogger(__name__)

STEP = Update(
    lambda pk, step, calls: (
        Turn.objects.filter(pk=pk),
        {"steps": step, "tool_call_count": F("tool_call_count") + calls},
    ),
    pk=UUIDField(),
    step=IntegerField(),
    calls=IntegerField(),
)

R = TypeVar("R")
Events = list[TurnEvent]


class DatabaseJournal:
    """The journal of one claimed turn; raises `Fenced` once the turn has another owner or has ended.

    A write that finds stored cancel requests lets them be obeyed at once. So nothing starts after a cancel was
    accepted, even before its wakeup (C1). Without its `lease` it writes nothing, and does not ask the database.
    """

    def __init__(
        self,
        turn: ClaimedTurn,
        *,
        token: CancellationToken,
        obey: Obey = lambda _: None,
        lease: Lease | None = None,
        lock: PriorityLock | None = None,
        progress: ProgressWriter | None = None,
        texts: TextWrites | None = None,
    ) -> None:
        lock = lock or PriorityLock()
        self._turn = turn
        self._lease = lease
        self._writer = Writer(turn, obey=obey, lock=lock, lease=lease)
        self._progress = progress or ProgressWriter(lock)
        self._texts = texts or TextWrites()
        self._group = str(turn.id)
        self._begun = 0  # the last step whose message is there before it is complete
        self._answer: Answer | None = None
        self._held: Held = {}  # the rows of the calls of this step, as they are stored
        self._reply: asyncio.Future[None] | None = (
            None  # done when the last message with calls is stored
        )
        self._token = token
        self._lasts = False  # the end of a call that was asked to stop
        self._left: list[
            tuple[LiveCall, ToolOutcome, Held]
        ] = []  # to the ending of a cancelled turn

    async def prompt(self) -> Prompt:
        """Return the valid history and the note on the previous turn; a repair is stored and told."""
        turn = self._turn
        if turn.prompt is not None:
            return turn.prompt
        read = await self._until_done(partial(_read_prompt, turn.conversation_id, turn.id))
        if read is None:
            read = await self._until_done(partial(_repair_prompt, turn.conversation_id, turn.id))
        if read.checked is not None:  # nobody waits for it
            self._writer.add(_note_checked, read.checked)
        await sinks.publish(turn.conversation_id, read.events)
        return read.prompt

    async def share_usage(self, usage: Mapping[str, int]) -> int:
        """Store what the turn has cost so far; return what the rest of its family has."""
        return await self._write_for(lambda turn: ([], share_usage(turn, usage)))

    @property
    def answer(self) -> Answer | None:
        """What was said last, if that is not stored yet."""
        return self._answer

    async def save_text(self, step: int, text: str) -> None:
        """Store the text so far. This comes so often that it takes one statement, but for the first and after a change."""
        if self._begun != step:
            await self._store_answer()
            await self._write(one_by_one(_begin_reply), step, text)
            self._begun = step
        elif not await self._until_done(
            partial(self._texts.save, StreamedText(turn=self._turn, step=step, text=text))
        ):
            await self._write(
                _nothing
            )  # says what has: the turn is not ours any more, or is to be cancelled

    async def save_reply(
        self, step: int, message: Message, calls: Sequence[ToolCall], *, interrupted: bool = False
    ) -> None:
        """Let the message be stored with its calls; one without calls is stored with the turn's end.

        Nobody waits for it here: what is written of its calls comes with it, or behind it.
        """
        await self._store_answer()
        await self.flush()
        if message.interrupted != interrupted:
            message = replace(message, interrupted=interrupted)
        answer = Answer(step=step, message=message)
        if not calls:
            self._answer = answer
            return
        self._held = {}
        item = (answer, calls, self._held, self._begun)
        self._reply = self._writer.add(one_by_one(_save_reply), item, more_follows=True)
        self._reply.add_done_callback(lambda _: checkpoint("after_reply"))

    async def flush(self) -> None:
        """Wait until the last message with calls is stored. Raise what it has failed with."""
        if self._reply is not None:
            await self._reply

    async def _store_answer(self) -> None:
        """Store what was said last: the turn goes on."""
        if (answer := self._answer) is not None:
            await self._write(one_by_one(_save_answer), answer, self._begun)
            self._answer = None

    def publish_text(self, text: str, offset: int, *, step: int) -> None:
        """Push a delta: not stored, not numbered."""
        delta: TextDelta = {
            "type": "text_delta",
            "turn_id": self._group,
            "at": timezone.now().isoformat(),
            "text": sanitize_text(text),
            "offset": offset,
            "step": step,
        }
        # A copy would cost as much as the piece itself.
        sinks.push(self._turn.conversation_id, delta)  # type: ignore[arg-type]
        checkpoint("mid_stream")

    async def notify(self, notice: Notice) -> None:
        """Tell the person something that is no answer."""
        await self._write(one_by_one(_notify), notice)

    async def ask(self, call: LiveCall) -> Decision | None:
        """Put the question of a call to people, unless one of them has answered it for the whole conversation."""
        earlier = await self._write_for(lambda turn: approvals.ask(turn, call))
        if earlier is not None and (row := self._held.get(call.id)) is not None:
            row.allowed_earlier_by = earlier.by
        return earlier

    async def conclude(self, call: LiveCall, decision: Decision) -> Decision:
        """Store that nobody decided, unless somebody was faster; a person's word is stored already."""
        if decision.verdict in (Verdict.APPROVED, Verdict.DENIED):
            return decision
        return await self._write_for(lambda turn: approvals.conclude(turn, decision))

    async def call_queued(self, call: LiveCall) -> None:
        """Store and tell what the call waits for."""
        if call.waits_for is not None:
            await self._write(call_writes.note_queued, call, call.waits_for)

    async def call_started(self, call: LiveCall) -> None:
        """Write the start ahead of the run."""
        checkpoint("before_call_start")
        await self._write(call_writes.start_calls, call, self._held)
        self._check_lease()  # the write may have taken so long that somebody else has the turn now
        checkpoint("after_call_start")

    async def call_progressed(self, call: LiveCall) -> None:
        """Let the last progress be stored and told, as soon as nothing else is in the way."""
        self._progress.note(self._turn, call, lease=self._lease)

    async def deadline_moved(self, call: LiveCall, change: DeadlineChange) -> None:
        """Store and tell the new limit (T9)."""
        await self._write(one_by_one(call_writes.move_deadline), call, change, self._held)

    async def call_cancelling(self, call: LiveCall) -> None:
        """Let it be stored that a stop was asked for; the end of the call does not wait for that.

        The body takes its time, so the turn's ending is not near. What was left to it is written with this.
        """
        self._lasts = True
        left, self._left = self._left, []
        for item in left:
            self._writer.add(call_writes.end_calls, item, urgency=Urgency.ENDING)
        self._writer.add(call_writes.note_cancelling, (call,), urgency=Urgency.ENDING)

    async def call_ended(self, call: LiveCall, outcome: ToolOutcome) -> None:
        """Store and tell the one outcome. Where the turn is cancelled, its ending does that for all calls at once (C1)."""
        checkpoint("before_result")
        # What was abandoned may settle before that: its row has to be there.
        item = (call, outcome, self._held)
        is_known = outcome.disposition is not Disposition.INDETERMINATE
        is_stored = self._reply is None or self._reply.done()
        if self._token.is_cancelled and is_known and is_stored and not self._lasts:
            self._left.append(item)
            return
        await self._writer.add(call_writes.end_calls, item, urgency=Urgency.ENDING)
        checkpoint("after_result")

    async def call_settled_late(self, call: LiveCall, late: LateSettlement) -> None:
        """Store and tell that the body has ended after all (T11); the turn may be over by now."""
        with suppress(Fenced):
            settle = partial(_settle_late, self._turn.id, call.id, late)
            if (told := await self._until_done(settle)) is not None:
                await sinks.publish(*told)

    async def _write(self, change: Change, *item: Any) -> None:
        try:
            await self._writer.add(change, item)
        except Exception:
            await self.flush()  # if that has failed, it is why
            raise

    async def _write_for(self, change: "Callable[[Turn], tuple[Events, R]]") -> R:
        """Write a change, and return what it came to when it was made last."""
        results: list[R] = []

        def write(turn: Turn, _items: Sequence[Any]) -> Events:
            events, result = change(turn)
            results.append(result)
            return events

        await self._write(write)
        return results[-1]

    async def _until_done(self, crossing: Callable[[], Awaitable[R]]) -> R:
        return await until_done(crossing, lease=self._lease)

    def _check_lease(self) -> None:
        if self._lease is not None and not self._lease.is_held:
            raise Fenced(f"the owner of turn {self._turn.id} has lost its lease")


# A long history holds up nobody else's writes.
_read_prompt = run_in_pool_thread(prompts.read_prompt)
_repair_prompt = run_in_db_thread(prompts.repair_prompt)


def _note_checked(turn: Turn, items: Sequence[Checked]) -> Events:
    for checked in items:
        note_checked(turn.conversation_id, checked)
    return []


_settle_late = run_in_db_thread(late_settlements.settle)


def _begin_reply(turn: Turn, step: int, text: str) -> Events:
    messages.begin(turn, step=step, text=sanitize_text(text), at=timezone.now())
    return []


def _nothing(_turn: Turn, _items: Sequence[Any]) -> Events:
    return []


def _save_reply(
    turn: Turn, answer: Answer, calls: Sequence[ToolCall], held: Held, begun: int
) -> Events:
    held.update(call_writes.insert_calls(turn, calls, step=answer.step))
    STEP.run(pk=turn.pk, step=answer.step, calls=len(calls))
    return _save_answer(turn, answer, begun)


def _save_answer(turn: Turn, answer: Answer, begun: int) -> Events:
    return messages.save(turn, answer, is_begun=answer.step == begun, at=timezone.now())


def _notify(turn: Turn, notice: Notice) -> Events:
    wait_ms = milliseconds(notice.wait)
    event = TurnError(
        code=notice.code, message=notice.message, reason=notice.reason, wait_ms=wait_ms
    )
    return [] if notice.lasts and log.has_equal(turn.conversation, event) else [event]
