"""A person's decision on one call. A question ends by the first of an answer, its expiry and a cancel (D2 to D4)."""

import asyncio
from dataclasses import dataclass
from enum import StrEnum

from governance.core.cancellation import CancellationToken
from governance.core.policy import ApprovalRule
from governance.core.promises import Promise
from governance.core.tools import Tool


class Verdict(StrEnum):
    """How a question ended; the first two are a person's decision."""

    APPROVED = "approved"
    DENIED = "denied"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The end of a question: who decided, and why; `remember` = it holds for the whole scope.

    `question` is the id of the question that it answers.
    """

    verdict: Verdict
    by: str = ""
    reason: str = ""
    remember: bool = False
    question: str = ""


class Question:
    """One wait for a person's decision. Lives on one event loop; `answer` may be called from any thread.

    The approver sets `id`. `timeout` in seconds, None = no limit. `definition` is the digest of the tool as it was
    shown, `description` the tool's own text. `host` is the first host that the call would reach, empty = none;
    `is_about_host` = the question is only about that host.
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
        """Take a decision; the first one counts, and one on another question is ignored."""
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
    """Permission to start a call (D1, D4): the tool's definition that was approved, and the strictest rule it satisfies."""

    definition: str
    rule: ApprovalRule


@dataclass(slots=True)
class CallApproval:
    """The approval state of one call; `unknown_host` is the host that a person must approve first."""

    question: Question | None = None
    approval_grant: ApprovalGrant | None = None
    unknown_host: str = ""

    def clear(self, tool: Tool, *, rule: ApprovalRule) -> None:
        """Store that a person approved the call, for the tool's present definition and up to this rule."""
        self.approval_grant = ApprovalGrant(definition=tool.definition, rule=rule)

    def clears(self, tool: Tool, rule: ApprovalRule) -> bool:
        """Return whether the call may start: without approval, or with one for this definition under a rule as strict."""
        if rule is ApprovalRule.NEVER:
            return True
        known = self.approval_grant
        return (
            known is not None
            and known.definition == tool.definition
            and known.rule.strictness >= rule.strictness
        )
