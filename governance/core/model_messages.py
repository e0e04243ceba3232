"""What the model reads where a call has no ordinary result: what happened, by whom, what to do next (A1)."""

from governance.core.cancellation import Cancellation
from governance.core.deadline import Limit


def timeout_text(
    tool_name: str,
    *,
    seconds: float,
    limit: Limit,
    is_settled: bool,
    side_effects: bool,
    partial: str,
    is_started: bool = True,
    capped_from: float | None = None,
) -> str:
    """Return the result of a call that ran out of time (T4); `capped_from` = the limit it had asked for (A3)."""
    first = f'[TIMEOUT] Tool "{tool_name}" did not respond within {seconds:g}s.'
    why = " It made no progress for that long." if limit is Limit.IDLE else ""
    if capped_from is not None:
        advice = f"It had asked for {_asked(capped_from)}, which is more than is allowed. Try a smaller request or another tool; "
    elif limit is Limit.IDLE:  # which no request for more time moves
        advice = "Let it say what it does meanwhile, or try a smaller request or another tool; "
    else:
        advice = "Try a smaller or simpler request, another tool, or ask for more time with _meta.timeout_ms; "
    advice += "do not simply repeat the same call."
    fate = _fate(is_settled=is_settled, side_effects=side_effects, is_started=is_started)
    return _join(first + why, fate, advice, partial)


def cap_note(capped_from: float, *, allowed: float) -> str:
    """Return the last line of a result whose call had asked for more time than is allowed (A3)."""
    return (
        f"[NOTE] It had asked for {_asked(capped_from)}; the most that is allowed is {allowed:g}s."
    )


def cancelled_text(
    tool_name: str,
    cancellation: Cancellation,
    *,
    is_settled: bool,
    side_effects: bool,
    partial: str,
    is_started: bool = True,
) -> str:
    """Return the result of a call that was cancelled while it ran."""
    first = f'[CANCELLED] Tool "{tool_name}" was cancelled by {cancellation.reason.row.who}.'
    advice = "Do not call it again unless you are asked to; go on with the results that you have."
    fate = _fate(is_settled=is_settled, side_effects=side_effects, is_started=is_started)
    return _join(first, fate, advice, partial)


def abandoned_text(tool_name: str, cancellation: Cancellation) -> str:
    """Return the result of a running call that was given up when all it belongs to was ended."""
    return cancelled_text(tool_name, cancellation, is_settled=False, side_effects=True, partial="")


def not_started_text(tool_name: str, cancellation: Cancellation | None) -> str:
    """Return the result of a call that was cancelled before its body ran."""
    by = f" It was cancelled by {cancellation.reason.row.who}." if cancellation else ""
    return f'[CANCELLED] Tool "{tool_name}" was not started.{by} It had no effect.'


def denied_text(tool_name: str, *, reason: str) -> str:
    """Return the result of a call that a person has said no to (D2)."""
    first = f'[DENIED] Tool "{tool_name}" was not run: a person denied this call.'
    why = f"The reason given: {reason}" if reason else "No reason was given."
    advice = (
        "It had no effect. Do not ask for the same again; find another way, or ask what is wanted."
    )
    return f"{first} {why}\n{advice}"


def expired_text(tool_name: str, *, seconds: float) -> str:
    """Return the result of a call whose approval limit ran out (D3)."""
    return (
        f'[EXPIRED] Tool "{tool_name}" was not run: it needs a person to allow it, and nobody answered within '
        f"{seconds:g}s. It was not denied and had no effect. Go on without it, or say what you are waiting for."
    )


def refused_text(reason: str, advice: str) -> str:
    """Return the result of a call that governance refused to run."""
    stop = "" if reason.endswith((".", "!", "?")) else "."
    return f"[ERROR] {reason}{stop} {advice}".rstrip()


def lost_text(reason: str, *, is_known: bool, partial: str) -> str:
    """Return the result of a call that the place where it ran could not bring to a result."""
    fate = "" if is_known else "It may have been applied, so check before you repeat it."
    return _join(f"[ERROR] {reason}", fate, "", partial)


def failed_text(tool_name: str, error_name: str, *, code: str, partial: str, said: str = "") -> str:
    """Return the result of a call that raised: the kind of error and its code.

    `said` is the exception's text, masked and capped, if the policy lets it be read (invariant 12).
    """
    first = f'[ERROR] Tool "{tool_name}" failed with {error_name} (code {code}).'
    details = "The details are in the server's log. Check the input or try another way."
    return _join(first, f"{details}\nIt said: {said}" if said else details, "", partial)


def unserialisable_text(tool_name: str) -> str:
    """Return the result of a call that ran, but returned what cannot be written as text."""
    return (
        f'[ERROR] Tool "{tool_name}" has run, but its result cannot be written as text. '
        "Do not repeat it for the result alone; try another way."
    )


def interrupted_text(tool_name: str, lost: str = "") -> str:
    """Return the result written for a call whose process died under it; `lost` says in a clause how."""
    return (
        f'[INTERRUPTED] Tool "{tool_name}": {f"{lost}; " if lost else ""}no result was recorded; it may or may not have '
        "run. Check its effects before you repeat it."
    )


def _asked(seconds: float) -> str:
    return f"{seconds:g}s" if seconds > 0 else "no limit"


def _fate(*, is_settled: bool, side_effects: bool, is_started: bool) -> str:
    if not is_started:
        return "It was not started and had no effect."
    if not is_settled:
        return (
            "It could not be shown to have ended: it may still be running and may have been applied, so check before "
            "you repeat it."
        )
    if side_effects:
        return "It has ended; what it did until then may have had an effect, so check before you repeat it."
    return "It has ended."


def _join(first: str, fate: str, advice: str, partial: str) -> str:
    lines = [" ".join(part for part in (first, fate, advice) if part)]
    if partial:
        lines.append(f"Partial output before it was ended:\n{partial}")
    return "\n".join(lines)
