"""The queue of one conversation: a turn is put in for each message, and claimed or cancelled out of it (sync ORM).

A change of status is a compare-and-set. Which conversation is next is for `scheduling` to say.
"""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db import IntegrityError, transaction
from django.db.models import Exists, F
from django.db.models.functions import Now
from django.utils.translation import gettext as _

from governance import CancelSource, ScopeKind, checkpoint
from governance.db_clock import database_now
from governance.durations import limit_ms
from turns.agents.lookup import find_agent
from turns.conf import app_settings
from turns.core.events import TurnQueued, TurnStart
from turns.core.ports import ClaimedTurn
from turns.core.turns import LIVE_STATUSES, TurnStatus
from turns.events import log
from turns.exceptions import ConversationParked, MessageRejected, QueueIsFull
from turns.history import messages
from turns.history.reports import take
from turns.models import Agent, Conversation, Process, Turn
from turns.queueing.dispatchers import get_dispatcher
from turns.queueing.rate_limit import count_message
from turns.queueing.turn_tree import token_limit

TITLE_LENGTH = 60
REPORT_SOURCE = "sub_agent"  # the source of a turn that carries reports

Claimed = tuple[ClaimedTurn, list[log.WireEvent]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Enqueued:
    """A turn that waits to be claimed; `is_new` is False where the same client id came again."""

    turn: Turn
    is_new: bool
    events: list[log.WireEvent]


def enqueue(
    conversation_id: UUID,
    *,
    text: str,
    source: str,
    client_id: str | None,
    parent: Turn | None = None,
    writer_id: Any = None,
) -> Enqueued:
    """Queue a turn for a user message, under the limits that its agent has now.

    `writer_id` is the person whose message it is, and who may not send too many; None = no person has written it.

    Raises:
        QueueIsFull: too many turns wait already (P4).
        TooManyMessages: the writer has sent too many within a minute (P4).
        ConversationParked: a person has to let it go on first.
        MessageRejected: a sub-agent works there, for another turn.
        AgentUnavailable: the conversation's agent was deleted or switched off.
    """
    with transaction.atomic():
        conversation = log.locked(conversation_id)
        if (known := _sent_before(conversation, client_id)) is not None:
            return Enqueued(turn=known, is_new=False, events=[])
        _check_room(conversation, parent=parent)
        agent = find_agent(conversation.agent)
        if writer_id is not None:
            count_message(writer_id)
        conversation.last_number += 1
        conversation.title = conversation.title or _title(text)
        conversation.save(update_fields=["last_number", "title"])
        turn = Turn.objects.create(
            conversation=conversation,
            number=conversation.last_number,
            parent=parent,
            user_message=text,
            source=source,
            client_id=client_id,
            queued_at=database_now(),
            dispatched_at=Now(),
            **_terms_of(agent),
        )
        get_dispatcher().dispatch(conversation.pk, turn.pk)
        queued = TurnQueued(user_message=text, client_id=client_id, source=source)
        return Enqueued(turn=turn, is_new=True, events=log.append(conversation, turn.pk, queued))


def claim(conversation_id: UUID, *, process: Process, waits: bool = True) -> Claimed | None:
    """Make the oldest queued turn of an idle conversation running and owned by `process`; None if there is none.

    Two processes may try at once: the unique index on the live turn of a conversation lets one through. Without `waits`
    a conversation that somebody is writing is left alone.
    """
    try:
        with transaction.atomic():
            conversation = log.locked(conversation_id, waits=waits)
            is_busy = conversation.turns.filter(status__in=LIVE_STATUSES).exists()
            if is_busy or conversation.parked_at is not None:
                return None
            turn = conversation.turns.filter(status=TurnStatus.QUEUED).order_by("number").first()
            if turn is None:
                return None
            return _begin(conversation, turn, process=process)
    except (IntegrityError, Conversation.DoesNotExist):
        return None


def _sent_before(conversation: Conversation, client_id: str | None) -> Turn | None:
    """The turn of the same message, if its client has sent it before."""
    if client_id is None:
        return None
    return Turn.objects.filter(conversation=conversation, client_id=client_id).first()


def _check_room(conversation: Conversation, *, parent: Turn | None) -> None:
    """Raise unless another turn may wait here; `parent` is the turn that it would work for."""
    if conversation.parked_at is not None:
        raise ConversationParked
    if conversation.parent_id is not None and parent is None:
        raise MessageRejected(
            _("A sub-agent works here. Write to the conversation that it works for.")
        )
    waiting = Turn.objects.filter(conversation=conversation, status=TurnStatus.QUEUED).count()
    if waiting >= app_settings.MAX_QUEUED:
        raise QueueIsFull


def _terms_of(agent: Agent) -> dict[str, Any]:
    """The fields of a turn that its agent decides, as it is now."""
    return {
        "agent": agent.name,
        "turn_timeout_ms": _turn_timeout_ms(agent),
        "step_limit": agent.step_limit or app_settings.STEP_LIMIT,
        "token_limit": agent.token_limit,
    }


def _begin(conversation: Conversation, turn: Turn, *, process: Process) -> Claimed:
    at = database_now()
    is_alive = Exists(Process.objects.filter(pk=process.pk, ended_at=None))
    queued = Turn.objects.filter(is_alive, pk=turn.pk, status=TurnStatus.QUEUED)
    changed = queued.update(
        status=TurnStatus.RUNNING, owner=process, epoch=F("epoch") + 1, started_at=at
    )
    if not changed:
        raise IntegrityError("the turn was taken meanwhile, or this process has lost its lease")
    reports = take(conversation, at=at)
    said = {"type": "text", "text": turn.user_message}
    is_carrier = bool(reports) and turn.source == REPORT_SOURCE
    content = reports if is_carrier else [*reports, said]
    messages.add(conversation, turn, role="user", content=content, at=at)
    claimed = ClaimedTurn(
        id=turn.pk,
        conversation_id=turn.conversation_id,
        epoch=turn.epoch + 1,
        agent=turn.agent,
        user_message=turn.user_message,
        turn_timeout=None if turn.turn_timeout_ms is None else turn.turn_timeout_ms / 1000,
        step_limit=turn.step_limit,
        token_limit=turn.token_limit,
        family_token_limit=token_limit(turn),
        parent_id=turn.parent_id,
        kind=_kind_of(turn),
    )
    checkpoint("in_claim")
    started = TurnStart(
        user_message=turn.user_message,
        client_id=turn.client_id,
        agent=turn.agent,
        parent_turn_id=str(turn.parent_id) if turn.parent_id else None,
        turn_timeout_ms=turn.turn_timeout_ms,
        source=turn.source,
        reports=[block["sub_agent"] for block in reports],
    )
    return claimed, log.append(conversation, turn.pk, started, at=at)


def _kind_of(turn: Turn) -> ScopeKind:
    if turn.parent_id is not None:
        return ScopeKind.SUB_AGENT
    return ScopeKind.VOICE if turn.source == CancelSource.VOICE else ScopeKind.TEXT_REPLY


def _turn_timeout_ms(agent: Agent) -> int | None:
    """The agent's limit, else the project's; None = no limit, which both may write as 0."""
    if agent.turn_timeout_ms is not None:
        return agent.turn_timeout_ms or None
    return limit_ms(app_settings.TURN_TIMEOUT) or None


def _title(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= TITLE_LENGTH else f"{line[: TITLE_LENGTH - 1].rstrip()}…"
