"""Tables on the page of a turn: its calls, sub-agents, decisions, cancel requests and repairs."""

from typing import Any

from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from governance import approval_store
from governance import selectors as governance_selectors
from governance.admin.formatting import (
    NOTHING,
    call_disposition,
    call_ended_by,
    call_status,
    format_actor,
    format_source,
    format_span,
    format_time,
)
from governance.admin.links import reader_of
from turns.admin.rows import link, outcome_text, table
from turns.models import CancelRequest, Turn


def calls_of(turn: Turn) -> SafeString | str:
    """Its calls in order, each with a link to the whole record."""
    heads = [
        _("step"),
        _("tool"),
        _("status"),
        _("ran"),
        _("limit"),
        _("ended by"),
        _("what is known"),
    ]
    return table(
        heads,
        [
            _call_cells(call, reader_of(turn))
            for call in governance_selectors.calls_of_group(str(turn.pk))
        ],
    )


def _call_cells(call: Any, reader: Any) -> tuple[Any, ...]:
    source = format_source(call.timeout_source)
    return (
        call.step,
        link("governance_toolcall", call.pk, call.tool_name, reader=reader),
        call_status(call),
        format_span(call.duration_ms),
        f"{format_span(call.timeout_ms)} ({source})" if call.timeout_ms else _("no limit"),
        call_ended_by(call),
        call_disposition(call),
    )


def sub_agents_of(turn: Turn) -> SafeString | str:
    """Whom it has set to work, and what became of that."""
    heads = [
        _("queued at"),
        _("agent"),
        _("status"),
        _("ended by"),
        _("ran"),
        _("delivered at"),
    ]
    return table(
        heads,
        [
            (
                child.queued_at,
                link("turns_turn", child.pk, child.agent or child.pk, reader=reader_of(turn)),
                child.get_status_display(),
                format_actor(child),
                format_span(child.duration_ms),
                (child.delivered_at or _("not yet")) if child.is_detached else NOTHING,
            )
            for child in turn.children.order_by("queued_at")
        ],
    )


def decisions_on(turn: Turn) -> SafeString | str:
    """Who was asked about its calls, and who decided what when (D4)."""
    heads = [_("asked at"), _("tool"), _("decision"), _("by"), _("decided at"), _("reason")]
    return table(
        heads,
        [
            (
                question.requested_at,
                link(
                    "governance_approval", question.pk, question.tool_name, reader=reader_of(turn)
                ),
                question.get_decision_display() or _("not yet"),
                question.by_name or NOTHING,
                question.decided_at or NOTHING,
                question.reason or NOTHING,
            )
            for question in approval_store.questions_of_group(str(turn.pk))
        ],
    )


def cancels_of(turn: Turn) -> SafeString | str:
    """Who wanted it to end, how, and how long that took."""
    heads = [
        _("requested at"),
        _("what"),
        _("reason"),
        _("means"),
        _("by"),
        _("note"),
        _("took"),
        _("outcome"),
    ]
    return table(
        heads,
        [_cancel_cells(request, reader_of(turn)) for request in turn.cancel_requests.all()],
    )


def _cancel_cells(request: CancelRequest, reader: Any) -> tuple[Any, ...]:
    at = format_time(request.requested_at)
    return (
        link("turns_cancelrequest", request.pk, at, reader=reader),
        request.tool_id or _("the turn"),
        request.get_reason_display(),
        request.get_source_display(),
        request.by_name,
        request.note or NOTHING,
        format_span(request.settled_ms),
        outcome_text(request),
    )


def limits_of(turn: Turn) -> SafeString | str:
    """Who wanted another limit for which call, and why (T9)."""
    heads = [_("requested at"), _("tool call"), _("wanted"), _("by"), _("note"), _("settled at")]
    return table(
        heads,
        [
            (
                format_time(order.requested_at),
                order.tool_id,
                f"+{format_span(order.extend_ms)}"
                if order.extend_ms
                else format_span(order.timeout_ms),
                order.by_name or NOTHING,
                order.note or NOTHING,
                format_time(order.settled_at) if order.settled_at else _("not yet"),
            )
            for order in turn.deadline_orders.all()
        ],
    )


def repairs_of(turn: Turn) -> SafeString | str:
    """What was put right in its history."""
    rows = [
        (repair.at, repair.tool_id, repair.get_kind_display(), repair.get_cause_display())
        for repair in turn.repairs.all()
    ]
    return table([_("at"), _("tool call"), _("kind"), _("cause")], rows)
