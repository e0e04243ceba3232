"""How a call in a worker process can fail, and what an answer of a worker means.

GovernanceError
├── RemoteToolError
├── CallRefused
│   └── ResultRefused       the tool has run, its result cannot cross
├── CallNotStarted
│   ├── InputRefused        is a CallRefused too
│   ├── WorkerPoolBroken
│   └── WorkerPoolClosed
└── OutcomeUnknown
    └── WorkerDied
"""

from collections.abc import Mapping
from typing import Any

from governance.core.exceptions import CallNotStarted, GovernanceError, OutcomeUnknown, ToolFailed


class RemoteToolError(GovernanceError):
    """The tool raised in its worker. `message` and `traceback` are for the log, as any exception's text (T4)."""

    def __init__(self, type_name: str, message: str, *, traceback: str = "") -> None:
        super().__init__(f"The tool raised {type_name}.")
        self.type_name = type_name
        self.message = message
        self.traceback = traceback


class CallRefused(GovernanceError):
    """The call could not be made, or its result not be sent; `code` says why, `detail` is for the log."""

    SENTENCES: Mapping[str, str] = {}

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(self.SENTENCES[code])
        self.code = code
        self.detail = detail


class InputRefused(CallRefused, CallNotStarted):
    """The input cannot cross to a worker, so nothing was started."""

    SENTENCES = {
        "not_importable": "The tool's function cannot be found by a worker process.",
        "not_json": "The tool's input is not plain JSON data (text, numbers, lists, objects).",
        "too_large": "The tool's input is too large; give it less at once.",
    }


class ResultRefused(CallRefused):
    """The tool has run, but its result cannot cross back."""

    SENTENCES = {
        code: f"The tool has run, but its result {problem}. Do not repeat it for the result alone; {advice}."
        for code, problem, advice in (
            (
                "not_json",
                "is not plain JSON data (text, numbers, lists, objects)",
                "try another way",
            ),
            ("too_large", "is too large", "ask for less of it, or try another way"),
            ("unreadable", "cannot be read", "try another way"),
        )
    }


class WorkerDied(OutcomeUnknown):
    """The worker ended, or broke the protocol, before a result. What the tool did is not known (C13).

    `description` says how it ended; `detail` is for the log.
    """

    def __init__(self, call_id: str, description: str, *, detail: str = "") -> None:
        super().__init__(f"The tool's process gave no result: it {description}.")
        self.call_id = call_id
        self.description = description
        self.detail = detail


class WorkerPoolBroken(CallNotStarted):
    """Too many workers died within a minute; calls are refused for `retry_after` seconds."""

    def __init__(self, retry_after: float) -> None:
        super().__init__(
            "The processes that run this tool died too often; it takes no calls "
            f"for {max(retry_after, 1.0):.0f} s. Use another tool meanwhile."
        )
        self.retry_after = retry_after


class WorkerPoolClosed(CallNotStarted):
    """The server is going down: no call is taken any more."""

    def __init__(self) -> None:
        super().__init__("The server is shutting down; the tool was not started.")


def value_of(answer: Mapping[str, Any]) -> Any:
    """Return the result, or raise what the answer says. An answer is as trustworthy as the tool.

    Raises:
        ToolFailed: the tool raised it, with a sentence for the model.
        RemoteToolError: the tool raised something else.
        InputRefused: the worker could not make the call.
        ResultRefused: it could not send the result.
    """
    match answer:
        case {"kind": "result", "value": value}:
            return value
        case {"kind": "failed", "message": str(message)}:
            raise ToolFailed(message)
        case {
            "kind": "raised",
            "type_name": str(name),
            "message": str(message),
            "traceback": str(trace),
        }:
            raise RemoteToolError(
                name if name.isidentifier() else "an error", message, traceback=trace
            )
        case {"kind": "refused", "code": str(code), "detail": str(detail)}:
            if code in ResultRefused.SENTENCES:
                raise ResultRefused(code, detail)
            if code in InputRefused.SENTENCES:
                raise InputRefused(code, detail)
    raise ResultRefused("unreadable", "an answer of no known kind")
