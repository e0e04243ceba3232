"""The observer of a turn's steps: tells the journal of its calls, and the loop detector of their results (A4)."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from governance import (
    Cancellation,
    CancellationToken,
    CancelReason,
    DeadlineChange,
    LateSettlement,
    LiveCall,
    LoopAction,
    LoopDetector,
    Observer,
    ToolOutcome,
)
from turns.core.exceptions import Fenced
from turns.core.ports import TurnJournal
from turns.core.voice import in_voice


class StepObserver:
    """Passes the calls of the steps on to the journal, with the loop detector's word in their results (A4).

    `outcomes` are those of the last step.

    Once `token` is cancelled, results say nothing of loops; `halt` ends the turn.
    """

    def __init__(
        self,
        journal: TurnJournal,
        loops: LoopDetector,
        *,
        token: CancellationToken,
        halt: Callable[[Cancellation], object],
        is_voice: bool = False,
    ) -> None:
        self.outcomes: dict[str, ToolOutcome] = {}
        self._journal: Observer = journal
        self._loops = loops
        self._step = 0
        self._token = token
        self._halt = halt
        self._is_voice = is_voice

    def begin_step(self, step: int) -> None:
        """Observe the calls of this step from now on."""
        self._step = step
        self.outcomes = {}

    async def call_queued(self, call: LiveCall) -> None:
        with suppress(Fenced):  # the turn has ended meanwhile: nothing is to be told of it
            await self._journal.call_queued(call)

    async def call_started(self, call: LiveCall) -> None:
        await self._journal.call_started(call)

    async def call_progressed(self, call: LiveCall) -> None:
        with suppress(Fenced):
            await self._journal.call_progressed(call)

    async def deadline_moved(self, call: LiveCall, change: DeadlineChange) -> None:
        with suppress(Fenced):
            await self._journal.deadline_moved(call, change)

    async def call_cancelling(self, call: LiveCall) -> None:
        with suppress(Fenced):
            await self._journal.call_cancelling(call)

    async def call_ended(self, call: LiveCall, outcome: ToolOutcome) -> None:
        judged = self._judge(call, outcome)
        outcome = self.outcomes[call.id] = in_voice(judged) if self._is_voice else judged
        await self._journal.call_ended(call, outcome)

    async def call_settled_late(self, call: LiveCall, late: LateSettlement) -> None:
        await self._journal.call_settled_late(call, late)

    def _judge(self, call: LiveCall, outcome: ToolOutcome) -> ToolOutcome:
        if self._token.is_cancelled or _was_stopped(outcome):
            return outcome
        if call.tool is not None and call.tool.loop_exempt:
            return outcome
        verdict = self._loops.observe(
            call.call.tool_name,
            call.call.input,
            outcome.result,
            is_error=outcome.is_error,
            step=self._step,
        )
        if verdict.action is LoopAction.HALT:
            self._halt(Cancellation(reason=CancelReason.LOOP, note=verdict.text))
        return (
            replace(outcome, result=f"{outcome.result}\n{verdict.text}")
            if verdict.text
            else outcome
        )


def _was_stopped(outcome: ToolOutcome) -> bool:
    """Whether something that the model cannot help ended the call: a person, a parent turn, the server."""
    by = outcome.ended_by
    return by is not None and not by.reason.row.is_avoidable
