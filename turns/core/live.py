"""A turn while a process runs it: its token, its runner, and whether it is still this process's."""

import asyncio

from governance import CancellationToken, LiveCall
from turns.core.ports import ClaimedTurn
from turns.core.runner import TurnRunner


class LiveTurn:
    """A turn that this process runs."""

    def __init__(self, turn: ClaimedTurn) -> None:
        self.turn = turn
        self.token = CancellationToken()
        self.runner: TurnRunner | None = None
        self.is_fenced = False
        self.overdue: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def find_call(self, tool_id: str) -> LiveCall | None:
        """Return the call of this id if it waits or runs now."""
        return self.runner.find_call(tool_id) if self.runner else None

    @property
    def is_waiting(self) -> bool:
        """Whether it only waits for a person or for another turn."""
        return self.runner is not None and self.runner.is_waiting
