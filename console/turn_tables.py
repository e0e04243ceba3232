"""The tables and lines on a turn's page: calls, sub-agents, decisions, cancels, repairs, and the reason for its end."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from django.db.models import Q
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from console.formats import (
    NOTHING,
    call_disposition,
    call_ended_by,
    call_status,
    format_actor,
    format_source,
    format_span,
    format_time,
    note_of,
    outcome_text,
    table,
)
from console.links import link, reader_of
from governance import CallStatus, approval_store, selectors, shortened
from governance.core.calls import Disposition
from turns.core.repairs import CRASH, Cause
from turns.core.turns import ACTIVE_STATUSES, TurnStatus
from turns.history import histories
from turns.models import CancelRequest, Message, Turn
from turns.models.labels import repair_causes

TOLD_SHOWN = 2_000  # characters of a result; the call's page has all of it
_STOPPED = {CallStatus.CANCELLED, CallStatus.TIMED_OUT, CallStatus.ABANDONED}


def calls_of(turn: Turn, calls: Iterable[Any] | None = None) -> SafeString | str:
    """Return a table of the turn's calls, linked to their pages. If `calls` are passed, it has more columns."""
    in_full = calls is not None
    heads = [_("step"), _("tool"), _("status"), _("duration"), _("limit")]
    heads += [_("idle limit")] if in_full else []
    heads += [_("ended by"), _("known outcome")]
    heads += [_("delay")] if in_full else []
    rows = list(selectors.calls_of_group(str(turn.pk)) if calls is None else calls)
    if turn.pruned_at and not rows:
        return _pruned(turn)
    return table(heads, [_call_cells(call, reader_of(turn), in_full=in_full) for call in rows])


def _call_cells(call: Any, reader: Any, *, in_full: bool) -> list[Any]:
    limit, idle = _("no limit"), _("no limit")
    if call.timeout_ms:
        limit = f"{format_span(call.timeout_ms)} ({format_source(call.timeout_source)})"
    if call.idle_timeout_ms:
        idle = format_span(call.idle_timeout_ms)
    return [
        call.step,
        link("governance_toolcall", call.pk, call.tool_name, reader=reader),
        call_status(call),
        format_span(call.duration_ms),
        limit,
        *([idle] if in_full else []),
        call_ended_by(call),
        call_disposition(call),
        *([format_span(call.late_after_ms)] if in_full else []),
    ]


def after_the_cancel(request: CancelRequest, calls: Iterable[Any]) -> str:
    """Return a sentence about what is known to have run after the cancel of the turn was settled."""
    at = request.settled_at
    if at is None:
        return NOTHING
    calls = list(calls)
    if request.turn.pruned_at and not calls:
        return _("The calls were pruned, so what ran later is unknown.")
    unknown = [call for call in calls if call.disposition == Disposition.INDETERMINATE]
    late = [
        call
        for call in calls
        if call not in unknown
        and (call.late_after_ms or (call.started_at and call.started_at > at))
    ]
    children = request.turn.children.filter(Q(ended_at=None) | Q(ended_at__gt=at)).count()
    words = [
        (_("It is not known when these calls ended: %(what)s."), _names(unknown)),
        (_("These calls ended later: %(what)s."), _names(late)),
        (_("Turns of sub-agents that ended later or still run: %(what)s."), children),
    ]
    sentences = [sentence % {"what": what} for sentence, what in words if what]
    return " ".join(sentences) or _("Nothing ran: every call of this turn had ended by then.")


def _names(calls: Iterable[Any]) -> str:
    return ", ".join(dict.fromkeys(call.tool_name for call in calls))


def sub_agents_of(turn: Turn) -> SafeString | str:
    """Return a table of the child turns, and how they ended."""
    heads = [
        _("queued at"), _("agent"), _("status"), _("ended by"), _("duration"), _("delivered at"),
    ]  # fmt: skip
    lines = [
        (
            child.queued_at,
            link("turns_turn", child.pk, child.agent or child.pk, reader=reader_of(turn)),
            child.get_status_display(),
            format_actor(child),
            format_span(child.duration_ms),
            (child.delivered_at or _("not yet")) if child.is_detached else NOTHING,
        )
        for child in turn.children.order_by("queued_at")
    ]
    return table(heads, lines)


def decisions_on(turn: Turn) -> SafeString | str:
    """Return a table of the requests for approval of the turn's calls, with the decisions."""
    heads = [_("asked at"), _("tool"), _("decision"), _("by"), _("decided at"), _("reason")]
    reader = reader_of(turn)
    may_see_reasons = reader.has_perm("governance.view_content")
    lines = [
        (
            question.requested_at,
            link("governance_approval", question.pk, question.tool_name, reader=reader),
            question.get_decision_display() or _("not yet"),
            question.by_name or NOTHING,
            question.decided_at or NOTHING,
            (question.reason if may_see_reasons else "") or NOTHING,
        )
        for question in approval_store.questions_of_group(str(turn.pk))
    ]
    return table(heads, lines)


def cancels_of(turn: Turn) -> SafeString | str:
    """Return a table of the cancel requests for the turn or its calls, with their latency."""
    heads = [
        _("requested at"), _("target"), _("reason"), _("channel"), _("by"), _("note"), _("duration"), _("outcome"),
    ]  # fmt: skip
    reader = reader_of(turn)
    lines = [
        (
            link("turns_cancelrequest", it.pk, format_time(it.requested_at), reader=reader),
            it.tool_id or _("the turn"),
            it.get_reason_display(),
            it.get_source_display(),
            it.by_name,
            note_of(it, reader) or NOTHING,
            format_span(it.settled_ms),
            outcome_text(it),
        )
        for it in turn.cancel_requests.all()
    ]
    return table(heads, lines)


def limits_of(turn: Turn) -> SafeString | str:
    """Return a table of the requests to change the limit of one of the turn's calls."""
    heads = [
        _("requested at"),
        _("tool call"),
        _("requested limit"),
        _("by"),
        _("note"),
        _("settled at"),
    ]
    lines = [
        (
            order.requested_at,
            order.tool_id,
            f"+{format_span(order.extend_ms)}"
            if order.extend_ms
            else format_span(order.timeout_ms),
            order.by_name or NOTHING,
            note_of(order, reader_of(turn)) or NOTHING,
            order.settled_at or _("not yet"),
        )
        for order in turn.deadline_orders.all()
    ]
    return table(heads, lines)


def repairs_of(turn: Turn) -> SafeString | str:
    """Return a table of the repairs of the turn's history."""
    lines = [
        (repair.at, repair.tool_id, repair.get_kind_display(), repair.get_cause_display())
        for repair in turn.repairs.all()
    ]
    return table([_("at"), _("tool call"), _("kind"), _("cause")], lines)


def told_of(turn: Turn) -> SafeString | str:
    """Return a table of the results that the agent got for stopped calls, and of the note for the next turn."""
    lines = [
        (
            link("governance_toolcall", call.pk, call.tool_name, reader=reader_of(turn)),
            call.call_id,
            _text(shortened(call.result, limit=TOLD_SHOWN)),
        )
        for call in selectors.calls_of_group(str(turn.pk))
        if call.ended_by_reason or call.is_synthetic or call.status in _STOPPED
    ]
    return _told(turn, lines)


def results_of(turn: Turn, calls: Iterable[Any]) -> SafeString | str:
    """Return a table of the results that the agent got for all calls, and of the note for the next turn."""
    return _told(turn, [(call.tool_name, call.call_id, _text(call.result)) for call in calls])


def _told(turn: Turn, lines: Sequence[Any]) -> SafeString | str:
    lines = list(lines)
    if turn.status not in (*ACTIVE_STATUSES, TurnStatus.COMPLETED):
        lines.append(_next_told(turn))
    return table([_("source"), _("tool call"), _("text")], lines)


def _next_told(turn: Turn) -> tuple[Any, ...]:
    """Return a table row with the note that the next turn got, or would get if it began now."""
    following = (
        Turn.objects.filter(conversation=turn.conversation_id, number__gt=turn.number)
        .filter(started_at__isnull=False, replaced_by=None)
        .order_by("number")
        .first()
    )
    note = Message.objects.filter(turn=following, role="user").exclude(note="").first()
    if following and note:
        return _("the next turn"), NOTHING, _text(note.note)
    if turn.pruned_at:
        return _("the next turn"), NOTHING, _pruned(turn)
    who = _("the next turn") if following else _("the next turn (preview)")
    return who, NOTHING, _text(histories.note_on(turn))


def _pruned(turn: Turn) -> SafeString:
    at = format_time(turn.pruned_at)
    return format_html(_("calls deleted by prune, {at}"), at=at)


def _text(words: str) -> SafeString:
    """Return text that an agent read, with its line breaks."""
    return format_html('<pre class="governance-text">{}</pre>', words)


def why(turn: Turn) -> SafeString | str:
    """Return who or what ended the turn, the note of the request, and the details of an interruption."""
    requests = [row for row in turn.cancel_requests.all() if not row.tool_id]
    notes = (
        note_of(row, reader_of(turn)) for row in sorted(requests, key=lambda row: row.requested_at)
    )
    reasons = dict.fromkeys([format_actor(turn), *notes, *_causes(turn), *_where(turn)])
    line = format_html_join(": ", "{}", [(part,) for part in reasons if part and part != NOTHING])
    parts = [line, *(_page_of(row, reader_of(turn)) for row in requests)]
    return format_html_join(" · ", "{}", [(part,) for part in parts if part]) or NOTHING


def _causes(turn: Turn) -> list[str]:
    names = {repair.cause for repair in turn.repairs.all()}
    if turn.status == TurnStatus.INTERRUPTED:
        reason, code = turn.ended_by_reason, turn.error_code
        names.add(Cause.of_turn(turn.status, reason=reason, error_code=code).name)
    if _was_lost(turn):
        names.discard(CRASH.name)
    words = dict(repair_causes())
    return sorted(str(words.get(name, name)) for name in names)


def _where(turn: Turn) -> Iterator[SafeString | str]:
    """Yield the process and time of an interruption; if the process was gone, also its last heartbeat."""
    owner = turn.owner
    if turn.status != TurnStatus.INTERRUPTED:
        return
    at = format_time(turn.ended_at, with_milliseconds=True)
    if owner is None:
        yield format_html(_("detected at {at}"), at=at)
        return
    facts: dict[str, Any] = {
        "process": link("turns_process", owner.pk, owner, reader=reader_of(turn)),
        "seen": format_time(owner.seen_at, with_milliseconds=True),
        "at": at,
    }
    if turn.ended_by_reason or turn.error_code not in {"", "lease_lost"}:
        yield format_html(_("process {process}, at {at}"), **facts)
    elif _was_lost(turn):
        yield format_html(
            _("process {process} is alive but no longer ran the turn, detected at {at}"), **facts
        )
    else:
        words = _("process {process}, last heartbeat at {seen}, found dead at {at}")
        yield format_html(words, **facts)


def _was_lost(turn: Turn) -> bool:
    """Return whether the process survived but lost the turn, for example because a commit was not confirmed."""
    if turn.status != TurnStatus.INTERRUPTED or turn.ended_by_reason or turn.error_code:
        return False
    owner, at = turn.owner, turn.ended_at
    return owner is not None and (
        owner.ended_at is None or (at is not None and owner.ended_at > at)
    )


def _page_of(request: CancelRequest, reader: Any) -> SafeString | str:
    """Return a link to the cancel's page; empty if the reader may not see it."""
    page = link("turns_cancelledturn", request.pk, _("details of the end"), reader=reader)
    return page if isinstance(page, SafeString) else ""
