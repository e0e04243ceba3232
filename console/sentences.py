"""The headings of pages: one sentence about their turn or call."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from console.formats import format_actor, format_span
from governance.core.calls import CallStatus
from governance.hidden_characters import visible
from governance.recorder import UNWATCHED
from turns.core.turns import TurnStatus
from turns.models import Turn

MOST_NAMED = 3
_TURNS: Mapping[str, Any] = {
    TurnStatus.QUEUED: gettext_lazy("%(user)s’s turn is waiting to start"),
    TurnStatus.RUNNING: gettext_lazy("%(user)s’s turn is running"),
    TurnStatus.CANCELLING: gettext_lazy("%(user)s’s turn is being cancelled"),
    TurnStatus.COMPLETED: gettext_lazy("%(user)s’s turn was completed after %(span)s"),
    TurnStatus.CANCELLED: gettext_lazy("%(user)s’s turn was cancelled after %(span)s"),
    TurnStatus.FAILED: gettext_lazy("%(user)s’s turn failed after %(span)s"),
    TurnStatus.TIMED_OUT: gettext_lazy("%(user)s’s turn timed out after %(span)s"),
    TurnStatus.INTERRUPTED: gettext_lazy("%(user)s’s turn was interrupted after %(span)s"),
}
_CALLS: Mapping[str, Any] = {
    CallStatus.PENDING: gettext_lazy("%(tool)s is waiting to start"),
    CallStatus.AWAITING_APPROVAL: gettext_lazy("%(tool)s is waiting for a person’s decision"),
    CallStatus.RUNNING: gettext_lazy("%(tool)s is running"),
    CallStatus.CANCELLING: gettext_lazy("%(tool)s is being cancelled"),
    CallStatus.SUCCEEDED: gettext_lazy("%(tool)s succeeded after %(span)s"),
    CallStatus.FAILED: gettext_lazy("%(tool)s failed after %(span)s"),
    CallStatus.TIMED_OUT: gettext_lazy("%(tool)s timed out after %(span)s"),
    CallStatus.CANCELLED: gettext_lazy("%(tool)s was interrupted after %(span)s"),
    CallStatus.DENIED: gettext_lazy("%(tool)s was denied and did not start"),
    CallStatus.EXPIRED: gettext_lazy("%(tool)s did not start: it was not approved in time"),
    CallStatus.NOT_STARTED: gettext_lazy("%(tool)s did not start"),
    CallStatus.ABANDONED: gettext_lazy(
        "%(tool)s was abandoned after %(span)s and may still be running"
    ),
    CallStatus.REPAIRED: gettext_lazy("%(tool)s was lost; its outcome is unknown"),
}
# Problems of a turn's calls that its heading mentions.
_CUT, _LATE, _LEFT, _LOST, _NEVER = "cut", "late", "left", "lost", "never"
_FATES: Mapping[str, Callable[[int], str]] = {
    _CUT: lambda count: ngettext("%(tools)s was interrupted", "%(tools)s were interrupted", count),
    _LATE: lambda count: ngettext("%(tools)s timed out", "%(tools)s timed out", count),
    _LEFT: lambda count: ngettext(
        "%(tools)s may still be running", "%(tools)s may still be running", count
    ),
    _LOST: lambda count: ngettext("%(tools)s was lost", "%(tools)s were lost", count),
    _NEVER: lambda count: ngettext("%(tools)s did not start", "%(tools)s did not start", count),
}


def turn_sentence(turn: Turn, calls: Iterable[Any]) -> str:
    """Return a sentence with the turn's owner, outcome and duration, and its calls that were ended early."""
    user = visible(turn.conversation.owner.get_username())
    words = _TURNS[turn.status]
    if turn.started_at is None and turn.ended_at is not None:
        words = _("%(user)s’s turn ended before it started: %(status)s")
    facts = {"user": user, "status": turn.get_status_display()}
    begin = _whole(words, {**facts, "span": format_span(turn.duration_ms)})
    if turn.status == TurnStatus.CANCELLED and turn.ended_by_reason:
        begin += f" ({_actor_of(turn, user)})"
    if turn.error_code and turn.status == TurnStatus.INTERRUPTED:
        begin += f" ({turn.error_code.replace('_', ' ')})"
    fates: dict[str, list[str]] = {fate: [] for fate in _FATES}
    for call in calls:
        if fate := _fate_of(call):
            fates[fate].append(visible(call.tool_name))
    parts = [
        _FATES[fate](len(names)) % {"tools": _listed(names)}
        for fate, names in fates.items()
        if names
    ]
    return f"{begin}: {', '.join(parts)}" if parts else begin


def call_sentence(call: Any) -> str:
    """Return a sentence with the call's tool, outcome and duration."""
    words = _CALLS[call.status]
    if call.status == CallStatus.CANCELLED and call.started_at is None:
        words = _CALLS[CallStatus.NOT_STARTED]
    if call.status == CallStatus.ABANDONED and call.late_kind not in ("", UNWATCHED):
        words = _("%(tool)s was abandoned after %(span)s and has since ended")
    if call.duration_ms is None and "%(span)s" in str(words):
        words = _("%(tool)s: %(status)s")
    facts = {"tool": visible(call.tool_name), "status": call.get_status_display()}
    return _whole(words, {**facts, "span": format_span(call.duration_ms)})


def _actor_of(turn: Turn, user: str) -> str:
    """Return who ended the turn, and how; if it was the owner, only how."""
    actor = format_actor(turn)
    own = f"{turn.ended_by_name}, "
    return actor.removeprefix(own) if turn.ended_by_name == user else actor


def _fate_of(call: Any) -> str:
    match call.status:
        case CallStatus.CANCELLED:
            return _NEVER if call.started_at is None else _CUT
        case CallStatus.NOT_STARTED | CallStatus.DENIED | CallStatus.EXPIRED:
            return _NEVER
        case CallStatus.TIMED_OUT:
            return _LATE
        case CallStatus.ABANDONED:
            return _LEFT if call.late_kind in ("", UNWATCHED) else _CUT
        case CallStatus.REPAIRED:
            return _LOST
    return ""


def _listed(names: list[str]) -> str:
    """Return the tools' names without duplicates, shortened if there are many."""
    tools = list(dict.fromkeys(names))
    more = len(tools) - MOST_NAMED
    if more > 0:
        text = ", ".join(tools[:MOST_NAMED])
        return _("%(names)s and %(count)d more") % {"names": text, "count": more}
    *others, last = tools
    if not others:
        return last
    return _("%(names)s and %(last)s") % {"names": ", ".join(others), "last": last}


def _whole(words: Any, facts: Mapping[str, str]) -> str:
    return str(words) % facts
