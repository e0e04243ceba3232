"""The wait of a call for a person's decision (D2 to D4).

It ends when a person answers, the time limit runs out or a cancel arrives. The executor asks the question.
`governance/approval_store.py` stores it and decides which answer came first.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from governance.core.cancellation import CancellationToken, Promise
from governance.core.forms import Form
from governance.core.policy import ApprovalRule
from governance.core.tools import Tool


class Verdict(StrEnum):
    """The way in which a question ended. The first two values are decisions of a person."""

    APPROVED = "approved"
    DENIED = "denied"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The end of a question: the verdict, who decided, and why. With `remember`, it applies to the whole scope.

    `question` is the id of the question. `answers` contains the answers to a form.
    """

    verdict: Verdict
    by: str = ""
    reason: str = ""
    remember: bool = False
    question: str = ""
    answers: Mapping[str, Any] | None = None


class Question:
    """A request for a person's decision. It belongs to one event loop, but `answer` may be called from any thread.

    The approver sets `id`. `timeout` is in seconds, and `None` means no limit. `definition` is the digest of the tool
    as it was shown, and `description` is the tool's own description. `host` is the first unapproved web host that the
    call would connect to, or empty; with `is_about_host`, the question is only about that host. With a `form`, a
    running call asks the person to fill in the form.
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
        form: Form | None = None,
    ) -> None:
        self.id = ""
        self.rule = rule
        self.timeout = timeout
        self.definition = definition
        self.description = description
        self.host = host
        self.is_about_host = is_about_host
        self.form = form
        self._answer: Promise[Decision] = Promise()

    @property
    def is_open(self) -> bool:
        """Whether the question has been asked, but not answered yet."""
        return bool(self.id) and not self._answer.done()

    def answer(self, decision: Decision) -> None:
        """Accept a decision. Later decisions, and decisions on another question, are ignored."""
        if decision.question == self.id:
            self._answer.resolve(decision)

    def withdraw(self) -> None:
        """End the wait without a decision, because it is no longer needed."""
        self._end(Verdict.CANCELLED)

    async def decided(self, token: CancellationToken) -> Decision:
        """Wait for a decision, the expiry or a cancel, whichever comes first, and return how the question ended."""
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


class CallApproval:
    """The approval state of one call. `unknown_host` is the web host that a person must approve first, or empty."""

    def __init__(self) -> None:
        self.question: Question | None = None
        self.unknown_host = ""
        self._approved: tuple[str, ApprovalRule] | None = None

    def clear(self, tool: Tool, *, rule: ApprovalRule) -> None:
        """Record a person's approval.

        It is valid for the tool's current definition, and for rules that are no stricter than `rule` (D1, D4).
        """
        self._approved = tool.definition, rule

    def clears(self, tool: Tool, rule: ApprovalRule) -> bool:
        """Return whether the call may start, because it needs no approval or has one for this definition and rule."""
        if rule is ApprovalRule.NEVER:
            return True
        if self._approved is None:
            return False
        definition, strictest = self._approved
        return definition == tool.definition and strictest.strictness >= rule.strictness
