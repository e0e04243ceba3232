"""The approver of one step: while a person is asked, the turn's clock stands still (T5, D2)."""

from governance import Approver, Decision, LiveCall
from turns.core.clock import TurnClock


class StepApprover:
    """Passes the questions of a step on to the journal, and pauses the clock for as long as one waits."""

    def __init__(self, journal: Approver, *, clock: TurnClock) -> None:
        self._journal = journal
        self._clock = clock

    async def ask(self, call: LiveCall) -> Decision | None:
        """Put the question; the clock stands still from when people see it."""
        earlier = await self._journal.ask(call)
        if earlier is None:
            self._clock.pause()
        return earlier

    async def conclude(self, call: LiveCall, decision: Decision) -> Decision:
        """Let the clock go on, and return the decision that counts."""
        self._clock.resume()
        return await self._journal.conclude(call, decision)
