"""The forms that a running call shows to a person: one at a time, while the call's clocks are paused (T5)."""

import asyncio
from contextlib import suppress
from dataclasses import replace

from governance.core.approvals import Decision, Question, Verdict
from governance.core.forms import Form, FormAnswer, FormRefused
from governance.core.live_call import LiveCall
from governance.core.policy import ApprovalRule
from governance.core.ports import Approver

MOST_FORMS = 10  # per call


class BodyQuestions:
    """The forms of one call. Every form is refused if there is no approver, or after `aclose`."""

    def __init__(self, live: LiveCall, *, approver: Approver | None) -> None:
        self._live = live
        self._approver = approver
        self._turn = asyncio.Lock()
        self._count = 0
        self._asking: asyncio.Task[Decision] | None = None
        self._is_closed = False

    async def ask(self, form: Form) -> FormAnswer:
        """Show the form to a person and return the answer. A cancel of the call withdraws the form.

        Raises:
            FormRefused: there is no approver, the call has shown too many forms, or it has ended.
        """
        if self._approver is None:
            raise FormRefused("nobody can be asked here")
        self._count += 1
        if self._count > MOST_FORMS:
            raise FormRefused(f"one call may ask at most {MOST_FORMS} questions")
        async with self._turn:
            # This runs in a separate task, because a cancelled body still has to withdraw its question.
            self._asking = asyncio.create_task(
                self._ask(form, self._approver), name=f"form of {self._live.id}"
            )
            try:
                return _answer_of(await asyncio.shield(self._asking))
            except asyncio.CancelledError:
                self._withdraw()
                raise

    async def aclose(self) -> None:
        """Withdraw the open question, and wait until the withdrawal is recorded."""
        self._is_closed = True
        if self._asking is not None:
            self._withdraw()
            with suppress(Exception):  # the body has already received the exception
                await self._asking

    def _withdraw(self) -> None:
        if self._live.question is not None:
            self._live.question.withdraw()

    async def _ask(self, form: Form, approver: Approver) -> Decision:
        live = self._live
        # Check here, because `aclose` may run before this task's first step, and finds no question to withdraw then.
        if self._is_closed or live.token.is_cancelled:
            raise FormRefused("the call has ended")
        tool, policy, deadline = live.tool, live.limits.policy, live.limits.deadline
        assert tool is not None  # noqa: S101 - its body runs
        assert policy is not None  # noqa: S101 - its body runs
        assert deadline is not None  # noqa: S101 - its body runs
        question = live.approval.question = Question(
            rule=ApprovalRule.ALWAYS,
            timeout=policy.approval_timeout,
            definition=tool.definition,
            form=form,
        )
        deadline.pause()
        try:
            await approver.ask(live)
            decision = await question.decided(live.token)
            # The question may have been withdrawn before it had an id.
            return await approver.conclude(live, replace(decision, question=question.id))
        finally:
            deadline.resume()


def _answer_of(decision: Decision) -> FormAnswer:
    match decision.verdict:
        case Verdict.APPROVED:
            return FormAnswer(action="accept", answers=decision.answers or {})
        case Verdict.DENIED:
            return FormAnswer(action="decline")
    return FormAnswer(action="cancel")
