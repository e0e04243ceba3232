"""The exceptions of governance.

GovernanceError
├── UnknownTool
├── InvalidToolInput
├── ToolDisabled
├── ApprovalUnavailable     a person must approve the call, and the host has no approver
├── ToolCallDenied          a person denied the call
├── ApprovalExpired         the approval limit ran out
├── ToolFailed              raised by a tool: a sentence for the model
├── ToolTimeoutError
├── ToolExecutionError
├── QueueFull
├── QueueTimeout
├── CallNotStarted          an invoker refused the body: it had no effect
│   └── TooManyAbandonedThreads
├── OutcomeUnknown          the body ended without saying how far it got
│   └── MayStillRun         it was asked to stop, and its work may go on elsewhere
└── IllegalTransition
"""

from asyncio import Future
from typing import Any


class GovernanceError(Exception):
    """Base of the exceptions of governance; its text is safe to show."""


class UnknownTool(GovernanceError):
    """No tool of this name is registered."""

    def __init__(self, tool_name: str) -> None:
        super().__init__(f"There is no tool named {tool_name!r}.")
        self.tool_name = tool_name


class ToolDisabled(GovernanceError):
    """The tool is switched off: by an administrator, or by what `reason` says in sentences."""

    def __init__(self, tool_name: str, reason: str = "") -> None:
        super().__init__(reason or f"The tool {tool_name!r} is switched off by an administrator.")
        self.tool_name = tool_name


class ApprovalUnavailable(GovernanceError):
    """A person must approve the call, and its host has no approver (D2)."""

    def __init__(self, tool_name: str) -> None:
        super().__init__(
            f"A person must allow each call of {tool_name!r}, and nobody can be asked here."
        )
        self.tool_name = tool_name


class ToolCallDenied(GovernanceError):
    """A person has decided that the call may not run (D2)."""

    def __init__(self, tool_name: str, reason: str = "") -> None:
        super().__init__(
            f"A person has denied this call of {tool_name!r}" + (f": {reason}" if reason else ".")
        )
        self.tool_name = tool_name
        self.reason = reason


class ApprovalExpired(GovernanceError):
    """The approval limit ran out before a decision (D3)."""

    def __init__(self, tool_name: str, timeout: float) -> None:
        super().__init__(f"Nobody decided on this call of {tool_name!r} within {timeout:g}s.")
        self.tool_name = tool_name
        self.timeout = timeout


class InvalidToolInput(GovernanceError):
    """The input does not fit the tool's schema; the text lists each wrong field."""

    def __init__(self, tool_name: str, problems: str) -> None:
        super().__init__(f"The input of {tool_name!r} is not valid: {problems}")
        self.tool_name = tool_name
        self.problems = problems


class ToolFailed(GovernanceError):
    """Raised by a tool that wants the model to read exactly this sentence."""


class ToolTimeoutError(GovernanceError):
    """A tool did not end within its limit (T4)."""

    def __init__(self, tool_name: str, timeout: float) -> None:
        super().__init__(f"Tool {tool_name!r} did not respond within {timeout:g}s.")
        self.tool_name = tool_name
        self.timeout = timeout


class ToolExecutionError(GovernanceError):
    """A tool raised; `original_error` stays on the server, for the log (T4)."""

    def __init__(self, tool_name: str, original_error: BaseException) -> None:
        super().__init__(f"Tool {tool_name!r} raised {type(original_error).__name__}.")
        self.tool_name = tool_name
        self.original_error = original_error


class QueueFull(GovernanceError):
    """Too many calls are running and waiting already (P4)."""


class QueueTimeout(GovernanceError):
    """No slot came free within the queue timeout (P4)."""


class CallNotStarted(GovernanceError):
    """The invoker refused this body: it never ran and had no effect (C13)."""


class OutcomeUnknown(GovernanceError):
    """The body ended without saying how far it got: it may have been applied (C13)."""


class MayStillRun(OutcomeUnknown):
    """A cancelled body no longer waits, and its work may continue elsewhere (C13).

    `answer` resolves with the result of that work if one is seen, and is cancelled if none can come.
    """

    def __init__(self, message: str, *, answer: Future[Any] | None = None) -> None:
        super().__init__(message)
        self.answer = answer


class TooManyAbandonedThreads(CallNotStarted):
    """The cap on threads that outlived their deadline is reached (T7)."""


class IllegalTransition(GovernanceError):
    """A status was asked to move where the table of allowed moves has no arrow."""
