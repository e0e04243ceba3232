"""The outcomes of calls. Each outcome has a status, a disposition, and text for the model.

The executor uses the functions that take a `LiveCall`. `unfinished_outcome` and `cancelled_outcome` need no live call,
because they are also used at the end of a turn and in the repair of a history, for calls without a result.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from governance.core.approvals import Decision, Verdict
from governance.core.calls import (
    RUNNING_STATUSES,
    CallStatus,
    Disposition,
    ErrorType,
    LateSettlement,
    ToolOutcome,
)
from governance.core.cancel_reasons import CancelReason
from governance.core.cancellation import Cancellation, Cancelled
from governance.core.containment import Contained
from governance.core.deadline import Expiry, Limit
from governance.core.exceptions import (
    ApprovalExpired,
    ApprovalUnavailable,
    CallNotStarted,
    GovernanceError,
    InvalidToolInput,
    OutcomeUnknown,
    QueueFull,
    QueueTimeout,
    ToolCallDenied,
    ToolDisabled,
    ToolExecutionError,
    ToolFailed,
    ToolForbidden,
    ToolTimeoutError,
    TooManyCalls,
    UnknownTool,
)
from governance.core.excerpts import as_displayed, excerpt, shortened
from governance.core.invokers.worker_errors import RemoteToolError
from governance.core.live_call import LiveCall
from governance.core.results import Unwritable, Writer, Written
from governance.core.tools import Isolation, Tool

logger = logging.getLogger(__name__)

_LONGEST_MESSAGE = 500

_REFUSALS: dict[type[GovernanceError], tuple[ErrorType, str]] = {
    UnknownTool: (ErrorType.UNKNOWN_TOOL, "Use one of the tools that you were given."),
    InvalidToolInput: (
        ErrorType.INVALID_INPUT,
        "Correct the input and call it again. It was not run.",
    ),
    ToolDisabled: (ErrorType.DISABLED, "Go on without it."),
    ToolForbidden: (
        ErrorType.FORBIDDEN,
        "It was not run. Do not call it again; say that an administrator can give this permission.",
    ),
    ApprovalUnavailable: (ErrorType.NO_APPROVER, "It was not run. Go on without it."),
    TooManyCalls: (
        ErrorType.TOO_MANY_CALLS,
        "It was not run. Ask for it in your next answer if it is still needed.",
    ),
    QueueFull: (
        ErrorType.QUEUE_FULL,
        "It was not started. Wait for running calls to end, then try again.",
    ),
    QueueTimeout: (
        ErrorType.QUEUE_TIMEOUT,
        "It was not started. Try again with fewer calls at a time.",
    ),
}


def refused(live: LiveCall, error: GovernanceError) -> ToolOutcome:
    """Return the outcome of a call that governance refused before it ran."""
    unnamed = isinstance(error, CallNotStarted)
    default_type = ErrorType.NOT_STARTED if unnamed else ErrorType.EXECUTION_ERROR
    error_type, advice = _REFUSALS.get(type(error), (default_type, "It was not run."))
    return _outcome(
        live,
        CallStatus.FAILED,
        refused_text(str(error), advice),
        error_type=error_type,
        disposition=Disposition.NOT_STARTED,
        error=error,
    )


def not_started(live: LiveCall) -> ToolOutcome:
    """Return the outcome of a call that was cancelled before its body ran."""
    outcome = unfinished_outcome(live.call.tool_name, CallStatus.PENDING, by=live.ended_by)
    return _with_facts(live, outcome)


def not_allowed(live: LiveCall, decision: Decision) -> ToolOutcome:
    """Return the outcome of a call that was denied, not approved in time, or cancelled before its approval (D3)."""
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
    """Return the outcome of a body that ended by itself, or returned a value within its grace period."""
    error = asyncio.CancelledError() if body.cancelled() else body.exception()
    if isinstance(error, CallNotStarted):
        return refused(live, error)
    if error is not None:
        return _failed(live, error, result_limit=result_limit, mask=mask)
    value = body.result()
    if not isinstance(value, Written):  # a project's own invoker returns only the value
        try:
            render = live.tool.render if live.tool else None
            value = Writer(limit=result_limit, render=render).write(value)
        except (ToolFailed, Unwritable) as failure:
            return _failed(live, failure, result_limit=result_limit, mask=mask)
    return _outcome(live, CallStatus.SUCCEEDED, _with_cap(live, value.text), value=value.value)


def _unserialisable(live: LiveCall, error: BaseException) -> ToolOutcome:
    logger.warning(
        "A tool's result cannot be written", extra=log_fields(live, error=error), exc_info=error
    )
    return _outcome(
        live,
        CallStatus.FAILED,
        unserialisable_text(live.call.tool_name),
        error_type=ErrorType.EXECUTION_ERROR,
        error=ToolExecutionError(live.call.tool_name, error),
    )


def ended(
    live: LiveCall, ending: Cancellation | Expiry, *, disposition: Disposition
) -> ToolOutcome:
    """Return the outcome of a call that a limit or a cancel ended. `disposition` is the known state of its body."""
    assert live.tool is not None  # noqa: S101 - a call without a tool never runs
    if isinstance(ending, Expiry):
        return _timed_out(live, live.tool, ending, disposition=disposition)
    outcome = cancelled_outcome(
        live.call.tool_name,
        ending,
        disposition=disposition,
        side_effects=live.tool.side_effects,
        partial=live.partial_output,
        is_watched=live.tool.isolation is not Isolation.ASYNC,
    )
    return _with_facts(live, outcome)


def _timed_out(
    live: LiveCall, tool: Tool, expiry: Expiry, *, disposition: Disposition
) -> ToolOutcome:
    name = live.call.tool_name
    is_settled = disposition is not Disposition.INDETERMINATE
    text = timeout_text(
        name,
        seconds=expiry.seconds,
        limit=expiry.limit,
        is_settled=is_settled,
        side_effects=tool.side_effects,
        partial=live.partial_output,
        is_started=disposition is not Disposition.NOT_STARTED,
        is_watched=tool.isolation is not Isolation.ASYNC,
        capped_from=live.limits.policy.capped_from if live.limits.policy else None,
        hint="_meta.timeout_ms" if tool.takes_meta else tool.timeout_argument or "",
    )
    logger.warning("A tool call timed out", extra={**log_fields(live), **expiry._asdict()})
    return _outcome(
        live,
        CallStatus.TIMED_OUT if is_settled else CallStatus.ABANDONED,
        text,
        error_type=ErrorType.TIMEOUT,
        disposition=disposition,
        ended_by=live.ended_by,
        limit=expiry.limit,
        error=ToolTimeoutError(name, expiry.seconds),
    )


def late(body: "asyncio.Future[Any]", *, after: float, result_limit: int) -> LateSettlement:
    """Return how an abandoned body ended, `after` seconds after its call (T11)."""
    if body.cancelled():
        return LateSettlement(kind="cancelled", text="", after=after)
    error = body.exception()
    if isinstance(error, Unwritable):
        return LateSettlement(kind="returned", text="", after=after)
    if error is not None:
        return LateSettlement(kind="raised", text=type(error).__name__, after=after)
    value = body.result()
    if not isinstance(value, Written):  # the late result of remote work
        try:
            value = Writer(limit=result_limit).write(value)
        except (ToolFailed, Unwritable):
            return LateSettlement(kind="returned", text="", after=after)
    text = value.text
    return LateSettlement(kind="returned", text=text, after=after)


def log_fields(live: LiveCall, *, error: BaseException | None = None) -> dict[str, Any]:
    """Return the fields that every log line about a call contains."""
    return {
        "tool_name": live.call.tool_name,
        "call_id": live.call.id,
        "scope": live.call.scope,
        "error_type": type(error).__name__ if error else None,
    }


def _with_cap(live: LiveCall, text: str) -> str:
    """Append a note if the call had requested more time than allowed (A3)."""
    policy = live.limits.policy
    if policy is None or policy.capped_from is None:
        return text
    return f"{text}\n{cap_note(policy.capped_from, allowed=policy.ceiling)}"


def _failed(
    live: LiveCall, error: BaseException, *, result_limit: int, mask: Callable[[str], str]
) -> ToolOutcome:
    if isinstance(error, Unwritable):
        return _unserialisable(live, error.__cause__ or error)
    is_unknown = isinstance(error, OutcomeUnknown)
    raised: Exception
    if isinstance(error, ToolFailed):
        text, detail, raised = excerpt(as_displayed(str(error)), limit=result_limit), "", error
    elif isinstance(error, GovernanceError) and not isinstance(error, RemoteToolError):
        text = lost_text(str(error), is_known=not is_unknown, partial=live.partial_output)
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
    """Return the text for the model and the error of a tool that raised an exception, in this process or a worker."""
    name = live.call.tool_name
    if isinstance(error, RemoteToolError):
        logger.warning(
            "A tool raised in its process: %s", error.traceback, extra=log_fields(live, error=error)
        )
        kind = error.type_name
    else:
        logger.warning("A tool raised", extra=log_fields(live, error=error), exc_info=error)
        kind = error.kind if isinstance(error, Contained) else type(error).__name__
    message = ""
    if live.limits.policy is not None and live.limits.policy.error_text:
        text = " ".join(mask(_message_of(error)).split())
        message = shortened(text, limit=_LONGEST_MESSAGE)
    text = failed_text(
        name, kind, code=ErrorType.EXECUTION_ERROR, error_text=message, partial=live.partial_output
    )
    return text, ToolExecutionError(name, error)


def _message_of(error: BaseException) -> str:
    if isinstance(error, RemoteToolError):
        return error.message
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - the text of a tool's exception may raise an error too
        return ""


def _outcome(live: LiveCall, status: CallStatus, result: str, **fields: Any) -> ToolOutcome:
    is_error = status is not CallStatus.SUCCEEDED
    return ToolOutcome(status=status, result=result, is_error=is_error, **fields, **_facts_of(live))


def _with_facts(live: LiveCall, outcome: ToolOutcome) -> ToolOutcome:
    return replace(outcome, **_facts_of(live))


def _facts_of(live: LiveCall) -> dict[str, Any]:
    """Return the facts of the call itself: its limit, how long it ran and waited, and the images that it has shown."""
    source = live.timeout_source
    return {
        "timeout": live.timeout,
        "timeout_source": source.value if source else "",
        "duration": live.elapsed,
        "queued": live.queued,
        "images": live.images.shown,
    }


def unfinished_outcome(
    tool_name: str,
    status: CallStatus,
    *,
    by: Cancellation | None = None,
    decision: Decision | None = None,
    waited: float = 0.0,
    lost: str = "",
) -> ToolOutcome:
    """Return the outcome of a call that was left in an open status, for example by a crash.

    `by` is the request that ended it. Without such a request, `lost` is a clause that says how its process was lost; it
    is empty if the process was not lost. `decision` is the decision on its question, which was open for `waited`
    seconds.
    """
    if status in RUNNING_STATUSES:
        if by:
            return cancelled_outcome(tool_name, by)
        return ToolOutcome(
            status=CallStatus.REPAIRED if lost else CallStatus.ABANDONED,
            result=interrupted_text(tool_name, lost),
            is_error=True,
            error_type=ErrorType.INTERRUPTED,
            disposition=Disposition.INDETERMINATE,
        )
    if decision and decision.verdict is Verdict.DENIED:
        return _never_ran(
            CallStatus.DENIED,
            ErrorType.DENIED,
            denied_text(tool_name, reason=decision.reason),
            error=ToolCallDenied(tool_name, decision.reason),
        )
    if decision and decision.verdict is Verdict.EXPIRED:
        return _never_ran(
            CallStatus.EXPIRED,
            ErrorType.EXPIRED,
            expired_text(tool_name, seconds=waited),
            error=ApprovalExpired(tool_name, waited),
        )
    # A start is recorded before it happens, so a call without a recorded start never ran.
    was_asked = status is CallStatus.AWAITING_APPROVAL and by is not None
    return _never_ran(
        CallStatus.CANCELLED if was_asked else CallStatus.NOT_STARTED,
        ErrorType.CANCELLED if was_asked else ErrorType.NOT_STARTED,
        not_started_text(tool_name, by),
        by=by,
        error=Cancelled(by) if by else None,
    )


def cancelled_outcome(
    tool_name: str,
    by: Cancellation,
    *,
    disposition: Disposition = Disposition.INDETERMINATE,
    side_effects: bool = True,
    partial: str = "",
    is_watched: bool = True,
) -> ToolOutcome:
    """Return the outcome of a call that was cancelled after its start was recorded.

    `disposition` is the known state of its body.
    """
    is_settled = disposition is not Disposition.INDETERMINATE
    text = cancelled_text(
        tool_name,
        by,
        is_settled=is_settled,
        side_effects=side_effects,
        partial=partial,
        is_started=disposition is not Disposition.NOT_STARTED,
        is_watched=is_watched,
    )
    return ToolOutcome(
        status=CallStatus.CANCELLED if is_settled else CallStatus.ABANDONED,
        result=text,
        is_error=True,
        error_type=ErrorType.CANCELLED,
        disposition=disposition,
        ended_by=by,
        error=Cancelled(by),
    )


def _never_ran(
    status: CallStatus,
    error_type: ErrorType,
    text: str,
    *,
    by: Cancellation | None = None,
    error: Exception | None,
) -> ToolOutcome:
    return ToolOutcome(
        status=status,
        result=text,
        is_error=True,
        error_type=error_type,
        disposition=Disposition.NOT_STARTED,
        ended_by=by,
        error=error,
    )


def timeout_text(
    tool_name: str,
    *,
    seconds: float,
    limit: Limit,
    is_settled: bool,
    side_effects: bool,
    partial: str,
    is_started: bool = True,
    is_watched: bool = True,
    capped_from: float | None = None,
    hint: str = "_meta.timeout_ms",
) -> str:
    """Return the result of a call that ran out of time (T4).

    `capped_from` is the limit that the call had requested, if it was too high (A3). `hint` names the argument that
    requests more time, and is empty if the tool has none. `is_watched` is False for a coroutine, because threads that
    it starts cannot be observed.
    """
    first = f'[TIMEOUT] Tool "{tool_name}" did not respond within {seconds:g}s.'
    why = " It made no progress for that long." if limit is Limit.IDLE else ""
    if capped_from is not None:
        advice = f"It requested {_asked(capped_from)}, which is more than is allowed. Try a smaller request or another tool; "
    elif limit is Limit.IDLE:  # the model cannot extend this limit
        advice = "Make it report its progress, or try a smaller request or another tool; "
    elif hint:
        advice = (
            f"Try a smaller or simpler request, another tool, or ask for more time with {hint}; "
        )
    else:
        advice = "Try a smaller or simpler request or another tool; "
    advice += "do not simply repeat the same call."
    fate = _fate(
        is_settled=is_settled,
        side_effects=side_effects,
        is_started=is_started,
        is_watched=is_watched,
    )
    return _join(first + why, fate, advice, partial)


def cap_note(capped_from: float, *, allowed: float) -> str:
    """Return the last line of the result of a call that had requested more time than allowed (A3)."""
    return f"[NOTE] It requested {_asked(capped_from)}; the maximum is {allowed:g}s."


def cancelled_text(
    tool_name: str,
    cancellation: Cancellation,
    *,
    is_settled: bool,
    side_effects: bool,
    partial: str,
    is_started: bool = True,
    is_watched: bool = True,
) -> str:
    """Return the result of a call that was cancelled while it ran. `timeout_text` explains `is_watched`."""
    first = f'[CANCELLED] Tool "{tool_name}" was cancelled by {cancellation.reason.row.who}.'
    advice = "Do not call it again unless you are asked to; go on with the results that you have."
    fate = _fate(
        is_settled=is_settled,
        side_effects=side_effects,
        is_started=is_started,
        is_watched=is_watched,
    )
    return _join(first, fate, advice, partial)


def abandoned_text(tool_name: str, cancellation: Cancellation) -> str:
    """Return the result of a running call that was abandoned when its turn or process ended."""
    return cancelled_text(tool_name, cancellation, is_settled=False, side_effects=True, partial="")


def not_started_text(tool_name: str, cancellation: Cancellation | None) -> str:
    """Return the result of a call that was cancelled before its body ran."""
    by = f" It was cancelled by {cancellation.reason.row.who}." if cancellation else ""
    return f'[CANCELLED] Tool "{tool_name}" was not started.{by} It had no effect.'


def denied_text(tool_name: str, *, reason: str) -> str:
    """Return the result of a call that a person denied (D2)."""
    first = f'[DENIED] Tool "{tool_name}" was not run: a person denied this call.'
    why = f"The reason given: {reason}" if reason else "No reason was given."
    advice = (
        "It had no effect. Do not ask for the same again; find another way, or ask what is wanted."
    )
    return f"{first} {why}\n{advice}"


def expired_text(tool_name: str, *, seconds: float) -> str:
    """Return the result of a call whose approval limit ran out (D3)."""
    return (
        f'[EXPIRED] Tool "{tool_name}" was not run: it needs the approval of a person, and no one answered within '
        f"{seconds:g}s. It was not denied and had no effect. Go on without it, or say what you are waiting for."
    )


def refused_text(reason: str, advice: str) -> str:
    """Return the result of a call that governance refused to run."""
    stop = "" if reason.endswith((".", "!", "?")) else "."
    return f"[ERROR] {reason}{stop} {advice}".rstrip()


def lost_text(reason: str, *, is_known: bool, partial: str) -> str:
    """Return the result of a call whose worker or server was lost."""
    fate = "" if is_known else "It may have been applied, so check before you repeat it."
    return _join(f"[ERROR] {reason}", fate, "", partial)


def failed_text(
    tool_name: str, error_name: str, *, code: str, partial: str, error_text: str = ""
) -> str:
    """Return the result of a call that raised an exception. It contains the exception's class and the error code.

    `error_text` is the exception's text, masked and shortened, if the policy allows the model to read it (invariant
    12).
    """
    first = f'[ERROR] Tool "{tool_name}" failed with {error_name} (code {code}).'
    details = "The details are in the server's log. Check the input or try another way."
    return _join(first, f"{details}\nIt said: {error_text}" if error_text else details, "", partial)


def unserialisable_text(tool_name: str) -> str:
    """Return the result of a call that ran, but whose return value cannot be converted to text."""
    return (
        f'[ERROR] Tool "{tool_name}" has run, but its result cannot be written as text. '
        "Do not repeat it for the result alone; try another way."
    )


def interrupted_text(tool_name: str, lost: str = "") -> str:
    """Return the result of a call whose process died. `lost` is a clause that says how the process died."""
    return (
        f'[INTERRUPTED] Tool "{tool_name}": {f"{lost}; " if lost else ""}no result was recorded; it may or may not have '
        "run. Check its effects before you repeat it."
    )


def _asked(seconds: float) -> str:
    return f"{seconds:g}s" if seconds > 0 else "no limit"


def _fate(*, is_settled: bool, side_effects: bool, is_started: bool, is_watched: bool) -> str:
    if not is_started:
        return "It was not started and had no effect."
    if not is_settled:
        return (
            "It could not be shown to have ended: it may still be running and may have been applied, so check before "
            "you repeat it."
        )
    end = "It has ended" if is_watched else "It was stopped"
    if side_effects:
        return (
            f"{end}; what it did until then may have had an effect, so check before you repeat it."
        )
    return f"{end}."


def _join(first: str, fate: str, advice: str, partial: str) -> str:
    lines = [" ".join(part for part in (first, fate, advice) if part)]
    if partial:
        lines.append(f"Partial output before it was ended:\n{partial}")
    return "\n".join(lines)
