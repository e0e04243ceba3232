"""A person's decision on one call: the question, and the first of an answer, its expiry and a cancel (D2 to D4)."""

import asyncio
import threading
from dataclasses import dataclass
from enum import StrEnum

from governance.core.cancellation import CancellationToken
from governance.core.policy import ApprovalRule


class Verdict(StrEnum):
    """What became of a question; the first two are a person's word."""

    APPROVED = "approved"
    DENIED = "denied"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The end of a question: who decided, with which reason; `remember` = it holds for the whole scope.

    `question` is the id of the question that it answers.
    """

    verdict: Verdict
    by: str = ""
    reason: str = ""
    remember: bool = False
    question: str = ""


class Question:
    """One wait for a person's decision. Lives on one event loop; `answer` may be called from any thread.

    `id` is the approver's to give. `timeout` in seconds, None = a person may take any time. `definition` is the digest
    of the tool as it was shown, `description` what the tool says of itself. `host` is the host that the call would
    reach first, empty = it is not about one; `is_about_host` = it is about nothing else.
    """

    def __init__(
        self,
        *,
        rule: ApprovalRule,
        timeout: float | None,
        definition: str,
        description: str = "",
        host: str = "",
        is_about_host: bool = False,
    ) -> None:
        self.id = ""
        self.rule = rule
        self.timeout = timeout
        self.definition = definition
        self.description = description
        self.host = host
        self.is_about_host = is_about_host
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._answer: asyncio.Future[Decision] = self._loop.create_future()

    @property
    def is_open(self) -> bool:
        """Whether it has been put and not been answered."""
        return bool(self.id) and not self._answer.done()

    def answer(self, decision: Decision) -> None:
        """Take a decision; the first one counts, and one on another question does not."""
        if threading.get_ident() != self._thread:
            self._loop.call_soon_threadsafe(self.answer, decision)
        elif decision.question == self.id and not self._answer.done():
            self._answer.set_result(decision)

    async def decided(self, token: CancellationToken) -> Decision:
        """Wait for a decision, for the expiry or for a cancel, whichever is first."""
        expiry = None
        if self.timeout is not None:
            expiry = self._loop.call_later(self.timeout, self._end, Verdict.EXPIRED)
        forget = token.on_cancel(lambda _: self._end(Verdict.CANCELLED))
        try:
            return await self._answer
        finally:
            forget()
            if expiry is not None:
                expiry.cancel()

    def _end(self, verdict: Verdict) -> None:
        self.answer(Decision(verdict=verdict, question=self.id))
