"""A turn while a process runs it: its token, its runner once that is made, and how long it may take to end."""

import asyncio

from governance import CancellationToken, LiveCall
from turns.core.ports import ClaimedTurn, PendingCancel
from turns.core.runner import TurnRunner


class RunningTurn:
    """A turn that this process runs. `overdue` is done once it should have ended and has not."""

    def __init__(self, turn: ClaimedTurn, *, cancel_bound: float) -> None:
        self.turn = turn
        self.token = CancellationToken()
        self.runner: TurnRunner | None = None
        self.is_fenced = False
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

    def apply(self, order: PendingCancel) -> None:
        """Carry out a stored request to end this turn, or one of its calls."""
        if order.tool_id:
            if (call := self.find_call(order.tool_id)) is not None:
                call.cancel(order.cancellation)
        elif order.mode == "after_step" and self.runner is not None:
            self.runner.cancel_after_step(order.cancellation)
        elif order.mode == "report" and self.runner is not None:
            self.runner.request_report()
        else:
            self.token.cancel(order.cancellation)

    def _note_overdue(self) -> None:
        if not self.overdue.done():
            self.overdue.set_result(None)
