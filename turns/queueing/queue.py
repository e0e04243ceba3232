"""The queue of one conversation. A turn is put in for each message, and claimed or cancelled out of it (sync ORM).

A change of status is a compare-and-set. Which conversation is next is for `scheduling` to say.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID, uuid4

from django.db import IntegrityError
from django.db.models import (
    Count,
    DateTimeField,
    Exists,
    F,
    OuterRef,
    QuerySet,
    Subquery,
    UUIDField,
)
from django.db.models.functions import Coalesce, Now
from django.utils.translation import gettext as _

from governance import CancelSource, ScopeKind, checkpoint, traceparent
from governance.prepared_statements import Insert, Select, Update, fields_of
from governance.rows import NewRow
from governance.sanitize import sanitize_line
from governance.transactions import atomic
from turns.agents.lookup import AgentConfig, read_config, terms_of
from turns.attachments import rows as attached_files
from turns.conf import app_settings
from turns.core.events import TurnQueued, TurnStart
from turns.core.ports import ClaimedTurn
from turns.core.turns import LIVE_STATUSES, TurnStatus
from turns.core.wire import AttachmentContent
from turns.events import log
from turns.exceptions import (
    ConversationNotFound,
    ConversationParked,
    MessageRejected,
    QueueIsFull,
)
from turns.history import messages
from turns.history.prompts import read_prompt_quickly
from turns.history.reports import are_due, take
from turns.models import Agent, Conversation, Message, Process, Turn
from turns.queueing import message_edits
from turns.queueing.dispatchers import get_dispatcher
from turns.queueing.rate_limit import count_message
from turns.queueing.turn_tree import token_limit
from turns.storage.access import User, conversation_for

TITLE_LENGTH = 60
REPORT_SOURCE = "sub_agent"  # the source of a turn that carries reports

Claimed = tuple[ClaimedTurn, list[log.WireEvent]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Enqueued:
    """A turn that waits to be claimed; `is_new` is False where the same client id came again.

    `claimed`: nothing else waited, so it runs at once.
    """

    turn: Turn
    is_new: bool
    events: list[log.WireEvent]
    claimed: ClaimedTurn | None = None


class _State(NamedTuple):
    """What there is in the queue of a locked conversation, and around it: `is_alive` is the process that asks.

    `known` is the turn of the same message, if its client has sent it before.
    """

    waiting: int
    is_busy: bool
    others_wait: bool
    is_alive: bool
    has_reports: bool
    known: UUID | None
    now: datetime

    @property
    def is_idle(self) -> bool:
        """Whether a turn may begin without having waited: it is nobody else's turn, in no process."""
        return self.is_alive and not (self.waiting or self.is_busy or self.others_wait)


def startable() -> "QuerySet[Turn]":
    """Return the queued turns of conversations without a live one that are not parked."""
    live = Turn.objects.filter(conversation=OuterRef("conversation"), status__in=LIVE_STATUSES)
    queued = Turn.objects.filter(status=TurnStatus.QUEUED, conversation__parked_at=None)
    return queued.filter(~Exists(live)).order_by()


def _read_state(pk: Any, process_id: Any, client_id: Any) -> "QuerySet[Any, Any]":
    of_it = Turn.objects.filter(conversation=OuterRef("pk")).order_by()
    waiting = of_it.filter(status=TurnStatus.QUEUED).values("conversation")
    return (
        Conversation.objects.filter(pk=pk)
        .annotate(
            waiting=Coalesce(Subquery(waiting.annotate(count=Count("pk")).values("count")), 0),
            is_busy=Exists(of_it.filter(status__in=LIVE_STATUSES)),
            others_wait=Exists(startable().exclude(conversation=OuterRef("pk"))),
            is_alive=Exists(Process.objects.filter(pk=process_id, ended_at=None)),
            has_reports=are_due(OuterRef("pk")),
            known=Subquery(of_it.filter(client_id=client_id).values("pk")),
            now=Now(),
        )
        .order_by()
        .values_list(*_State._fields)
    )


STATE = Select(_read_state, pk=UUIDField(), process_id=UUIDField(), **fields_of(Turn, "client_id"))
FIRST = Select(
    lambda pk: Turn.objects.filter(conversation=pk, status=TurnStatus.QUEUED).order_by("number")[
        :1
    ],
    pk=UUIDField(),
)
CLAIM = Update(
    lambda pk, process_id, at: (
        Turn.objects.filter(
            Exists(Process.objects.filter(pk=process_id, ended_at=None)),
            pk=pk,
            status=TurnStatus.QUEUED,
        ),
        {
            "status": TurnStatus.RUNNING.value,
            "owner": process_id,
            "epoch": F("epoch") + 1,
            "started_at": at,
        },
    ),
    pk=UUIDField(),
    process_id=UUIDField(),
    at=DateTimeField(),
)
_TURN = Insert(Turn)
_new_turn = NewRow(Turn)


def enqueue(
    conversation_id: UUID,
    *,
    text: str,
    source: str,
    client_id: str | None,
    parent: Turn | None = None,
    writer: User | None = None,
    process: Process | None = None,
    replaces: UUID | None = None,
    attachments: Sequence[UUID] = (),
) -> Enqueued:
    """Queue a turn for a user message, under the limits that its agent has now.

    `writer` is the person whose message it is. They may write here, but not too often. None = no person has written it.
    `process` has a free slot: if nobody waits, the turn is its own at once. With `replaces`, that turn and all behind
    it leave the history. `attachments` are files of the writer.

    Raises:
        ConversationNotFound, ConversationParked, MessageRejected, AgentUnavailable, QueueIsFull, TooManyMessages,
        AttachmentNotFound, AttachmentRejected, CannotReplace, AlreadyReplaced, ConversationBusy
    """
    turn = _new_turn(id=uuid4(), user_message=text, source=source, client_id=client_id)
    turn.parent = parent
    with atomic():
        turn.conversation = conversation = _locked(conversation_id, writer)
        state = _state_of(conversation, process, client_id=client_id)
        if state.known is not None:
            return Enqueued(turn=Turn.objects.get(pk=state.known), is_new=False, events=[])
        if replaces is not None:
            turn.version += message_edits.replace(conversation, replaces, by=turn.pk).version
            state = _state_of(conversation, process)
        _check_room(conversation, waiting=state.waiting, parent=parent)
        config = read_config(conversation.agent)
        if writer is not None:
            count_message(writer.pk, now=state.now)
            turn.attachments = attached_files.claim(attachments, turn=turn, owner_id=writer.pk)
        _number(turn, config.agent, at=state.now)
        queued = _queued(turn, replaces=replaces)
        if process is not None and parent is None and state.is_idle:
            turn.owner = process
            return _begin_at_once(conversation, turn, queued, config=config, state=state)
        _TURN.one(turn)
        get_dispatcher().dispatch(conversation.pk, turn.pk)
        return Enqueued(turn=turn, is_new=True, events=log.append(conversation, turn.pk, queued))


def claim(conversation_id: UUID, *, process: Process, waits: bool = True) -> Claimed | None:
    """Make the oldest queued turn of an idle conversation running and owned by `process`; None if there is none.

    Two processes may try at once: the unique index on the live turn of a conversation lets one through. Without `waits`
    a conversation that somebody is writing is left alone.
    """
    try:
        with atomic():
            conversation = log.locked(conversation_id, waits=waits)
            state = _state_of(conversation, process)
            turn = FIRST.first(pk=conversation.pk)
            if turn is None or state.is_busy or conversation.parked_at is not None:
                return None
            if not CLAIM.run(pk=turn.pk, process_id=process.pk, at=state.now):
                return None  # this process has lost its lease
            turn.epoch += 1
            started, _message = _begin(conversation, turn, state)
            events = log.append(conversation, turn.pk, started, at=state.now)
            return _claimed(turn), events
    except (IntegrityError, ConversationNotFound):
        return None


def _locked(conversation_id: UUID, writer: User | None) -> Conversation:
    if writer is None:
        return log.locked(conversation_id)
    return conversation_for(writer, conversation_id, locks=True)


def _number(turn: Turn, agent: Agent, *, at: datetime) -> None:
    """Add a turn to its locked conversation, under the terms of its agent and in the trace of its request."""
    conversation = turn.conversation
    conversation.last_number += 1
    conversation.title = conversation.title or _title(turn.user_message, turn.attachments)
    turn.number = conversation.last_number
    turn.queued_at = turn.dispatched_at = at
    turn.traceparent = traceparent()
    for name, value in terms_of(agent).items():
        setattr(turn, name, value)


def _queued(turn: Turn, *, replaces: UUID | None) -> TurnQueued:
    return TurnQueued(
        user_message=turn.user_message,
        client_id=turn.client_id,
        source=turn.source,
        replaces=None if replaces is None else str(replaces),
        version=turn.version,
        attachments=turn.attachments or None,
    )


def _state_of(
    conversation: Conversation, process: Process | None, *, client_id: str | None = None
) -> _State:
    process_id = process and process.pk
    # No client calls a message "". None would ask for those without an id.
    read = STATE.first(pk=conversation.pk, process_id=process_id, client_id=client_id or "")
    if read is None:
        raise ConversationNotFound
    return _State(*read)


def _begin_at_once(
    conversation: Conversation,
    turn: Turn,
    queued: TurnQueued,
    *,
    config: AgentConfig,
    state: _State,
) -> Enqueued:
    """Store a turn that nobody else comes before as one that runs, and read what it begins with."""
    checkpoint("before_claim")
    turn.status, turn.epoch, turn.started_at = TurnStatus.RUNNING.value, 1, state.now
    _TURN.one(turn)
    started, message = _begin(conversation, turn, state)
    events = log.append(conversation, turn.pk, queued, started, at=state.now)
    claimed = _claimed(
        turn,
        is_new=True,
        # A message that replaces another one has changed what is known of the history.
        prompt=None if queued.replaces else read_prompt_quickly(conversation, message),
        agent_config=config,
    )
    return Enqueued(turn=turn, is_new=True, events=events, claimed=claimed)


def _check_room(conversation: Conversation, *, waiting: int, parent: Turn | None) -> None:
    """Raise unless another turn may wait here; `parent` is the turn that it would work for."""
    if conversation.deleted_at is not None:
        raise ConversationNotFound
    if conversation.parked_at is not None:
        raise ConversationParked
    if conversation.parent_id is not None and parent is None:
        raise MessageRejected(
            _("A sub-agent works here. Write to the conversation that it works for.")
        )
    if waiting >= app_settings.MAX_QUEUED:
        raise QueueIsFull


def _begin(conversation: Conversation, turn: Turn, state: _State) -> tuple[TurnStart, Message]:
    """Add the message of a claimed turn, with the reports that are due."""
    at = state.now
    reports = take(conversation, at=at) if state.has_reports else []
    said = [{"type": "text", "text": turn.user_message}] if turn.user_message.strip() else []
    is_report_turn = bool(reports) and turn.source == REPORT_SOURCE
    content = reports if is_report_turn else [*reports, *turn.attachments, *said]
    message = messages.add(conversation, turn, role="user", content=content, at=at)
    checkpoint("in_claim")
    started = TurnStart(
        user_message=turn.user_message,
        client_id=turn.client_id,
        agent=turn.agent,
        parent_turn_id=str(turn.parent_id) if turn.parent_id else None,
        turn_timeout_ms=turn.turn_timeout_ms,
        source=turn.source,
        reports=[block["sub_agent"] for block in reports],
        attachments=turn.attachments or None,
    )
    return started, message


def _claimed(turn: Turn, **read: Any) -> ClaimedTurn:
    """Return a turn as its owner has it, with what was `read` for it at once."""
    return ClaimedTurn(
        id=turn.pk,
        conversation_id=turn.conversation_id,
        epoch=turn.epoch,
        agent=turn.agent,
        user_message=turn.user_message,
        turn_timeout=None if turn.turn_timeout_ms is None else turn.turn_timeout_ms / 1000,
        step_limit=turn.step_limit,
        token_limit=turn.token_limit,
        family_token_limit=token_limit(turn),
        parent_id=turn.parent_id,
        kind=_kind_of(turn),
        traceparent=turn.traceparent,
        **read,
    )


def _kind_of(turn: Turn) -> ScopeKind:
    if turn.parent_id is not None:
        return ScopeKind.SUB_AGENT
    return ScopeKind.VOICE if turn.source == CancelSource.VOICE else ScopeKind.TEXT_REPLY


def _title(text: str, files: Sequence[AttachmentContent]) -> str:
    line = sanitize_line(text) or ", ".join(file["name"] for file in files)
    return line if len(line) <= TITLE_LENGTH else f"{line[: TITLE_LENGTH - 1].rstrip()}…"
