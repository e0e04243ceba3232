"""A person's decision on one call: the question, and the first of an answer, its expiry and a cancel (D2 to D4)."""

import asyncio
from dataclasses import dataclass
from enum import StrEnum

from governance.core.cancellation import CancellationToken
from governance.core.policy import ApprovalRule
from governance.core.promises import Promise
from governance.core.tools import Tool


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
        self._answer: Promise[Decision] = Promise()

    @property
    def is_open(self) -> bool:
        """Whether it has been put and not been answered."""
        return bool(self.id) and not self._answer.done()

    def answer(self, decision: Decision) -> None:
        """Take a decision; the first one counts, and one on another question does not."""
        if decision.question == self.id:
            self._answer.resolve(decision)

    async def decided(self, token: CancellationToken) -> Decision:
        """Wait for a decision, for the expiry or for a cancel, whichever is first."""
        expiry = None
        if self.timeout is not None:
            loop = asyncio.get_running_loop()
            expiry = loop.call_later(self.timeout, self._end, Verdict.EXPIRED)
        forget = token.on_cancel(lambda _: self._end(Verdict.CANCELLED))
        try:
            return await self._answer
        finally:
            forget()
            if expiry is not None:
                expiry.cancel()

    def _end(self, verdict: Verdict) -> None:
        self.answer(Decision(verdict=verdict, question=self.id))


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalGrant:
    """That a call may start: what was looked at (the tool's definition), and up to which rule that is enough (D1, D4)."""

    definition: str
    rule: ApprovalRule


@dataclass(slots=True)
class CallApproval:
    """What people have to do with one call; `unknown_host` is the host that they have to know of first."""

    question: Question | None = None
    approval_grant: ApprovalGrant | None = None
    unknown_host: str = ""

    def clear(self, tool: Tool, *, rule: ApprovalRule) -> None:
        """Note that a person's word lets the call start, for the tool as it is and up to this rule."""
        self.approval_grant = ApprovalGrant(definition=tool.definition, rule=rule)

    def clears(self, tool: Tool, rule: ApprovalRule) -> bool:
        """Return whether the call needs nobody's word, or has it: for the tool as it is, under a rule as strict as this one."""
        if rule is ApprovalRule.NEVER:
            return True
        known = self.approval_grant
        return (
            known is not None
            and known.definition == tool.definition
            and known.rule.strictness >= rule.strictness
        )
