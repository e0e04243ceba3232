"""What became of a request made on the page of what runs now, read again each time (B5; sync ORM).

The address of the page names what was asked. So a reload shows how it stands, and nothing is asked twice.
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

from governance import CallStatus, approval_store, running_calls
from governance.admin.formatting import call_status, format_actor, format_span
from governance.admin.search import as_id
from governance.db_clock import database_now
from governance.durations import format_limit
from governance.running_calls import CallRow
from turns.admin.rows import link, outcome_text, turn_link
from turns.admin.running_turn_view import MARK
from turns.core.turns import TurnStatus
from turns.models import CancelRequest, DeadlineOrder, Turn

SETTLES_WITHIN = 1.5  # seconds that an answer waits; after that the page says that it goes on
_PAUSES = (0.02, 0.04, 0.08, 0.15)  # seconds; then the last one again and again
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST = 10**17  # microseconds, in the year 5138; there is no moment after the year 9999
_STOPPED = {TurnStatus.CANCELLED.value, CallStatus.CANCELLED.value}


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What the page says of it; `is_open` = more is to come, `is_problem` = somebody has to look."""

    text: SafeString | str
    is_open: bool = False
    is_problem: bool = False


def read(did: str, user: Any) -> Result | None:
    """Return what became of what an address names; None if it names nothing."""
    kind, _mark, rest = did.partition(MARK)
    reader = _READERS.get(kind)
    return reader(rest, user) if reader else None


def wait(did: str, user: Any) -> None:
    """Wait a short time until it has come true. Not inside a transaction: nobody would see what was asked."""
    if transaction.get_connection().in_atomic_block:
        return
    until, pauses = time.monotonic() + SETTLES_WITHIN, list(_PAUSES)
    while (result := read(did, user)) is not None and result.is_open:
        left = until - time.monotonic()
        if left <= 0:
            return
        time.sleep(min(pauses.pop(0) if len(pauses) > 1 else pauses[0], left))


def of_cancel(rest: str, user: Any) -> Result | None:
    """What became of the end of a turn, or of a call."""
    turn, tool_id = _turn_of(rest)
    if turn is None:
        return Result(text=_("There is no such turn any more."), is_problem=True)
    call = running_calls.find(str(turn.pk), tool_id) if tool_id else None
    if tool_id and call is None:
        return Result(text=_("There is no such call."), is_problem=True)
    request = CancelRequest.objects.filter(turn=turn, tool_id=tool_id).first()
    what = _name(turn, call, user)
    if request is None:
        return _line(what, _("had already ended: %(how)s") % {"how": _status(call or turn)})
    if request.settled_at is None:
        age = _ms(database_now() - request.requested_at)
        words = _("is still being ended, for %(age)s now")
        return _line(what, words % {"age": format_span(age)}, is_open=True)
    return _settled(what, request, user)


def _settled(what: SafeString, request: CancelRequest, user: Any) -> Result:
    facts = {
        "took": format_span(request.settled_ms),
        "how": outcome_text(request),
        "by": request.by_name or request.get_reason_display(),
    }
    if request.by_id != user.pk:
        return _line(what, _("had already been cancelled by %(by)s, and ended: %(how)s") % facts)
    if request.outcome in _STOPPED:
        return _line(what, _("stopped after %(took)s") % facts)
    if request.outcome == CallStatus.ABANDONED:
        words = _(
            "was given up after %(took)s: it may still run, and is listed below until it ends"
        )
        return _line(what, words % facts, is_problem=True)
    return _line(what, _("had ended by itself, seen after %(took)s: %(how)s") % facts)


def of_extension(rest: str, user: Any) -> Result | None:
    """What became of more time for a call: its order, the count of earlier changes, the promised limit."""
    number, known, promised = ([_number(part) for part in rest.split(MARK)] + [0] * 3)[:3]
    orders = DeadlineOrder.objects.select_related("turn__conversation__owner")
    order = orders.filter(pk=number).first()
    call = running_calls.find(str(order.turn_id), order.tool_id) if order else None
    if order is None or call is None:
        return Result(text=_("There is no such call any more."), is_problem=True)
    what = _name(order.turn, call, user)
    made = [change for change in call.deadline_changes[known:] if change["by"] == order.by_name]
    if made:
        moved = {part: format_limit(made[0][f"{part}_ms"]) for part in ("from", "to")}
        return _line(what, _("has %(to)s now; it had %(from)s") % moved)
    if CallStatus(call.status).is_terminal:
        return _line(what, _("had already ended: %(how)s") % {"how": _status(call)})
    if order.settled_at is not None and call.timeout_ms == promised:
        words = _("keeps %(limit)s: its ceiling allows no more")
        return _line(what, words % {"limit": format_limit(call.timeout_ms)})
    return _line(what, _("has not got its new limit yet"), is_open=True)


def of_decision(rest: str, user: Any) -> Result | None:
    """What became of a decision on a question."""
    number = _number(rest)
    row = approval_store.find_question(str(number)) if number else None
    turn = _turn_of(row.group)[0] if row else None
    if row is None or turn is None:
        return Result(text=_("There is no such question any more."), is_problem=True)
    what = _name(turn, running_calls.find(row.group, row.call_id), user)
    if not row.decision:
        return _line(what, _("still waits for a person"), is_problem=True)
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
    """What became of the ends of many: of all that the user has asked for from one moment to another.

    A request that was to count later is the user's now, under its old key. One that counts at once stays another's.
    """
    numbers = [_number(part) for part in rest.split(MARK)] + [0] * 5
    since, until, asked, accepted, left = numbers[:5]
    within = (_to_time(since), _to_time(until))
    found = _count(CancelRequest.objects.filter(requested_at__range=within, by_id=user.pk))
    trying = found["asked"] - found["settled"]
    others = found["settled"] - found["stopped"] - found["given_up"]
    counted = [
        (_("%(n)d stopped, the slowest after %(took)s"), found["stopped"]),
        (_("%(n)d still being ended"), trying),
        (_("%(n)d given up, which may still run"), found["given_up"]),
        (
            _("%(n)d already being ended by an earlier cancel"),
            max(accepted - found["asked"], 0),
        ),
        (
            _("%(n)d had ended already, or with another of them"),
            others + max(asked - accepted, 0),
        ),
        (_("%(n)d left out: confirm again for them"), left),
    ]
    took = format_span(found["slowest"])
    words = ngettext("Asked %(n)d to end", "Asked %(n)d to end", asked) % {"n": asked}
    parts = [text % {"n": count, "took": took} for text, count in counted if count]
    return Result(
        text=f"{words}: {', '.join(parts) or _('none was left')}.",
        is_open=trying > 0,
        is_problem=found["given_up"] > 0 or left > 0,
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
    wanted = as_id(turn_id)
    rows = Turn.objects.select_related("conversation__owner")
    return rows.filter(pk=wanted).first() if wanted else None, tool_id


def _name(turn: Turn, call: CallRow | None, user: Any) -> SafeString:
    if call is None:
        return format_html("{} {}", _("Turn"), turn_link(turn, reader=user))
    tool = link("governance_toolcall", call.pk, call.tool_name, reader=user)
    return format_html("{} ({})", tool, turn_link(turn, reader=user))


def _status(row: Any) -> str:
    status: str = call_status(row) if isinstance(row, CallRow) else row.get_status_display()
    return f"{status} ({format_actor(row)})" if row.ended_by_reason else status


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0


def to_number(at: datetime) -> int:
    """Return a moment as an address of `of_many` has it."""
    return (at - _EPOCH) // timedelta(microseconds=1)


def _to_time(number: int) -> datetime:
    return _EPOCH + timedelta(microseconds=min(number, _LATEST))


def _ms(passed: timedelta) -> int:
    return max(round(passed.total_seconds() * 1_000), 0)
