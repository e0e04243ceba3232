"""Tools and the rules they run under: deadlines, cancellation, limits, one outcome for every call.

Other code imports this facade. It needs no Django, so the executor can govern the tools of any program (B8).
"""

from governance.core.approvals import Decision, Question, Verdict
from governance.core.calls import (
    OPEN_STATUSES,
    CallStatus,
    Disposition,
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
from governance.core.cancellation import Cancellation, CancellationToken, Cancelled
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
    ToolTimeoutError,
    TooManyAbandonedThreads,
    UnknownTool,
)
from governance.core.excerpts import excerpt, shortened
from governance.core.executor import Timing, ToolExecutor
from governance.core.images import ImageRefused, KeepImage, ResultImage
from governance.core.limiter import Limits, Obstacle, WaitsFor
from governance.core.live_call import LiveCall
from governance.core.loop_detector import LoopAction, LoopDetector
from governance.core.model_messages import (
    abandoned_text,
    denied_text,
    expired_text,
    interrupted_text,
    not_started_text,
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
from governance.core.scopes import ScopeKind, ScopeRegistry
from governance.core.tools import Concurrency, Isolation, Tool, ToolContext
from governance.core.tracing import Span, enclosing, is_traced, traceparent
from governance.core.unfinished import unfinished_outcome

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
    "ErrorType",
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
    "ScopeRegistry",
    "Span",
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
    "ToolLimits",
    "ToolOutcome",
    "ToolRegistry",
    "ToolTimeoutError",
    "UnknownTool",
    "Unobserved",
    "Verdict",
    "WaitsFor",
    "abandoned_text",
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
    "is_traced",
    "make_tool",
    "not_started_text",
    "registry",
    "resolve",
    "shortened",
    "stricter",
    "tool",
    "traceparent",
    "unfinished_outcome",
]
