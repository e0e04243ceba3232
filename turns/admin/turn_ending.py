"""What the page of a turn says of its end: why, by whom, where, and what the agent was told."""

from collections.abc import Iterable, Iterator
from typing import Any

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from governance import CallStatus, selectors, shortened
from governance.admin.formatting import NOTHING, format_actor, format_time
from governance.admin.links import reader_of
from turns.admin.rows import link, table
from turns.core.repairs import CRASH, Cause
from turns.core.turns import ACTIVE_STATUSES, TurnStatus
from turns.history import histories
from turns.models import CancelRequest, Turn
from turns.models.labels import repair_causes

TOLD_SHOWN = 2_000  # characters of a result; the page of its call has the whole one
_STOPPED = {CallStatus.CANCELLED, CallStatus.TIMED_OUT, CallStatus.ABANDONED}


def why(turn: Turn) -> SafeString | str:
    """Who or what ended it, the note of a request, and the cause of an interruption: which process, and when."""
    requests = [row for row in turn.cancel_requests.all() if not row.tool_id]
    notes = (row.note for row in sorted(requests, key=lambda row: row.requested_at))
    said = dict.fromkeys([format_actor(turn), *notes, *_causes(turn), *_where(turn)])
    line = format_html_join(": ", "{}", [(part,) for part in said if part and part != NOTHING])
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
    """In which process a turn was interrupted, and when. Of a process that was gone, also its last sign of life."""
    owner = turn.owner
    if turn.status != TurnStatus.INTERRUPTED:
        return
    at = format_time(turn.ended_at, with_milliseconds=True)
    if owner is None:
        yield format_html(_("found at {at}"), at=at)
        return
    facts: dict[str, Any] = {
        "process": link("turns_process", owner.pk, owner, reader=reader_of(turn)),
        "seen": format_time(owner.seen_at, with_milliseconds=True),
        "at": at,
    }
    if turn.ended_by_reason or turn.error_code:
        yield format_html(_("process {process}, at {at}"), **facts)
    elif _was_lost(turn):
        yield format_html(_("process {process} lives, but ran it no more, found at {at}"), **facts)
    else:
        words = _("process {process}, last heard of at {seen}, found gone at {at}")
        yield format_html(words, **facts)


def _was_lost(turn: Turn) -> bool:
    """Whether its process lived on: it had lost the turn, for instance as a commit came through unanswered."""
    if turn.status != TurnStatus.INTERRUPTED or turn.ended_by_reason or turn.error_code:
        return False
    owner, at = turn.owner, turn.ended_at
    return owner is not None and (
        owner.ended_at is None or (at is not None and owner.ended_at > at)
    )


def _page_of(request: CancelRequest, reader: Any) -> SafeString | str:
    """Return a link to the page with everything about the cancel; empty for whoever may not see it."""
    page = link("turns_cancelledturn", request.pk, _("everything about its end"), reader=reader)
    return page if isinstance(page, SafeString) else ""


def model_texts(turn: Turn) -> SafeString | str:
    """What each call that was stopped has answered the agent with, and what the next turn begins with."""
    stopped = [call for call in selectors.calls_of_group(str(turn.pk)) if _was_stopped(call)]
    reader = reader_of(turn)
    lines = [
        (
            link("governance_toolcall", call.pk, call.tool_name, reader=reader),
            call.call_id,
            text(shortened(call.result, limit=TOLD_SHOWN)),
        )
        for call in stopped
    ]
    return model_texts_table(turn, lines)


def model_texts_table(turn: Turn, lines: Iterable[Any]) -> SafeString | str:
    """Return what calls have told, with what the next turn is told about this one."""
    lines = list(lines)
    if turn.status not in (*ACTIVE_STATUSES, TurnStatus.COMPLETED):
        lines.append((_("the next turn"), NOTHING, text(histories.note_on(turn))))
    return table([_("told by"), _("tool call"), _("text")], lines)


def text(words: str) -> SafeString:
    """Return what an agent read, in its own lines."""
    return format_html('<pre class="governance-text">{}</pre>', words)


def _was_stopped(call: Any) -> bool:
    return bool(call.ended_by_reason or call.is_synthetic or call.status in _STOPPED)
