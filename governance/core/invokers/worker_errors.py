"""The errors of calls in worker processes, and the function that reads a worker's answer.

GovernanceError
├── RemoteToolError
├── CallRefused
│   └── ResultRefused       the tool has run, but its result cannot be transferred
├── CallNotStarted
│   ├── InputRefused        also a CallRefused
│   └── WorkerNotStarted
└── OutcomeUnknown
    └── WorkerDied
"""

from collections.abc import Mapping
from typing import Any

from governance.core.exceptions import CallNotStarted, GovernanceError, OutcomeUnknown, ToolFailed


class RemoteToolError(GovernanceError):
    """The tool raised in its worker. `message` and `traceback` are for the log, like any exception's text (T4)."""

    def __init__(self, type_name: str, message: str, *, traceback: str = "") -> None:
        super().__init__(f"The tool raised {type_name}.")
        self.type_name = type_name
        self.message = message
        self.traceback = traceback


class CallRefused(GovernanceError):
    """The call could not be made, or its result could not be sent. `code` is the reason; `detail` is for the log."""

    SENTENCES: Mapping[str, str] = {}

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(self.SENTENCES[code])
        self.code = code
        self.detail = detail


class InputRefused(CallRefused, CallNotStarted):
    """The input cannot be sent to a worker, so nothing was started."""

    SENTENCES = {
        "not_importable": "The tool's function cannot be found by a worker process.",
        "not_json": "The tool's input is not plain JSON data (text, numbers, lists, objects).",
        "too_large": "The tool's input is too large. Pass less data in one call.",
    }


class ResultRefused(CallRefused):
    """The tool has run, but its result cannot be sent back."""

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
    """The worker ended or broke the protocol before it sent a result. The effect of the tool is unknown (C13).

    `description` explains how it ended.
    """

    def __init__(self, description: str) -> None:
        super().__init__(f"The tool's process gave no result: it {description}.")
        self.description = description


class WorkerNotStarted(CallNotStarted):
    """No worker could be started, or the server is shutting down. `detail` is for the log."""

    def __init__(self, message: str, *, detail: str = "") -> None:
        super().__init__(message)
        self.detail = detail


def value_of(answer: Mapping[str, Any]) -> Any:
    """Return the answer's result, or raise its error. An answer is only as trustworthy as the tool.

    Raises:
        ToolFailed: the tool raised `ToolFailed`, with a sentence for the model.
        RemoteToolError: the tool raised another exception.
        InputRefused: the worker could not run the call.
        ResultRefused: the worker could not send the result.
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
