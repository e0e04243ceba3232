"""Turns what happened to a call into its outcome: status, disposition, and the text for the model."""

import asyncio
import json
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pydantic_core

from governance.core import model_messages
from governance.core.approvals import Decision
from governance.core.calls import CallStatus, Disposition, ErrorType, LateSettlement, ToolOutcome
from governance.core.cancel_reasons import CancelReason
from governance.core.cancellation import Cancellation
from governance.core.containment import EXITS, contained_failure
from governance.core.endings import Ending, EndingKind
from governance.core.exceptions import (
    ApprovalUnavailable,
    CallNotStarted,
    GovernanceError,
    InvalidToolInput,
    OutcomeUnknown,
    QueueFull,
    QueueTimeout,
    ToolDisabled,
    ToolExecutionError,
    ToolFailed,
    ToolTimeoutError,
    UnknownTool,
)
from governance.core.excerpts import excerpt, shortened
from governance.core.invokers.worker_errors import RemoteToolError
from governance.core.live_call import LiveCall
from governance.core.tools import Tool
from governance.core.unfinished import cancelled_outcome, unfinished_outcome

logger = logging.getLogger(__name__)

_LONGEST_MESSAGE = 500
_FACTS = ("timeout", "timeout_source", "duration", "queued", "images")  # of the call itself

_REFUSALS: dict[type[GovernanceError], tuple[ErrorType, str]] = {
    UnknownTool: (ErrorType.UNKNOWN_TOOL, "Use one of the tools that you were given."),
    InvalidToolInput: (
        ErrorType.INVALID_INPUT,
        "Correct the input and call it again. It was not run.",
    ),
    ToolDisabled: (ErrorType.DISABLED, "Go on without it."),
    ApprovalUnavailable: (ErrorType.NO_APPROVER, "It was not run. Go on without it."),
    QueueFull: (
        ErrorType.QUEUE_FULL,
        "It was not started. Wait for running calls to end, then try again.",
    ),
    QueueTimeout: (
        ErrorType.QUEUE_TIMEOUT,
        "It was not started. Try again with fewer calls at once.",
    ),
}


def refused(live: LiveCall, error: GovernanceError) -> ToolOutcome:
    """The call never ran: governance said no."""
    error_type, advice = _REFUSALS.get(type(error), (ErrorType.EXECUTION_ERROR, "It was not run."))
    return _outcome(
        live,
        CallStatus.FAILED,
        model_messages.refused_text(str(error), advice),
        error_type=error_type,
        disposition=Disposition.NOT_STARTED,
        error=error,
    )


def not_started(live: LiveCall) -> ToolOutcome:
    """The call was cancelled before its body ran."""
    outcome = unfinished_outcome(live.call.tool_name, CallStatus.PENDING, by=live.ended_by)
    return _with_facts(live, outcome)


def not_allowed(live: LiveCall, decision: Decision) -> ToolOutcome:
    """The call never ran: a person denied it, the question expired, or it was cancelled meanwhile (D3)."""
    outcome = unfinished_outcome(
        live.call.tool_name,
        CallStatus.AWAITING_APPROVAL,
        by=live.ended_by or Cancellation(reason=CancelReason.ERROR),
        decision=decision,
        waited=(live.question.timeout if live.question else None) or 0.0,
    )
    return _with_facts(live, outcome)


def settled(
    live: LiveCall, body: "asyncio.Future[Any]", *, result_limit: int, mask: Callable[[str], str]
) -> ToolOutcome:
    """The body has ended by itself, or in its grace with a value of its own: that is the result."""
    error = asyncio.CancelledError() if body.cancelled() else body.exception()
    if isinstance(error, CallNotStarted):
        return refused(live, error)
    if error is not None:
        return _failed(live, error, result_limit=result_limit, mask=mask)
    value = body.result()
    render = live.tool.render if live.tool else None
    try:
        text = as_text(value, limit=result_limit, render=render)
        return _outcome(live, CallStatus.SUCCEEDED, _with_cap(live, text), value=value)
    except Exception as unserialisable:  # rendering is the tool's code, too
        logger.warning(
            "A tool's result cannot be written",
            extra=log_fields(live, error=unserialisable),
            exc_info=True,
        )
        return _unserialisable(live, unserialisable)


def _unserialisable(live: LiveCall, error: Exception) -> ToolOutcome:
    return _outcome(
        live,
        CallStatus.FAILED,
        model_messages.unserialisable_text(live.call.tool_name),
        error_type=ErrorType.EXECUTION_ERROR,
        error=ToolExecutionError(live.call.tool_name, error),
    )


def ended(live: LiveCall, ending: Ending, *, disposition: Disposition) -> ToolOutcome:
    """A limit or a request ended the wait; `disposition` = what is known of the body."""
    assert live.tool is not None  # noqa: S101 - a call without a tool never runs
    if ending.kind is EndingKind.TIMEOUT:
        return _timed_out(live, live.tool, ending, disposition=disposition)
    assert ending.cancellation is not None  # noqa: S101 - a cancel carries its request
    outcome = cancelled_outcome(
        live.call.tool_name,
        ending.cancellation,
        disposition=disposition,
        side_effects=live.tool.side_effects,
        partial=live.partial_output,
    )
    return _with_facts(live, outcome)


def _timed_out(
    live: LiveCall, tool: Tool, ending: Ending, *, disposition: Disposition
) -> ToolOutcome:
    name = live.call.tool_name
    is_settled = disposition is not Disposition.INDETERMINATE
    text = model_messages.timeout_text(
        name,
        seconds=ending.seconds,
        limit=ending.limit,
        is_settled=is_settled,
        side_effects=tool.side_effects,
        partial=live.partial_output,
        is_started=disposition is not Disposition.NOT_STARTED,
        capped_from=live.limits.policy.capped_from if live.limits.policy else None,
    )
    ran_out = {"limit": ending.limit.value, "seconds": ending.seconds}
    logger.warning("A tool call timed out", extra={**log_fields(live), **ran_out})
    return _outcome(
        live,
        CallStatus.TIMED_OUT if is_settled else CallStatus.ABANDONED,
        text,
        error_type=ErrorType.TIMEOUT,
        disposition=disposition,
        ended_by=live.ended_by,
        limit=ending.limit,
        error=ToolTimeoutError(name, ending.seconds),
    )


def late(body: "asyncio.Future[Any]", *, after: float, result_limit: int) -> LateSettlement:
    """How an abandoned body ended (T11)."""
    if body.cancelled():
        return LateSettlement(kind="cancelled", text="", after=after)
    if (error := body.exception()) is not None:
        return LateSettlement(kind="raised", text=type(error).__name__, after=after)
    try:
        text = as_text(body.result(), limit=result_limit)
    except Exception:  # noqa: BLE001 - whatever a value does when it is written
        text = ""
    return LateSettlement(kind="returned", text=text, after=after)


def as_text(value: Any, *, limit: int, render: Callable[[Any], Any] | None = None) -> str:
    """Return a tool's value as text for the model: text unchanged, else JSON; a long text loses its middle.

    Raises:
        ValueError: JSON cannot say it: a circle, NaN, an infinite number.
        Exception: whatever `render` or the value itself raised; a request to exit as a `RuntimeError`.
    """
    try:
        said = render(value) if render else value
        if said is None:
            text = "Done."
        elif isinstance(said, str):
            text = said
        else:
            text = _as_json(said)
    except EXITS as error:
        raise contained_failure(error) from error
    return excerpt(text, limit=limit)


def _as_json(value: Any) -> str:
    text = pydantic_core.to_json(value, fallback=str).decode()
    if "NaN" in text or "Infinity" in text:  # perhaps in a text only: reading it tells
        json.loads(text, parse_constant=_refuse, parse_int=str, parse_float=str)
    return text


def _refuse(constant: str) -> None:
    raise ValueError(f"JSON has no {constant}")


def log_fields(live: LiveCall, *, error: BaseException | None = None) -> dict[str, Any]:
    """Return the ids that belong in every log line about a call."""
    return {
        "tool_name": live.call.tool_name,
        "call_id": live.call.id,
        "scope": live.call.scope,
        "error_type": type(error).__name__ if error else None,
    }


def _with_cap(live: LiveCall, text: str) -> str:
    """Add that the call had asked for more time than it may have, where it had (A3)."""
    policy = live.limits.policy
    if policy is None or policy.capped_from is None:
        return text
    return f"{text}\n{model_messages.cap_note(policy.capped_from, allowed=policy.ceiling)}"


def _failed(
    live: LiveCall, error: BaseException, *, result_limit: int, mask: Callable[[str], str]
) -> ToolOutcome:
    is_unknown = isinstance(error, OutcomeUnknown)
    raised: Exception
    if isinstance(error, ToolFailed):
        text, detail, raised = excerpt(str(error), limit=result_limit), "", error
    elif isinstance(error, GovernanceError) and not isinstance(error, RemoteToolError):
        text = model_messages.lost_text(
            str(error), is_known=not is_unknown, partial=live.partial_output
        )
        detail, raised = repr(error), error
    else:
        text, raised = _raised(live, error, mask=mask)
        detail = str(raised)
    return _outcome(
        live,
        CallStatus.FAILED,
        _with_cap(live, text),
        error_type=ErrorType.EXECUTION_ERROR,
        disposition=Disposition.INDETERMINATE if is_unknown else Disposition.SETTLED,
        detail=detail,
        error=raised,
    )


def _raised(
    live: LiveCall, error: BaseException, *, mask: Callable[[str], str]
) -> tuple[str, ToolExecutionError]:
    """What the model reads and what the log keeps of a tool that raised, here or in a worker process."""
    name = live.call.tool_name
    if isinstance(error, RemoteToolError):
        logger.warning(
            "A tool raised in its process: %s", error.traceback, extra=log_fields(live, error=error)
        )
        kind = error.type_name
    else:
        logger.warning("A tool raised", extra=log_fields(live, error=error), exc_info=error)
        kind = type(error).__name__
    said = ""
    if live.limits.policy is not None and live.limits.policy.error_text:
        text = " ".join(mask(_message_of(error)).split())
        said = shortened(text, limit=_LONGEST_MESSAGE)
    text = model_messages.failed_text(
        name, kind, code=ErrorType.EXECUTION_ERROR, said=said, partial=live.partial_output
    )
    return text, ToolExecutionError(name, error)


def _message_of(error: BaseException) -> str:
    if isinstance(error, RemoteToolError):
        return error.message
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - a tool's exception may fail at this too
        return ""


def _outcome(live: LiveCall, status: CallStatus, result: str, **fields: Any) -> ToolOutcome:
    """Return an outcome with what is known of the call itself: its limit, how long it ran and waited, what it has shown."""
    limits = live.limits
    source = limits.timeout_source
    return ToolOutcome(
        status=status,
        result=result,
        is_error=status is not CallStatus.SUCCEEDED,
        timeout=limits.timeout,
        timeout_source=source.value if source else "",
        duration=limits.elapsed,
        queued=live.queued,
        images=live.images.shown,
        **fields,
    )


def _with_facts(live: LiveCall, outcome: ToolOutcome) -> ToolOutcome:
    known = _outcome(live, outcome.status, outcome.result)
    return replace(outcome, **{name: getattr(known, name) for name in _FACTS})
