"""One request to run one tool: its status, its outcome, and the moves that are allowed between the two."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from governance.core.cancel_reasons import CancelReason
from governance.core.cancellation import Cancellation
from governance.core.deadline import Limit
from governance.core.exceptions import IllegalTransition
from governance.core.images import ResultImage
from governance.core.value_objects import value_object


class CallStatus(StrEnum):
    """The state of a call; the values are those of the wire."""

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
    # not_started after running: the journal is written ahead, and a stop may come before the body (C1)
    CallStatus.RUNNING: frozenset({CallStatus.CANCELLING, CallStatus.NOT_STARTED}) | _ENDED_RUNNING,
    CallStatus.CANCELLING: frozenset({CallStatus.NOT_STARTED}) | _ENDED_RUNNING,
}


def check_transition(before: CallStatus, after: CallStatus) -> None:
    """Raise `IllegalTransition` unless `after` may follow `before`."""
    if after not in ALLOWED_TRANSITIONS.get(before, frozenset()):
        raise IllegalTransition(f"A tool call cannot go from {before!r} to {after!r}.")


class ErrorType(StrEnum):
    """Why a call failed (T4); stored on the call and sent with its `tool_result`."""

    TIMEOUT = "timeout"
    EXECUTION_ERROR = "execution_error"
    INVALID_INPUT = "invalid_input"
    UNKNOWN_TOOL = "unknown_tool"
    DISABLED = "disabled"
    CANCELLED = "cancelled"
    NOT_STARTED = "not_started"
    QUEUE_FULL = "queue_full"
    QUEUE_TIMEOUT = "queue_timeout"
    DENIED = "denied"
    EXPIRED = "expired"
    NO_APPROVER = "no_approver"
    INTERRUPTED = "interrupted"


class Disposition(StrEnum):
    """What is known of the work (C13)."""

    SETTLED = "settled"
    NOT_STARTED = "not_started"
    INDETERMINATE = "indeterminate"


@value_object
class ToolCall:
    """What a model asked for. `scope` is opaque; `position` is its place in the step, from 0.

    `problem` is a sentence on why the input cannot be read; such a call is refused.
    """

    id: str
    tool_name: str
    input: Mapping[str, Any] = field(default_factory=dict)
    scope: str = ""
    position: int = 0
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """A sign of life: a sentence, `progress` of `total`, or a piece of output (kept as partial result)."""

    message: str = ""
    progress: float | None = None
    total: float | None = None
    output: str = ""


@value_object
class ToolOutcome:
    """How a call ended: exactly one for every call.

    `result` is the text that the model reads. `duration` is seconds of running (0.0 if it never ran), `queued`
    seconds of waiting for a slot. `ended_by` is set when something outside the tool ended it. `detail` is for the log
    and the operators, never for a browser or a model. `limit` is the limit of the call that ran out. `images` are what
    the call has shown.

    `value` is what the body returned, `error` what its caller would see raised. They serve code in this process that
    calls a function (B8), and are not recorded.
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
        """The limit that ended the call, including those of the turn and of a decision; None if none did."""
        if self.limit is not None:
            return self.limit
        if self.status is CallStatus.EXPIRED:
            return Limit.APPROVAL
        is_by_time = self.ended_by is not None and self.ended_by.reason is CancelReason.TIMEOUT
        return Limit.TURN if is_by_time else None


@dataclass(frozen=True, slots=True, kw_only=True)
class LateSettlement:
    """What an abandoned or timed-out body did after all (T11): recorded, never shown as the result."""

    kind: str  # "returned" | "raised" | "cancelled" | "process_ended"
    text: str
    after: float  # seconds since the outcome
