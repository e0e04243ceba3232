"""The exceptions of governance.

GovernanceError
├── UnknownTool
├── InvalidToolInput
├── ToolDisabled
├── ToolForbidden           the person for whom the call works lacks the permission
├── ApprovalUnavailable     a person must approve the call, and the host has no approver
├── ToolCallDenied          a person denied the call
├── ApprovalExpired         the approval limit ran out
├── TooManyCalls            one answer of the model requested more calls than allowed
├── ToolFailed              raised by a tool: a sentence for the model
├── ToolTimeoutError
├── ToolExecutionError
├── QueueFull
├── QueueTimeout
├── CallNotStarted          an invoker did not run the body, so it had no effect
│   └── TooManyAbandonedThreads
├── OutcomeUnknown          the body ended, and it is unknown whether it took effect
│   └── MayStillRun         the body was cancelled, and its work may continue elsewhere
└── IllegalTransition
"""

from asyncio import Future
from typing import Any


class GovernanceError(Exception):
    """The base class of governance's exceptions. Their text is safe to show."""


class UnknownTool(GovernanceError):
    """No tool with this name is registered."""

    def __init__(self, tool_name: str) -> None:
        super().__init__(f"There is no tool named {tool_name!r}.")
        self.tool_name = tool_name


class ToolDisabled(GovernanceError):
    """An administrator disabled the tool, or it is disabled for the given `reason` (one or more sentences)."""

    def __init__(self, tool_name: str, reason: str = "") -> None:
        super().__init__(reason or f"The tool {tool_name!r} is switched off by an administrator.")
        self.tool_name = tool_name


class ToolForbidden(GovernanceError):
    """The person for whom the call works lacks the permission that the tool requires."""

    def __init__(self, tool_name: str, permission: str) -> None:
        super().__init__(
            f"The tool {tool_name!r} needs the permission {permission!r}, which the agent's user does not have."
        )
        self.tool_name = tool_name
        self.permission = permission


class ApprovalUnavailable(GovernanceError):
    """A person must approve the call, and its host has no approver (D2)."""

    def __init__(self, tool_name: str) -> None:
        super().__init__(
            f"A person must allow each call of {tool_name!r}, and nobody can be asked here."
        )
        self.tool_name = tool_name


class ToolCallDenied(GovernanceError):
    """A person denied the call (D2)."""

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
    """The input does not match the tool's schema. The exception's text lists each invalid field."""

    def __init__(self, tool_name: str, problems: str) -> None:
        super().__init__(f"The input of {tool_name!r} is not valid: {problems}")
        self.tool_name = tool_name
        self.problems = problems


class TooManyCalls(GovernanceError):
    """A model's answer requested more calls than allowed (P4)."""

    def __init__(self, most: int) -> None:
        super().__init__(
            f"One answer may ask for {most} tool calls at most, and this call is beyond them."
        )


class ToolFailed(GovernanceError):
    """Raised by a tool to pass exactly this sentence to the model."""


class ToolTimeoutError(GovernanceError):
    """A tool did not end within its limit (T4)."""

    def __init__(self, tool_name: str, timeout: float) -> None:
        super().__init__(f"Tool {tool_name!r} did not respond within {timeout:g}s.")
        self.tool_name = tool_name
        self.timeout = timeout


class ToolExecutionError(GovernanceError):
    """A tool raised an exception. This exception, `original_error`, is only for the server's log (T4)."""

    def __init__(self, tool_name: str, original_error: BaseException) -> None:
        super().__init__(f"Tool {tool_name!r} raised {type(original_error).__name__}.")
        self.tool_name = tool_name
        self.original_error = self.__cause__ = original_error


class QueueFull(GovernanceError):
    """Too many calls are already running and waiting (P4)."""


class QueueTimeout(GovernanceError):
    """No slot became free within the queue timeout (P4)."""


class CallNotStarted(GovernanceError):
    """The invoker did not run the body, so the call had no effect (C13)."""


class OutcomeUnknown(GovernanceError):
    """The body ended, and it is unknown whether it took effect (C13)."""


class MayStillRun(OutcomeUnknown):
    """A cancelled body has stopped waiting for its work, which may continue elsewhere (C13).

    `answer` is resolved with the result of that work when it arrives, and cancelled once no result can arrive any more.
    """

    def __init__(self, message: str, *, answer: Future[Any] | None = None) -> None:
        super().__init__(message)
        self.answer = answer


class TooManyAbandonedThreads(CallNotStarted):
    """The maximum number of threads that outlived their calls is reached (T7)."""


class IllegalTransition(GovernanceError):
    """A change of status that is not an allowed transition."""
