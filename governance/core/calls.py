"""A request to run a tool, with its status, the allowed transitions, and its outcome."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from governance.core.cancel_reasons import CancelReason
from governance.core.cancellation import Cancellation
from governance.core.deadline import Limit
from governance.core.exceptions import IllegalTransition
from governance.core.images import ResultImage
from governance.sanitize import clean_arguments


class CallStatus(StrEnum):
    """The status of a call. The values are those that the protocol uses."""

    PENDING = "pending"
    AWAITING_APPROVAL = "awaiting_approval"
    RUNNING = "running"
    CANCELLING = "cancelling"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    DENIED = "denied"
    EXPIRED = "expired"
    NOT_STARTED = "not_started"
    ABANDONED = "abandoned"
    REPAIRED = "repaired"

    @property
    def is_terminal(self) -> bool:
        return self not in _OPEN


_OPEN = frozenset(
    {CallStatus.PENDING, CallStatus.AWAITING_APPROVAL, CallStatus.RUNNING, CallStatus.CANCELLING}
)
OPEN_STATUSES = tuple(sorted(_OPEN))
RUNNING_STATUSES = (CallStatus.RUNNING, CallStatus.CANCELLING)
_ENDED_RUNNING = frozenset(
    {
        CallStatus.SUCCEEDED,
        CallStatus.FAILED,
        CallStatus.TIMED_OUT,
        CallStatus.CANCELLED,
        CallStatus.ABANDONED,
        CallStatus.REPAIRED,
    }
)
_NEVER_RAN = frozenset(
    {CallStatus.NOT_STARTED, CallStatus.FAILED, CallStatus.CANCELLED, CallStatus.REPAIRED}
)
ALLOWED_TRANSITIONS: Mapping[CallStatus, frozenset[CallStatus]] = {
    CallStatus.PENDING: frozenset({CallStatus.AWAITING_APPROVAL, CallStatus.RUNNING}) | _NEVER_RAN,
    CallStatus.AWAITING_APPROVAL: frozenset(
        {CallStatus.PENDING, CallStatus.RUNNING, CallStatus.DENIED, CallStatus.EXPIRED}
    )
    | _NEVER_RAN,
    # `not_started` may follow `running`, because the status is recorded before the body starts, and a cancel may arrive
    # in between (C1).
    CallStatus.RUNNING: frozenset({CallStatus.CANCELLING, CallStatus.NOT_STARTED}) | _ENDED_RUNNING,
    CallStatus.CANCELLING: frozenset({CallStatus.NOT_STARTED}) | _ENDED_RUNNING,
}


def check_transition(before: CallStatus, after: CallStatus) -> None:
    """Raise `IllegalTransition` unless `after` may follow `before`."""
    if after not in ALLOWED_TRANSITIONS.get(before, frozenset()):
        raise IllegalTransition(f"A tool call cannot go from {before!r} to {after!r}.")


class ErrorType(StrEnum):
    """The reason why a call failed (T4), which is stored with the call and sent with its `tool_result`."""

    TIMEOUT = "timeout"
    EXECUTION_ERROR = "execution_error"
    INVALID_INPUT = "invalid_input"
    UNKNOWN_TOOL = "unknown_tool"
    DISABLED = "disabled"
    CANCELLED = "cancelled"
    NOT_STARTED = "not_started"
    TOO_MANY_CALLS = "too_many_calls"
    QUEUE_FULL = "queue_full"
    QUEUE_TIMEOUT = "queue_timeout"
    DENIED = "denied"
    EXPIRED = "expired"
    NO_APPROVER = "no_approver"
    FORBIDDEN = "forbidden"
    INTERRUPTED = "interrupted"


class Disposition(StrEnum):
    """What is known about the work of a call: it has ended, it was never started, or it may still be running (C13)."""

    SETTLED = "settled"
    NOT_STARTED = "not_started"
    INDETERMINATE = "indeterminate"


class Effects(StrEnum):
    """The effects that the work of a call may have had in addition to its result."""

    NONE = "none"  # it never started, or its tool has no side effects and it was not abandoned
    POSSIBLE = "possible"  # its tool has side effects, or it is not known to have ended
    CUT = "cut"  # its tool has side effects, and it was ended in the middle of them

    @classmethod
    def of_running(cls, *, side_effects: bool) -> "Effects":
        """Return the effects of a call that has started."""
        return cls.POSSIBLE if side_effects else cls.NONE

    @classmethod
    def of_ended(
        cls, status: CallStatus, disposition: Disposition, *, side_effects: bool
    ) -> "Effects":
        """Return the effects of a call that ended with this status and disposition."""
        if disposition is Disposition.NOT_STARTED:
            return cls.NONE
        if disposition is Disposition.INDETERMINATE:
            return cls.CUT if side_effects else cls.POSSIBLE
        if side_effects and status in _CUT_OFF:
            return cls.CUT
        return cls.of_running(side_effects=side_effects)


_CUT_OFF = (CallStatus.TIMED_OUT, CallStatus.CANCELLED)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A tool call that a model has requested. `scope` is an opaque id, and `position` is the call's index in its step.

    `problem` is a sentence that says why the input cannot be read. A call with a problem is refused. A call beyond the
    `most` calls that are allowed in one answer is refused too. The input is cleaned on creation, so that the same value
    is stored, shown to people, and passed to the tool.
    """

    id: str
    tool_name: str
    input: Mapping[str, Any] = field(default_factory=dict)
    scope: str = ""
    position: int = 0
    problem: str = ""
    most: int | None = None

    def __post_init__(self) -> None:
        clean, problem = clean_arguments(self.input)
        object.__setattr__(self, "input", clean)
        if problem and not self.problem:
            object.__setattr__(self, "problem", problem)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """A progress report: a message, `progress` of `total`, or a piece of output that is kept as a partial result."""

    message: str = ""
    progress: float | None = None
    total: float | None = None
    output: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOutcome:
    """The outcome of a call. Every call has exactly one outcome.

    `result` is the text that the model reads. `duration` is the number of seconds that the call ran (0.0 if it never
    ran), and `queued` the number of seconds that it waited for a slot. `ended_by` is set if a cancel ended the call.
    `detail` is for the log and the operators, never for a browser or a model. `limit` is the limit that ran out.
    `images` are the images that the call has shown.

    `value` is the object that the body returned, and `error` is the exception that a caller of the function would see.
    Both are for code that calls a function in this process (B8), and are not stored.
    """

    status: CallStatus
    result: str
    is_error: bool = False
    error_type: ErrorType | None = None
    disposition: Disposition = Disposition.SETTLED
    ended_by: Cancellation | None = None
    limit: Limit | None = None
    timeout: float | None = None
    timeout_source: str = ""
    duration: float = 0.0
    queued: float = 0.0
    detail: str = ""
    images: tuple[ResultImage, ...] = ()
    value: Any = field(default=None, repr=False, compare=False)
    error: Exception | None = field(default=None, repr=False, compare=False)

    @property
    def limit_reached(self) -> Limit | None:
        """The limit that ended the call (its own, its turn's, or the time limit for an approval), or `None`."""
        if self.limit is not None:
            return self.limit
        if self.status is CallStatus.EXPIRED:
            return Limit.APPROVAL
        is_by_time = self.ended_by is not None and self.ended_by.reason is CancelReason.TIMEOUT
        return Limit.TURN if is_by_time else None


@dataclass(frozen=True, slots=True, kw_only=True)
class LateSettlement:
    """The later end of the work of an abandoned or timed-out call (T11), which does not change the call's result."""

    kind: str  # "returned" | "raised" | "cancelled" | "process_ended"
    text: str
    after: float  # seconds since the outcome
