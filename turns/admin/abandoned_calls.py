"""What could not be ended: calls that were given up, and whose bodies may still be running somewhere (B4)."""

from dataclasses import dataclass
from typing import Any

from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from governance import running_calls
from governance.admin.formatting import NOTHING, call_ended_by, format_span, format_time
from governance.admin.search import as_id
from governance.db_clock import database_now
from governance.running_calls import CallRow
from turns.admin.rows import link, turn_link
from turns.admin.running_turn_view import input_of
from turns.models import Turn

SHOWN = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class AbandonedCall:
    """One line of the ledger: what, of which turn, since when, why it was given up, where it may run."""

    tool: SafeString | str
    input: str
    turn: SafeString | str
    since: SafeString | str
    age: str
    why: str
    where: SafeString | str


def read(*, with_input: bool, reader: Any) -> tuple[list[AbandonedCall], bool]:
    """Return the lines, the last one first, and whether there are more."""
    rows = running_calls.abandoned_calls(most=SHOWN + 1, with_input=with_input)
    if not rows:
        return [], False
    shown, now = rows[:SHOWN], database_now()
    ids = [turn_id for row in shown if (turn_id := as_id(row.group)) is not None]
    turns = Turn.objects.select_related("conversation__owner", "owner").filter(pk__in=ids)
    by_group = {str(turn.pk): turn for turn in turns.order_by()}
    return [_line(row, by_group.get(row.group), now, reader) for row in shown], len(rows) > SHOWN


def _line(row: CallRow, turn: Turn | None, now: Any, reader: Any) -> AbandonedCall:
    since = row.ended_at or row.requested_at
    return AbandonedCall(
        tool=link("governance_toolcall", row.pk, row.tool_name, reader=reader),
        input=input_of(row),
        turn=turn_link(turn, reader=reader) if turn else row.group,
        since=format_time(since),
        age=format_span(max(round((now - since).total_seconds()) * 1_000, 0)),
        why=call_ended_by(row),
        where=_where(row, turn, reader),
    )


def _where(row: CallRow, turn: Turn | None, reader: Any) -> SafeString | str:
    """A server's tool runs there; everything else in the process that had the turn."""
    if row.tool_server:
        return _("MCP server %(name)s") % {"name": row.tool_server}
    if turn is None or turn.owner is None:
        return NOTHING
    process = link("turns_process", turn.owner_id, turn.owner, reader=reader)
    return format_html("{}, {}", process, row.isolation) if row.isolation else process
