"""Tools, and the rules under which they run: deadlines, cancellation, limits, and one outcome for every call.

Other code imports from this module. It does not need Django, so the executor can govern the tools of any program (B8).
"""

from governance.core.approvals import Decision, Question, Verdict
from governance.core.calls import (
    OPEN_STATUSES,
    CallStatus,
    Disposition,
    Effects,
    ErrorType,
    LateSettlement,
    Progress,
    ToolCall,
    ToolOutcome,
)
from governance.core.cancel_intent import (
    has_cancel_word,
    is_cancel_intent,
    is_cancel_phrase,
)
from governance.core.cancel_intent import vocabulary as cancel_vocabulary
from governance.core.cancel_reasons import CancelReason, CancelSource
from governance.core.cancellation import (
    Cancellation,
    CancellationToken,
    Cancelled,
    ScopeKind,
)
from governance.core.checkpoints import checkpoint
from governance.core.deadline import Deadline, DeadlineChange, Limit
from governance.core.exceptions import (
    ApprovalExpired,
    ApprovalUnavailable,
    GovernanceError,
    IllegalTransition,
    InvalidToolInput,
    QueueFull,
    QueueTimeout,
    ToolCallDenied,
    ToolDisabled,
    ToolExecutionError,
    ToolFailed,
    ToolForbidden,
    ToolTimeoutError,
    TooManyAbandonedThreads,
    UnknownTool,
)
from governance.core.excerpts import excerpt, shortened
from governance.core.executor import Timing, ToolExecutor
from governance.core.forms import Form, read_answers
from governance.core.images import ImageRefused, KeepImage, ResultImage
from governance.core.limiter import Limits, Obstacle, WaitsFor
from governance.core.live_call import LiveCall
from governance.core.loop_detector import LoopAction, LoopDetector
from governance.core.masking import mask
from governance.core.outcomes import (
    abandoned_text,
    denied_text,
    expired_text,
    interrupted_text,
    not_started_text,
    unfinished_outcome,
)
from governance.core.policy import (
    ApprovalRule,
    Policy,
    PolicyLevels,
    TimeoutSource,
    ToolLimits,
    cap,
    resolve,
    stricter,
)
from governance.core.ports import Approver, Host, Observer, PolicySource, Unobserved
from governance.core.registry import ToolRegistry, make_tool, registry, tool
from governance.core.tools import (
    Concurrency,
    Isolation,
    StillMine,
    Tool,
    ToolContext,
    Users,
    always_mine,
)
from governance.core.tracing import Span, enclosing, traceparent

__all__ = [
    "OPEN_STATUSES",
    "ApprovalExpired",
    "ApprovalRule",
    "ApprovalUnavailable",
    "Approver",
    "CallStatus",
    "CancelReason",
    "CancelSource",
    "Cancellation",
    "CancellationToken",
    "Cancelled",
    "Concurrency",
    "Deadline",
    "DeadlineChange",
    "Decision",
    "Disposition",
    "Effects",
    "ErrorType",
    "Form",
    "GovernanceError",
    "Host",
    "IllegalTransition",
    "ImageRefused",
    "InvalidToolInput",
    "Isolation",
    "KeepImage",
    "LateSettlement",
    "Limit",
    "Limits",
    "LiveCall",
    "LoopAction",
    "LoopDetector",
    "Observer",
    "Obstacle",
    "Policy",
    "PolicyLevels",
    "PolicySource",
    "Progress",
    "Question",
    "QueueFull",
    "QueueTimeout",
    "ResultImage",
    "ScopeKind",
    "Span",
    "StillMine",
    "TimeoutSource",
    "Timing",
    "TooManyAbandonedThreads",
    "Tool",
    "ToolCall",
    "ToolCallDenied",
    "ToolContext",
    "ToolDisabled",
    "ToolExecutionError",
    "ToolExecutor",
    "ToolFailed",
    "ToolForbidden",
    "ToolLimits",
    "ToolOutcome",
    "ToolRegistry",
    "ToolTimeoutError",
    "UnknownTool",
    "Unobserved",
    "Users",
    "Verdict",
    "WaitsFor",
    "abandoned_text",
    "always_mine",
    "cancel_vocabulary",
    "cap",
    "checkpoint",
    "denied_text",
    "enclosing",
    "excerpt",
    "expired_text",
    "has_cancel_word",
    "interrupted_text",
    "is_cancel_intent",
    "is_cancel_phrase",
    "make_tool",
    "mask",
    "not_started_text",
    "read_answers",
    "registry",
    "resolve",
    "shortened",
    "stricter",
    "tool",
    "traceparent",
    "unfinished_outcome",
]
