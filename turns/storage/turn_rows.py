"""Reads the row of a turn under the lock that protects a live turn: the lock of its conversation's row.

The final status of a turn is written only here, by `write_final`, whatever ended the turn (invariant 4). The functions
use the synchronous ORM.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import DateTimeField, Exists, ExpressionWrapper, F, OuterRef, Q, QuerySet
from django.db.models.functions import Now

from governance import recorder, shortened
from governance.db import database_connection
from governance.sanitize import sanitize_text
from turns.core.events import TurnAbort, TurnEnd, TurnError, TurnEvent
from turns.core.turns import LIVE_STATUSES, TurnEnding, TurnStatus, check_transition
from turns.events import log, log_lines
from turns.models import CancelRequest, Conversation, Message, Turn

# The fields that writes and endings need; texts that people wrote are left out, because they may be long.
_READ = (
    *("conversation", "root", "status", "epoch"),
    *(f"conversation__{name}" for name in ("owner", *log.COUNTED)),
)
_READ_AT_END = (
    *("owner", "number", "agent", "source", "parent", "is_detached", "started_at", "steps"),
    *("usage", *(f"conversation__{name}" for name in ("title", "agent", "parent", "parked_at"))),
)


def _live(turn_id: UUID, *also: str) -> "QuerySet[Turn]":
    rows = Turn.objects.select_related("conversation").only(*_READ, *also).order_by()
    return rows.annotate(has_requests=HAS_REQUESTS).filter(pk=turn_id, status__in=LIVE_STATUSES)


def _ending(turn_id: UUID) -> "QuerySet[Turn]":
    return _live(turn_id, *_READ_AT_END).annotate(
        has_open_calls=Exists(recorder.open_in(str(turn_id))),
        has_unfinished_message=HAS_UNFINISHED,
        has_children=HAS_CHILDREN,
        reports_wait=REPORTS_WAIT,
        read_at=READ_AT,
    )


def _to_cancel(**turns: Any) -> "QuerySet[Turn]":
    requests = CancelRequest.objects.filter(turn=OuterRef("pk"), tool_id="")
    behind = Turn.objects.filter(
        conversation=OuterRef("conversation"),
        number__gt=OuterRef("number"),
        status=TurnStatus.QUEUED,
    )
    rows = Turn.objects.select_related("conversation").order_by()
    return rows.filter(**turns).annotate(
        is_asked=Exists(requests),
        has_queue_behind=Exists(behind),
        has_children=HAS_CHILDREN,
        read_at=READ_AT,
    )


READ_AT = ExpressionWrapper(Now(), output_field=DateTimeField())
HAS_REQUESTS = Exists(CancelRequest.objects.filter(turn=OuterRef("pk"), settled_at=None))
HAS_UNFINISHED = Exists(Message.objects.filter(turn=OuterRef("pk"), is_streaming=True))
HAS_CHILDREN = Exists(Turn.objects.filter(parent=OuterRef("pk")))
REPORT_WAITS = Q(is_detached=True, delivered_at=None, parent__isnull=False)
REPORTS_WAIT = Exists(Turn.objects.filter(REPORT_WAITS))
"""Whether any report is undelivered.

This is rare, and reading it with a turn saves searching for the conversation's reports.
"""


def lock_live_turn(turn_id: UUID, *, epoch: int) -> Any:
    """Return a live turn with its conversation, locked until the transaction ends.

    Return None if the turn is not live, or has another epoch.
    """
    return _locked(_live(turn_id), turn_id, epoch=epoch)


def lock_ending_turn(turn_id: UUID, *, epoch: int | None, waits: bool) -> Any:
    """Lock and return a turn to end, with everything that may have to end with it, and the database's time.

    Without `epoch`, any epoch matches. Return None if the turn is not live or has another epoch, or if its conversation
    is locked and `waits` is False.
    """
    return _locked(_ending(turn_id), turn_id, epoch=epoch, waits=waits)


def lock_turn_to_cancel(turn_id: UUID) -> Any:
    """Return a turn with the fields that a cancel needs; its conversation is locked until the transaction ends.

    Return None if the turn was deleted.
    """
    return _locked(_to_cancel(pk=turn_id), turn_id)


def read_turns_to_cancel(turn_ids: Iterable[UUID]) -> "list[Any]":
    """Return several turns, whose conversations are already locked, with one query."""
    return list(_to_cancel(pk__in=list(turn_ids)).order_by("queued_at", "pk"))


def _locked(
    rows: "QuerySet[Turn]", turn_id: UUID, *, epoch: int | None = None, waits: bool = True
) -> Turn | None:
    # Databases with row locks need a separate statement for the lock, because a statement that waits for a lock may
    # return other rows as they were before.
    locks = database_connection().features.has_select_for_update
    if locks and not log.lock_of(turn_id, waits=waits):
        return None
    turn = rows.first()
    return turn if turn is not None and epoch in (None, turn.epoch) else None


def has_requests(turn: Turn) -> bool:
    """Return whether there are cancel requests for a turn or its calls; True if they were not read."""
    return bool(getattr(turn, "has_requests", True))


def write_final(
    conversation: Conversation,
    turn: Turn,
    ending: TurnEnding,
    *,
    at: datetime,
    descendants: int = 0,
) -> list[TurnEvent]:
    """Set the final status of a turn in a locked conversation. Return its last events, or an empty list if it has
    changed since it was read.

    The steps and the usage of `turn` are stored too. The epoch increases, so later writes of the turn's runner are
    refused. `descendants` is the number of turns cancelled with it.
    """
    check_transition(TurnStatus(turn.status), ending.status)
    cause = ending.cancellation
    duration_ms = max(round((at - (turn.started_at or at)).total_seconds() * 1000), 0)
    unchanged = Turn.objects.filter(pk=turn.pk, status=turn.status, epoch=turn.epoch)
    if not unchanged.update(
        epoch=F("epoch") + 1,
        status=ending.status.value,
        ended_at=at,
        duration_ms=duration_ms,
        steps=turn.steps,
        usage=turn.usage,
        error_code=ending.error_code,
        error_message=shortened(ending.error_message, limit=500),
        error_detail=shortened(sanitize_text(ending.error_detail), limit=1_000),
        ended_by_reason=cause.reason.value if cause else "",
        ended_by_source=cause.source.value if cause else "",
        ended_by_name=cause.by if cause else "",
    ):
        return []
    turn.status = ending.status
    log_lines.turn_ended(
        conversation,
        turn,
        status=ending.status,
        duration_ms=duration_ms,
        reason=cause.reason if cause else "",
        error_code=ending.error_code,
    )
    return _events(turn, ending, duration_ms=duration_ms, descendants=descendants)


def _events(
    turn: Turn, ending: TurnEnding, *, duration_ms: int, descendants: int
) -> list[TurnEvent]:
    events: list[TurnEvent] = []
    if ending.error_code:
        events.append(TurnError(code=ending.error_code, message=ending.error_message))
    if ending.cancellation is not None:
        events.append(TurnAbort.of(ending.cancellation, descendants=descendants))
    end = TurnEnd(
        status=ending.status.value,
        duration_ms=duration_ms,
        usage=turn.usage,
        error_code=ending.error_code or None,
    )
    return [*events, end]
