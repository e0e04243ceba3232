"""A tool call while it is governed: its status, and the one decision why it ends."""

from contextvars import copy_context

from governance.core.approvals import CallApproval, Decision, Question
from governance.core.bodies import Body
from governance.core.call_limits import CallLimits
from governance.core.call_progress import CallProgress
from governance.core.calls import CallStatus, Progress, ToolCall, check_transition
from governance.core.cancellation import Cancellation, CancellationToken
from governance.core.endings import Ending, EndingKind
from governance.core.images import CallImages
from governance.core.limiter import Obstacle
from governance.core.policy import TimeoutSource
from governance.core.promises import Promise
from governance.core.tools import Tool


class LiveCall:
    """One governed call from proposal to outcome. Made by `ToolExecutor.prepare`; lives on one event loop.

    `own_tool` replaces the registered one. `prepared_at` is a stamp of the executor's scopes. `queued` is the seconds
    of waiting for a slot, `waits_for` its present obstacle. `cancel` may be called from any thread.
    """

    def __init__(
        self,
        call: ToolCall,
        *,
        token: CancellationToken,
        own_tool: Tool | None = None,
        prepared_at: int | None = None,
    ) -> None:
        self.call = call
        self.id = call.id  # the model's id of it
        self.token = token
        self.own_tool = own_tool
        self.prepared_at = prepared_at
        self.tool: Tool | None = own_tool
        self.status = CallStatus.PENDING
        self.queued = 0.0
        self.waits_for: Obstacle | None = None
        self.ending: Promise[Ending] = Promise()
        self.limits = CallLimits(self.ending)
        self.progress = CallProgress(self.limits, self.ending)
        self.approval = CallApproval()
        self.images = CallImages(token)
        self.body: Body | None = None
        self.context = copy_context()  # what is told of it goes on when a foreign request is over

    @property
    def has_policy(self) -> bool:
        """Whether its limits are known, so that another one can be set."""
        return self.limits.policy is not None

    @property
    def elapsed(self) -> float:
        """Seconds of running so far; 0.0 before the start."""
        return self.limits.elapsed

    @property
    def timeout(self) -> float | None:
        return self.limits.timeout

    @property
    def idle_timeout(self) -> float | None:
        return self.limits.idle_timeout

    @property
    def timeout_source(self) -> TimeoutSource | None:
        return self.limits.timeout_source

    @property
    def last_progress(self) -> Progress | None:
        return self.progress.last

    @property
    def partial_output(self) -> str:
        """The output that the tool has reported so far, without its middle if it is long."""
        return self.progress.output

    @property
    def question(self) -> Question | None:
        """What a person is, or was, asked about the call."""
        return self.approval.question

    @property
    def ended_by(self) -> Cancellation | None:
        return self.token.cancellation

    def change_status(self, status: CallStatus) -> None:
        """Go to another status. Raise `IllegalTransition` if it may not follow."""
        check_transition(self.status, status)
        self.status = status
        if status.is_terminal:
            self.progress.close()
            self.images.close()

    def cancel(self, cancellation: Cancellation) -> bool:
        """Ask the call to stop (C3). Return False if it was asked before or has ended."""
        has_ended = self.status.is_terminal or self.ending.done()
        return not has_ended and self.token.cancel(cancellation)

    def end_on_cancel(self) -> None:
        """From now on, a cancel ends the wait for the body."""
        ending = self.ending
        # A callback that held the call would keep its memory until the next collection.
        self.token.on_cancel(
            lambda request: ending.resolve(Ending(kind=EndingKind.CANCEL, cancellation=request))
        )

    def answer(self, decision: Decision) -> None:
        """Pass a person's decision to the call's open question; a late or foreign one is ignored."""
        if self.question is not None:
            self.question.answer(decision)
