"""The rows of the "Running now" page: turns with their clocks and calls, and abandoned work."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import Truncator
from django.utils.translation import gettext as _

from console import running_calls
from console.clocks import ClockPauses, Pauses
from console.formats import NO_BREAK, NOTHING, call_ended_by, format_span, format_time, preformatted
from console.links import Link, Links, anchor, anchors, link, links_of_turns, turn_link
from console.search import as_id
from console.tool_rows import calls_at_once
from governance import CallStatus, WaitsFor, approval_store
from governance.approval_store import ApprovalRow
from governance.conf import app_settings
from governance.db_clock import database_now
from governance.hidden_characters import visible
from governance.models import ToolCall
from turns.calls.serializers import is_interruptible
from turns.core.turns import TurnStatus
from turns.models import RunningTurn, Turn

MARK = ":"  # separates the ids of a turn and its call in a button's value
TITLE_SHOWN = 60
ABANDONED_SHOWN = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Rights:
    """The user's permissions on the page."""

    reader: Any
    content: bool
    cancel: bool
    decide: bool


def call_view(
    row: ToolCall, question: ApprovalRow | None, *, at: datetime, rights: Rights, pauses: Pauses
) -> dict[str, Any]:
    """Return what the page shows of one call. Arguments and questions are only included for users who may see content."""
    tool = visible(row.tool_name)
    begin = row.started_at or row.requested_at  # for a waiting call, the time of the request
    is_form = question is not None and question.form is not None
    approval = question if rights.content and not is_form else None
    needs_decision = row.status == CallStatus.AWAITING_APPROVAL and not is_form
    is_running = row.status == CallStatus.RUNNING
    remaining = NOTHING
    if row.started_at is not None and row.timeout_ms is not None:
        remaining = _left(row.timeout_ms, row.started_at, pauses, at)
    return {
        "key": f"{row.group}{MARK}{row.call_id}",
        "rights": rights,
        "tool": tool,
        "link": link("governance_toolcall", row.pk, tool, reader=rights.reader),
        "input": input_of(row) if rights.content else "",
        "question": question,
        "asked_input": preformatted(approval.input or _("no input")) if approval else "",
        "asked_host": approval.host if approval else "",
        "state": _("waiting for a person to answer a form")
        if is_form
        else _waits(row) or str(row.get_status_display()),
        "since": format_time(begin),
        "age": _since(begin, at),
        "left": remaining,
        "is_asking": needs_decision or is_form,
        "is_ending": row.status == CallStatus.CANCELLING,
        "is_stuck": is_running and not is_interruptible(row),
        "can_decide": needs_decision and question is not None and rights.decide,
        "can_extend": is_running and bool(row.timeout_ms),
    }


def turn_view(
    turn: RunningTurn,
    calls: Sequence[dict[str, Any]],
    links: Links,
    *,
    at: datetime,
    rights: Rights,
    pauses: Pauses,
) -> dict[str, Any]:
    """Return what the page shows of one turn.

    While it waits for a person's decision, its clock is paused and its status says so.
    """
    user = turn.conversation.owner.get_username()
    begin = turn.started_at or turn.queued_at  # for a waiting turn, the time of its message
    # Messages are content, so they need the permission. An image alone has no text.
    message = visible(turn.user_message) if rights.content else ""
    title = Truncator(" ".join(message.split())).chars(TITLE_SHOWN)
    is_asking = any(call["is_asking"] for call in calls)
    conversation = Link(title or _("conversation"), links["conversation"].address)
    return {
        "key": str(turn.pk),
        "rights": rights,
        "calls": calls,
        "name": f"#{turn.number}, {user}",  # for users who cannot see the position of the button
        "link": anchor(links["turn"]),
        "conversation": anchor(conversation),
        "chat": links["chat"].address,
        "whose": anchors(links, ("user", "agent")),
        "state": _("waiting for a person") if is_asking else turn.get_status_display(),
        "since": format_time(begin),
        "age": _since(begin, at),
        "left": _left(turn.turn_timeout_ms, turn.started_at, pauses, at),
        "process": anchor(links["process"]),
        "is_ending": turn.status == TurnStatus.CANCELLING,
    }


def views_of(turns: Sequence[Any], *, at: datetime, rights: Rights) -> list[dict[str, Any]]:
    """Return what the page shows of turns and their calls, with one query per related table."""
    groups = [str(turn.pk) for turn in turns]
    links = links_of_turns(rights.reader, turns)
    calls = running_calls.of_groups(groups, with_input=rights.content)
    clocks = ClockPauses(turns)
    questions = {(row.group, row.call_id): row for row in approval_store.open_questions(groups)}
    moment: Any = {"at": at, "rights": rights}

    def view_of(turn: Any) -> dict[str, Any]:
        of_turn = [
            call_view(
                row,
                questions.get((row.group, row.call_id)),
                pauses=clocks.of(turn.pk, row.call_id),
                **moment,
            )
            for row in calls.get(str(turn.pk), ())
        ]
        pauses = clocks.of(turn.pk)
        return turn_view(turn, of_turn, links[str(turn.pk)], pauses=pauses, **moment)

    return [view_of(turn) for turn in turns]


def calls_at_once_text() -> str:
    """Return the numbers of running and waiting calls, in total and per tool, with their limits; empty if there are
    none.
    """
    counts = running_calls.count_by_tool()
    if not counts:
        return ""
    words = _(
        "Calls running: %(running)d (at most %(most)d in each process, %(of_one)d in each conversation)."
    )
    total = words % {
        "running": sum(running for _tool, running, _waiting in counts),
        "most": app_settings.MAX_RUNNING,
        "of_one": app_settings.MAX_RUNNING_PER_SCOPE,
    }
    most = calls_at_once(tool for tool, _running, _waiting in counts)
    return f"{total} {'; '.join(_of_tool(*count, most[count[0]]) for count in counts)}."


def _of_tool(tool: str, running: int, waiting: int, most: int | None) -> str:
    parts = [_("%(count)d running") % {"count": running}]
    if most is not None:
        parts[0] += " " + _("(at most %(most)d in each process)") % {"most": most}
    if waiting:
        parts.append(_("%(count)d waiting") % {"count": waiting})
    return f"{visible(tool)}: {', '.join(parts)}"


def input_of(row: Any) -> str:
    """Return the start of a call's arguments, as read by `running_calls`."""
    start = getattr(row, "input_start", "") or ""
    return visible(f"{start}…" if len(start) >= running_calls.INPUT_SHOWN else str(start))


def _waits(row: ToolCall) -> str:
    """Return what a call waits for; empty if unknown."""
    if row.status != CallStatus.PENDING or not row.waits_for:
        return ""
    words = {
        WaitsFor.CALL: _("waiting for %(tool)s to end"),
        WaitsFor.SCOPE: _("waiting: this conversation has reached its limit of concurrent calls"),
        WaitsFor.SLOT: _("waiting for a free slot on the server"),
    }
    sentence = words.get(row.waits_for["kind"], "")
    return sentence % {"tool": row.waits_for["tool_name"]} if "%" in sentence else sentence


def _since(moment: datetime, at: datetime) -> str:
    return _whole(_ms(at - moment))


def _left(limit_ms: int | None, started_at: datetime | None, pauses: Pauses, at: datetime) -> str:
    if not limit_ms:
        return _("no limit")
    if pauses.is_still:
        return _("paused")
    runtime = _ms(at - started_at - pauses.lasted(at)) if started_at else 0
    return _whole(limit_ms - runtime)


def _whole(milliseconds: int) -> str:
    """Round to whole seconds, because the value changes while it is read."""
    return format_span(milliseconds // 1_000 * 1_000) if milliseconds >= 1_000 else f"0{NO_BREAK}s"


def _ms(span: timedelta) -> int:
    return round(span.total_seconds() * 1_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class AbandonedCall:
    """One abandoned call: tool, turn, time, reason, and the process where it may still run."""

    tool: SafeString | str
    input: str
    turn: SafeString | str
    since: SafeString | str
    age: str
    why: str
    where: SafeString | str


def abandoned_calls(*, with_input: bool, reader: Any) -> tuple[list[AbandonedCall], bool]:
    """Return the abandoned calls, newest first, and whether there are more."""
    rows = running_calls.abandoned_calls(most=ABANDONED_SHOWN + 1, with_input=with_input)
    if not rows:
        return [], False
    page, now = rows[:ABANDONED_SHOWN], database_now()
    ids = [turn_id for row in page if (turn_id := as_id(row.group)) is not None]
    turns = Turn.objects.select_related("conversation__owner", "owner").filter(pk__in=ids)
    by_group = {str(turn.pk): turn for turn in turns.order_by()}
    return [_abandoned(row, by_group.get(row.group), now, reader) for row in page], len(
        rows
    ) > ABANDONED_SHOWN


def _abandoned(row: ToolCall, turn: Turn | None, now: Any, reader: Any) -> AbandonedCall:
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


def _where(row: ToolCall, turn: Turn | None, reader: Any) -> SafeString | str:
    """Return the MCP server for a remote tool, and the turn's process for all others."""
    if row.tool_server:
        return _("MCP server %(name)s") % {"name": row.tool_server}
    if turn is None or turn.owner is None:
        return NOTHING
    process = link("turns_process", turn.owner_id, turn.owner, reader=reader)
    return format_html("{}, {}", process, row.isolation) if row.isolation else process
