"""A turn while a process runs it: its token, its runner, and how long it may take to end."""

import asyncio
from collections.abc import Callable

from governance import CancellationToken, LiveCall
from turns.core.ports import ClaimedTurn
from turns.core.requests import PendingCancel, PendingDecision, PendingRequest, PendingTimeout
from turns.core.runner import TurnRunner
from turns.core.tracing import turn_span


class RunningTurn:
    """A turn that this process runs. `overdue` is done once it should have ended and has not.

    A fenced one is not ours any more: `when_lost` is called once its runner has ended.
    """

    def __init__(self, turn: ClaimedTurn, *, cancel_bound: float) -> None:
        self.turn = turn
        self.token = CancellationToken()
        self.span = turn_span(turn)
        self.token.on_cancel(self.span.note_request)
        self.runner: TurnRunner | None = None
        self.is_fenced = False
        self.when_lost: Callable[[], object] = lambda: None
        self._timeouts: set[int] = set()  # the changes of limits that were applied
        self._loop = asyncio.get_running_loop()
        self.overdue: asyncio.Future[None] = self._loop.create_future()
        self.token.on_cancel(
            lambda _: self._loop.call_soon_threadsafe(
                self._loop.call_later, cancel_bound, self._note_overdue
            )
        )

    @property
    def is_waiting(self) -> bool:
        """Whether it only waits for a person or for another turn."""
        return self.runner is not None and self.runner.is_waiting

    def find_call(self, tool_id: str) -> LiveCall | None:
        """Return the call of this id if it waits or runs now."""
        return self.runner.find_call(tool_id) if self.runner else None

    @property
    def open_questions(self) -> list[str]:
        """The questions that its calls wait for."""
        calls = self.runner.waiting_calls if self.runner else ()
        return [call.question.id for call in calls if call.question is not None]

    def apply(self, request: PendingRequest) -> bool:
        """Apply a request; a second time it has no effect. Return False if that has to wait, for its call to begin."""
        match request:
            case PendingCancel():
                return self._cancel(request)
            case PendingTimeout():
                return request.is_late or self._set_timeout(request)
            case PendingDecision():
                call = self.find_call(request.tool_id)
                if call is not None:
                    call.answer(request.decision)
                return call is not None

    def _cancel(self, request: PendingCancel) -> bool:
        if request.tool_id:
            call = self.find_call(request.tool_id)
            return call is not None and call.cancel(request.cancellation)
        if request.mode == "after_step" and self.runner is not None:
            self.runner.cancel_after_step(request.cancellation)
        elif request.mode == "report" and self.runner is not None:
            self.runner.request_report()
        else:
            self.token.cancel(request.cancellation)
        return True

    def _set_timeout(self, request: PendingTimeout) -> bool:
        call = self.find_call(request.tool_id)
        if self.runner is None or call is None or not call.has_policy:
            return False
        if request.id not in self._timeouts:
            self._timeouts.add(request.id)
            self.runner.set_timeout(call, request)
        return True

    def _note_overdue(self) -> None:
        if not self.overdue.done():
            self.overdue.set_result(None)
