"""Acknowledgements: whoever has said a cancel word is told that it came true, after it has, and once (C6, C8).

Each is an event of the conversation and shown in it, but no message: no chat model ever reads it. A typed word gets a
fixed answer. A spoken word gets the chat model's answer, if that comes in time.
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from django.db.models import Q, UUIDField
from django.utils.translation import gettext_noop as _

from governance import CancelSource, has_cancel_word, selectors
from governance.db import run_in_db_thread
from governance.db_clock import database_now, now_minus
from governance.prepared_statements import Select
from governance.sanitize import sanitize_text
from governance.transactions import atomic
from turns.conf import app_settings
from turns.core.events import CancelAcknowledged
from turns.core.turns import BY_PEOPLE, TurnStatus
from turns.core.wire import AnsweredCancelWord
from turns.events import log, sinks, spoken_acknowledgements
from turns.models import Acknowledgement, CancelRequest, Turn
from turns.processes import background

logger = logging.getLogger(__name__)

LEFT_AFTER = timedelta(seconds=10)  # by whoever should have given it
AT_ONCE = 100
TEXT_LENGTH = 300
_MAY_GO_ON = _("Okay. I do not wait for it any more, but it may still be running.")
_CANCELLED_BUT = _("Cancelled. May still be running: %(tools)s.")
_CANCELLED_BEHIND = _("Cancelled in the background: %(agents)s.")
_OKAY = _("Okay, that has ended.")
_CANCELLED, _ENDED = _("Cancelled."), _("It has ended.")
STORED = (
    _MAY_GO_ON,
    _CANCELLED_BUT,
    _CANCELLED_BEHIND,
    _OKAY,
    _CANCELLED,
    _ENDED,
)  # rows keep them in English


@dataclass(frozen=True, slots=True, kw_only=True)
class _Due:
    """One that may be given now; `is_plain`: the work was cancelled, and all of it is known to have ended."""

    text: str
    said: str
    agent: str
    is_spoken: bool
    is_plain: bool


def note(request: CancelRequest, turn: Turn, *, said: str, source: CancelSource) -> int:
    """Store that a cancel word was said, whose answer is to be shown with `turn`; return the answer's id.

    A second word for the same request changes nothing: it has one answer.
    """
    row, _is_new = Acknowledgement.objects.get_or_create(
        request=request,
        defaults={"turn": turn, "said": sanitize_text(said, limit=200), "source": source.value},
    )
    return int(row.pk)


def due_after(turn: Turn) -> list[int]:
    """Return the answers that the end of a turn may have made due. Those to other detached turns beside it, too."""
    if not turn.is_detached or turn.parent is None:
        return [pk for (pk,) in _OF_TURN.all(turn_id=turn.pk)]
    meant = Q(request__turn__is_detached=True, turn__conversation=turn.parent.conversation_id)
    rows = Acknowledgement.objects.filter(Q(request__turn=turn) | meant, at=None)
    return list(rows.values_list("pk", flat=True))


_OF_TURN = Select(
    lambda turn_id: Acknowledgement.objects.filter(request__turn=turn_id, at=None).values_list(
        "pk"
    ),
    turn_id=UUIDField(),
)


def overdue() -> list[int]:
    """Return the answers that nobody has given although all has ended for a while: who should have, has gone."""
    return [pk for (pk,) in _OVERDUE.all()]


_OVERDUE = Select(
    lambda: (
        Acknowledgement.objects.filter(at=None, request__settled_at__lt=now_minus(LEFT_AFTER))
        .order_by()
        .values_list("pk")[:AT_ONCE]
    )
)


def begin(answers: Iterable[int]) -> None:
    """Let answers be given, without waiting for it."""
    for pk in answers:
        background.spawn(_give(pk), name=f"acknowledgement {pk}")


def of_turns(turn_ids: Iterable[UUID]) -> dict[UUID, list[AnsweredCancelWord]]:
    """Return the answers that were given, by the turn that they are shown with."""
    found: dict[UUID, list[AnsweredCancelWord]] = {}
    rows = Acknowledgement.objects.filter(turn__in=list(turn_ids), at__isnull=False)
    for row in rows.order_by("pk"):
        found.setdefault(row.turn_id, []).append(_payload(row))
    return found


async def _give(pk: int) -> None:
    due = await _look(pk)
    if due is None:
        return
    text = due.text
    if due.is_spoken and due.is_plain:
        text = await _phrase_by_agent(due) or text
    told = await _store(pk, text)
    if told is not None:
        await sinks.publish(*told)


async def _phrase_by_agent(due: _Due) -> str:
    """What the agent says of it; nothing if it cannot be heard without being taken for a cancel word."""
    try:
        text = await spoken_acknowledgements.acknowledge(due.said, agent=due.agent)
    except Exception:
        logger.warning("A chat model gave no acknowledgement", exc_info=True)
        return ""
    is_risky = has_cancel_word(text, also=app_settings.CANCEL_WORDS)
    return "" if is_risky or len(text) > TEXT_LENGTH else text


@run_in_db_thread
def _look(pk: int) -> _Due | None:
    """Return the answer if it is due: its request has come true, and those that were made with it."""
    rows = Acknowledgement.objects.select_related("request__turn__parent", "turn")
    row = rows.filter(pk=pk, at=None, request__settled_at__isnull=False).first()
    if row is None or _has_others_open(row):
        return None
    is_spoken = row.source == CancelSource.VOICE
    left = selectors.may_still_run(str(row.request.turn_id))
    was_cancelled = row.request.outcome == TurnStatus.CANCELLED
    agents = _agents_ended(row) if was_cancelled else []
    return _Due(
        text=_fixed(is_spoken=is_spoken, was_cancelled=was_cancelled, left=left, agents=agents),
        said=row.said,
        agent=row.turn.agent,
        is_spoken=is_spoken,
        is_plain=was_cancelled and not left,
    )


def _has_others_open(row: Acknowledgement) -> bool:
    """Whether other detached turns that the same word means have not ended yet."""
    meant = row.request.turn
    if meant.conversation_id == row.turn.conversation_id:
        return False
    others = CancelRequest.objects.filter(
        turn__parent__conversation=row.turn.conversation_id,
        turn__is_detached=True,
        tool_id="",
        settled_at=None,
        reason__in=BY_PEOPLE,
    )
    return others.exists()


def _agents_ended(row: Acknowledgement) -> list[str]:
    """Return the agents of the detached turns that the word has ended; none where it meant the turn at work."""
    meant = row.request.turn
    if meant.conversation_id == row.turn.conversation_id:
        return []
    ended = Turn.objects.filter(
        parent__conversation=row.turn.conversation_id,
        is_detached=True,
        status=TurnStatus.CANCELLED,
        cancel_requests__requested_at__gte=row.request.requested_at,
        cancel_requests__tool_id="",
        cancel_requests__reason__in=BY_PEOPLE,
    )
    return list(ended.order_by("queued_at", "pk").values_list("agent", flat=True))


def _fixed(*, is_spoken: bool, was_cancelled: bool, left: list[str], agents: list[str]) -> str:
    """The answer that needs no chat model. A spoken one holds no cancel word: a microphone may hear it."""
    if left and is_spoken:
        return _MAY_GO_ON
    if left:
        return _CANCELLED_BUT % {"tools": ", ".join(left)}
    if is_spoken:
        return _OKAY
    if agents:
        return _CANCELLED_BEHIND % {"agents": ", ".join(agents)}
    return _CANCELLED if was_cancelled else _ENDED


@run_in_db_thread
def _store(pk: int, text: str) -> log.Batch | None:
    """Give the answer, unless somebody else has."""
    with atomic():
        row = Acknowledgement.objects.select_related("turn").get(pk=pk)
        conversation = log.locked(row.turn.conversation_id)
        at = database_now()
        text = sanitize_text(text, limit=TEXT_LENGTH)
        if not Acknowledgement.objects.filter(pk=pk, at=None).update(text=text, at=at):
            return None
        row.text, row.at = text, at
        event = CancelAcknowledged(**_payload(row))
        return conversation.pk, log.append(conversation, row.turn_id, event)


def _payload(row: Acknowledgement) -> AnsweredCancelWord:
    return {"text": row.text, "said": row.said, "source": row.source}
