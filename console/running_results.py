"""The result of an action on the "Running now" page, read again on each request.

The page's address names the action, so that a reload shows its progress without repeating it.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import Count, Max, Q, QuerySet
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from console import running_calls
from console.formats import call_status, format_actor, format_span, outcome_text
from console.links import link, turn_link
from console.running_views import MARK
from console.search import as_id
from governance import CallStatus, approval_store
from governance.db import database_alias
from governance.db_clock import database_now
from governance.durations import format_limit
from governance.models import ToolCall
from turns.core.turns import TurnStatus
from turns.models import CancelRequest, DeadlineOrder, Turn

SETTLES_WITHIN = 1.5  # seconds to wait for the result; after that the page reports it as pending
_PAUSES = (0.02, 0.04, 0.08, 0.15)  # seconds; the last one repeats
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST = 10**17  # microseconds, in the year 5138; `datetime` ends in the year 9999
_STOPPED = {TurnStatus.CANCELLED.value, CallStatus.CANCELLED.value}


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of an action as the page shows it. `is_open` means still pending; `is_problem` means needs attention."""

    text: SafeString | str
    is_open: bool = False
    is_problem: bool = False


def read(did: str, user: Any) -> Result | None:
    """Return the result of the action in the page's address; None if there is none."""
    kind, _mark, rest = did.partition(MARK)
    reader = _READERS.get(kind)
    return reader(rest, user) if reader else None


def wait(did: str, user: Any) -> None:
    """Wait briefly for the action's result.

    Inside a transaction, return immediately, because other processes cannot see the request before it is committed.
    """
    if not transaction.get_autocommit(using=database_alias()):
        return
    until, pauses = time.monotonic() + SETTLES_WITHIN, list(_PAUSES)
    while (result := read(did, user)) is not None and result.is_open:
        remaining = until - time.monotonic()
        if remaining <= 0:
            return
        time.sleep(min(pauses.pop(0) if len(pauses) > 1 else pauses[0], remaining))


def of_cancel(rest: str, user: Any) -> Result | None:
    """Return the result of a cancel of a turn or call."""
    turn, tool_id = _turn_of(rest)
    if turn is None:
        return Result(text=_("The turn no longer exists."), is_problem=True)
    call = running_calls.find(str(turn.pk), tool_id) if tool_id else None
    if tool_id and call is None:
        return Result(text=_("The call does not exist."), is_problem=True)
    request = CancelRequest.objects.filter(turn=turn, tool_id=tool_id).first()
    what = _name(turn, call, user)
    if request is None:
        return _line(what, _("had already ended: %(how)s") % {"how": _status(call or turn)})
    if request.settled_at is None:
        age = _ms(database_now() - request.requested_at)
        words = _("is still being cancelled after %(age)s")
        return _line(what, words % {"age": format_span(age)}, is_open=True)
    return _settled(what, request, user)


def _settled(what: SafeString, request: CancelRequest, user: Any) -> Result:
    facts = {
        "took": format_span(request.settled_ms),
        "how": outcome_text(request),
        "by": request.by_name or request.get_reason_display(),
    }
    if request.by_id != user.pk:
        return _line(what, _("had already been cancelled by %(by)s and ended: %(how)s") % facts)
    if request.outcome in _STOPPED:
        return _line(what, _("stopped after %(took)s") % facts)
    if request.outcome == CallStatus.ABANDONED:
        words = _(
            "was abandoned after %(took)s: it may still be running, and is listed below until it ends"
        )
        return _line(what, words % facts, is_problem=True)
    return _line(what, _("had ended on its own (noticed after %(took)s): %(how)s") % facts)


def of_extension(rest: str, user: Any) -> Result | None:
    """Return the result of a time extension.

    It is identified by the stored request, the number of earlier changes to the call's limit, and the promised limit.
    """
    number, offset, promised = ([_number(part) for part in rest.split(MARK)] + [0] * 3)[:3]
    orders = DeadlineOrder.objects.select_related("turn__conversation__owner")
    order = orders.filter(pk=number).first()
    call = running_calls.find(str(order.turn_id), order.tool_id) if order else None
    if order is None or call is None:
        return Result(text=_("The call no longer exists."), is_problem=True)
    what = _name(order.turn, call, user)
    changes = [change for change in call.deadline_changes[offset:] if change["by"] == order.by_name]
    if changes:
        moved = {part: format_limit(changes[0][f"{part}_ms"]) for part in ("from", "to")}
        return _line(what, _("now has %(to)s; it had %(from)s") % moved)
    if CallStatus(call.status).is_terminal:
        return _line(what, _("had already ended: %(how)s") % {"how": _status(call)})
    if order.settled_at is not None and call.timeout_ms == promised:
        words = _("keeps %(limit)s, because its ceiling allows no more")
        return _line(what, words % {"limit": format_limit(call.timeout_ms)})
    return _line(what, _("has not received its new limit yet"), is_open=True)


def of_decision(rest: str, user: Any) -> Result | None:
    """Return the result of a decision on a question."""
    number = _number(rest)
    row = approval_store.find_question(str(number)) if number else None
    turn = _turn_of(row.group)[0] if row else None
    if row is None or turn is None:
        return Result(text=_("The question no longer exists."), is_problem=True)
    what = _name(turn, running_calls.find(row.group, row.call_id), user)
    if not row.decision:
        return _line(what, _("is still waiting for a person"), is_problem=True)
    if row.by_id == user.pk:
        return _line(what, str(row.get_decision_display()))
    facts = {"how": row.get_decision_display(), "by": row.by_name}
    words = (
        _("had already been decided by %(by)s: %(how)s")
        if row.by_name
        else _("had already been decided: %(how)s")
    )
    return _line(what, words % facts)


def of_many(rest: str, user: Any) -> Result | None:
    """Return the result of a bulk cancel: all cancels that the user requested within the given times.

    If another person had requested a cancel after the current step, it now belongs to this user, who made it immediate. A
    cancel that was already in progress still belongs to the person who requested it first.
    """
    numbers = [_number(part) for part in rest.split(MARK)] + [0] * 5
    since, until, total, accepted, remainder = numbers[:5]
    within = (_to_time(since), _to_time(until))
    counts = _count(CancelRequest.objects.filter(requested_at__range=within, by_id=user.pk))
    trying = counts["asked"] - counts["settled"]
    others = counts["settled"] - counts["stopped"] - counts["given_up"]
    lines = [
        (_("%(n)d stopped, the slowest after %(took)s"), counts["stopped"]),
        (_("%(n)d still being cancelled"), trying),
        (_("%(n)d abandoned, may still be running"), counts["given_up"]),
        (
            _("%(n)d already being cancelled by an earlier request"),
            max(accepted - counts["asked"], 0),
        ),
        (
            _("%(n)d had already ended, or were ended by another cancel"),
            others + max(total - accepted, 0),
        ),
        (_("%(n)d skipped: confirm again to cancel them"), remainder),
    ]
    took = format_span(counts["slowest"])
    words = ngettext("Requested %(n)d cancel", "Requested %(n)d cancels", total) % {"n": total}
    parts = [text % {"n": count, "took": took} for text, count in lines if count]
    return Result(
        text=f"{words}: {', '.join(parts) or _('none left')}.",
        is_open=trying > 0,
        is_problem=counts["given_up"] > 0 or remainder > 0,
    )


def _count(rows: QuerySet[CancelRequest]) -> dict[str, Any]:
    return rows.aggregate(
        asked=Count("pk"),
        settled=Count("pk", filter=Q(settled_at__isnull=False)),
        stopped=Count("pk", filter=Q(outcome__in=_STOPPED)),
        given_up=Count("pk", filter=Q(outcome=CallStatus.ABANDONED)),
        slowest=Max("settled_ms"),
    )


_READERS: Mapping[str, Callable[[str, Any], Result | None]] = {
    "cancel": of_cancel,
    "extend": of_extension,
    "decide": of_decision,
    "all": of_many,
}


def _line(what: SafeString, words: str, **more: bool) -> Result:
    return Result(text=format_html("{}: {}", what, words), **more)


def _turn_of(key: str) -> tuple[Turn | None, str]:
    turn_id, _mark, tool_id = key.partition(MARK)
    pk = as_id(turn_id)
    rows = Turn.objects.select_related("conversation__owner")
    return rows.filter(pk=pk).first() if pk else None, tool_id


def _name(turn: Turn, call: ToolCall | None, user: Any) -> SafeString:
    if call is None:
        return format_html("{} {}", _("Turn"), turn_link(turn, reader=user))
    tool = link("governance_toolcall", call.pk, call.tool_name, reader=user)
    return format_html("{} ({})", tool, turn_link(turn, reader=user))


def _status(row: Any) -> str:
    status: str = call_status(row) if isinstance(row, ToolCall) else row.get_status_display()
    return f"{status} ({format_actor(row)})" if row.ended_by_reason else status


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0


def to_number(at: datetime) -> int:
    """Return a time as the number that the keys for `of_many` contain."""
    return (at - _EPOCH) // timedelta(microseconds=1)


def _to_time(number: int) -> datetime:
    return _EPOCH + timedelta(microseconds=min(number, _LATEST))


def _ms(span: timedelta) -> int:
    return max(round(span.total_seconds() * 1_000), 0)
