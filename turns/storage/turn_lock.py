"""The lock under which anything of a live turn changes (sync ORM). It is its conversation's row, with the turn as it is then."""

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from django.db.models import (
    CharField,
    DateTimeField,
    Exists,
    ExpressionWrapper,
    OuterRef,
    QuerySet,
    UUIDField,
)
from django.db.models.functions import Now

from governance import call_store
from governance.db import thread_connection
from governance.prepared_statements import Select
from turns.core.turns import LIVE_STATUSES, TurnStatus
from turns.events import log
from turns.models import CancelRequest, Message, Turn

# What a write needs of its turn and of the conversation, and what an ending needs. What people wrote may be long.
_READ = (
    *("conversation", "root", "status", "epoch"),
    *(f"conversation__{name}" for name in ("owner", *log.COUNTED)),
)
_READ_AT_END = (
    *("owner", "number", "agent", "source", "parent", "is_detached", "started_at", "steps"),
    *("usage", *(f"conversation__{name}" for name in ("title", "agent", "parent", "parked_at"))),
)


def _live(turn_id: Any, *also: str) -> "QuerySet[Turn]":
    requests = CancelRequest.objects.filter(turn=OuterRef("pk"), settled_at=None)
    rows = Turn.objects.select_related("conversation").only(*_READ, *also).order_by()
    return rows.annotate(has_requests=Exists(requests)).filter(pk=turn_id, status__in=LIVE_STATUSES)


def _ending(turn_id: Any, group: Any) -> "QuerySet[Turn]":
    unfinished = Message.objects.filter(turn=OuterRef("pk"), is_streaming=True)
    return _live(turn_id, *_READ_AT_END).annotate(
        has_open_calls=Exists(call_store.open_in(group)),
        has_unfinished_message=Exists(unfinished),
        has_children=HAS_CHILDREN,
        read_at=READ_AT,
    )


def _to_cancel(**turns: Any) -> "QuerySet[Turn]":
    asked = CancelRequest.objects.filter(turn=OuterRef("pk"), tool_id="")
    behind = Turn.objects.filter(
        conversation=OuterRef("conversation"),
        number__gt=OuterRef("number"),
        status=TurnStatus.QUEUED,
    )
    rows = Turn.objects.select_related("conversation").order_by()
    return rows.filter(**turns).annotate(
        is_asked=Exists(asked),
        has_queue_behind=Exists(behind),
        has_children=HAS_CHILDREN,
        read_at=READ_AT,
    )


READ_AT = ExpressionWrapper(Now(), output_field=DateTimeField())
HAS_CHILDREN = Exists(Turn.objects.filter(parent=OuterRef("pk")))
LIVE = Select(_live, turn_id=UUIDField())
ENDING = Select(_ending, turn_id=UUIDField(), group=CharField())
TO_CANCEL = Select(lambda turn_id: _to_cancel(pk=turn_id), turn_id=UUIDField())


def lock_live_turn(turn_id: UUID, *, epoch: int) -> Any:
    """Return a live turn with its conversation, whose row stays locked until the transaction ends.

    None if the turn is not live, or not under this epoch any more.
    """
    return _locked(LIVE, turn_id, epoch=epoch)


def lock_ending_turn(turn_id: UUID, *, epoch: int | None, waits: bool) -> Any:
    """Return the same with all that may have to end with it, and the database's time of that reading.

    Without an epoch any will do. None also if another has the lock and we do not wait.
    """
    return _locked(ENDING, turn_id, epoch=epoch, waits=waits, group=str(turn_id))


def lock_turn_to_cancel(turn_id: UUID) -> Any:
    """Return a turn with what a cancel of it has to know; its conversation's row stays locked likewise.

    None if it was deleted.
    """
    return _locked(TO_CANCEL, turn_id)


def read_turns_to_cancel(turn_ids: Iterable[UUID]) -> "list[Any]":
    """Return the same of several turns, whose conversations are locked: one query for all."""
    return list(_to_cancel(pk__in=list(turn_ids)).order_by("queued_at", "pk"))


def _locked(
    query: "Select[Turn]",
    turn_id: UUID,
    *,
    epoch: int | None = None,
    waits: bool = True,
    **values: Any,
) -> Turn | None:
    # Where the database locks rows, a statement of its own does it. One that waits has begun to read before that.
    locks = thread_connection().features.has_select_for_update
    if locks and waits:
        turn = query.first_behind(log.LOCK_OF, turn_id=turn_id, **values)
    elif locks and not log.lock_of(turn_id, waits=False):
        return None
    else:
        turn = query.first(turn_id=turn_id, **values)
    return turn if turn is not None and epoch in (None, turn.epoch) else None


def has_requests(turn: Turn) -> bool:
    """Return whether it is asked that a turn, or one of its calls, be cancelled. True if that was not read with it."""
    return bool(getattr(turn, "has_requests", True))
