"""The queue: each message enqueues a turn in its conversation, which is later claimed or cancelled.

Status changes are compare-and-set. `claim_next` decides across all processes which turn starts when a slot is free. The
user with the fewest active turns is next, then the one who has waited longest. A user with fifty conversations
therefore does not delay another user's single one. Only queued and running turns are read, never the history. The
functions use the synchronous ORM.
"""

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import DatabaseError, IntegrityError, InterfaceError, OperationalError
from django.db.models import Exists, F, Min, OuterRef, Q, QuerySet
from django.utils.translation import gettext as _

from governance import (
    CallStatus,
    CancelSource,
    ScopeKind,
    approval_store,
    checkpoint,
    registry,
    selectors,
    traceparent,
)
from governance.db import atomic
from governance.sanitize import sanitize_line
from turns.agents.lookup import find_agent, terms_of
from turns.attachments import rows as attached_files
from turns.conf import app_settings
from turns.core.events import TurnQueued, TurnStart
from turns.core.ports import ClaimedTurn
from turns.core.prompt_changes import PromptChange
from turns.core.turns import ACTIVE_STATUSES, LIVE_STATUSES, SAID_BY_PEOPLE, TurnStatus, only_waits
from turns.core.wire import AttachmentContent
from turns.events import log
from turns.exceptions import (
    AlreadyReplaced,
    CannotContinue,
    CannotReplace,
    ConversationBusy,
    ConversationNotFound,
    ConversationParked,
    MessageRejected,
    QueueIsFull,
    TooManyMessages,
)
from turns.history import messages
from turns.history.reports import give_back, take
from turns.models import Agent, Conversation, MessageTally, Process, Turn
from turns.queueing.dispatchers import get_dispatcher
from turns.queueing.turn_tree import token_limit, tree_of
from turns.storage import history_version
from turns.storage.access import User, conversation_for, turn_for
from turns.storage.turn_rows import REPORTS_WAIT

logger = logging.getLogger(__name__)

TITLE_LENGTH = 60
REPORT_SOURCE = "sub_agent"  # the source of a turn that delivers reports
CONTINUE_SOURCE = "continue"

_HAS_LIVE_TURN = Exists(
    Turn.objects.filter(conversation=OuterRef("conversation"), status__in=LIVE_STATUSES)
)

Claimed = tuple[ClaimedTurn, list[log.WireEvent]]
WINDOW = 60  # seconds
CANDIDATES = 20  # maximum number tried per claim, because other processes may claim the first ones


def replace(conversation: Conversation, turn_id: UUID, *, by: UUID) -> Turn:
    """Replace a turn of a locked conversation and all later ones by the turn with the id `by`. Return the first
    replaced turn.

    Approvals that people gave for the whole conversation since that turn expire.

    Raises:
        CannotReplace: the message was not sent by a person, or is in another conversation.
        AlreadyReplaced: another message has replaced it.
        ConversationBusy: a turn of this conversation or of its sub-agents is active.
    """
    first = _replaceable(conversation, turn_id)
    replaced = Turn.objects.filter(conversation=conversation, number__gte=first.number)
    replaced.filter(replaced_by=None).update(replaced_by=by)
    give_back(Turn.objects.filter(replaced_by=by))
    scopes = [str(pk) for pk in tree_of(conversation.pk)]
    approval_store.revoke_remembered(scopes=scopes, since=first.queued_at)
    history_version.renew([conversation.pk], PromptChange.EDIT)
    return first


def _replaceable(conversation: Conversation, turn_id: UUID) -> Turn:
    turn = Turn.objects.filter(conversation=conversation, pk=turn_id).first()
    if turn is None or turn.source not in SAID_BY_PEOPLE or turn.parent_id is not None:
        raise CannotReplace
    if turn.replaced_by_id is not None:
        raise AlreadyReplaced
    here = Q(conversation=conversation) | Q(root__conversation=conversation)
    if Turn.objects.filter(here, status__in=ACTIVE_STATUSES).exists():
        raise ConversationBusy
    return turn


@dataclass(frozen=True, slots=True, kw_only=True)
class Enqueued:
    """A queued turn; `is_new` is False if its client id was already known."""

    turn: Turn
    is_new: bool
    events: list[log.WireEvent]


def startable() -> "QuerySet[Turn]":
    """Return the queued turns of conversations that have no live turn and are not parked."""
    queued = Turn.objects.filter(status=TurnStatus.QUEUED, conversation__parked_at=None)
    return queued.filter(~_HAS_LIVE_TURN).order_by()


def enqueue(
    conversation_id: UUID,
    *,
    text: str,
    source: str,
    client_id: str | None,
    parent: Turn | None = None,
    writer: User | None = None,
    replaces: UUID | None = None,
    attachments: Sequence[UUID] = (),
) -> Enqueued:
    """Queue a turn for a message, under the current limits of its agent.

    `writer` is the person who sent the message, whose access and rate limit are checked; None means that no person sent
    it. With `replaces`, that turn and all later ones are dropped from the history. `attachments` are the ids of files
    of the writer.

    Raises: ConversationNotFound, ConversationParked, MessageRejected, AgentUnavailable, QueueIsFull, TooManyMessages,
    AttachmentNotFound, AttachmentRejected, CannotReplace, AlreadyReplaced, ConversationBusy
    """
    turn = Turn(user_message=text, source=source, client_id=client_id, parent=parent)
    with atomic():
        turn.conversation = conversation = _locked(conversation_id, writer)
        here, at = Turn.objects.filter(conversation=conversation).order_by(), conversation.read_at
        if client_id and (earlier_turn := here.filter(client_id=client_id).first()) is not None:
            return Enqueued(turn=earlier_turn, is_new=False, events=[])
        if replaces is not None:
            turn.version += replace(conversation, replaces, by=turn.pk).version
        waiting = here.filter(status=TurnStatus.QUEUED).count()
        _check_room(conversation, waiting=waiting, parent=parent)
        agent = find_agent(conversation.agent, user_id=conversation.owner_id)
        if writer is not None:
            count_message(writer.pk, now=at)
            turn.attachments = attached_files.claim(attachments, turn=turn, owner_id=writer.pk)
        _number(turn, agent, at=at)
        queued = _queued(turn, replaces=replaces)
        turn.save(force_insert=True)
        get_dispatcher().dispatch(conversation.pk, turn.pk)
        return Enqueued(turn=turn, is_new=True, events=log.append(conversation, turn.pk, queued))


def claim(conversation_id: UUID, *, process: Process, waits: bool = True) -> Claimed | None:
    """Claim the oldest queued turn of an idle conversation for `process`. Return None if there is none.

    If two processes try concurrently, the unique index on a conversation's live turn lets only one succeed. Without
    `waits`, a locked conversation is skipped.
    """
    try:
        with atomic():
            conversation = log.locked(conversation_id, waits=waits)
            at = conversation.read_at
            active = Turn.objects.filter(conversation=conversation, status__in=ACTIVE_STATUSES)
            # Sorted here, because SQLite would read the whole conversation to sort it.
            turns = sorted(
                active.annotate(reports_wait=REPORTS_WAIT).order_by(),
                key=lambda one: (one.status == TurnStatus.QUEUED, one.number),
            )
            if not turns or turns[0].status != TurnStatus.QUEUED or conversation.parked_at:
                return None
            turn = turns[0]
            turn.conversation = conversation
            is_alive = Exists(Process.objects.filter(pk=process.pk, ended_at=None))
            queued = Turn.objects.filter(is_alive, pk=turn.pk, status=TurnStatus.QUEUED)
            if not queued.update(
                status=TurnStatus.RUNNING, owner=process, epoch=F("epoch") + 1, started_at=at
            ):
                return None  # this process has lost its lease
            turn.epoch += 1
            reports = take(conversation, at=at) if turn.reports_wait else []
            started = _begin(turn, reports, at=at)
            events = log.append(conversation, turn.pk, started, at=at)
            return _claimed(turn), events
    except (IntegrityError, ConversationNotFound):
        return None


def claim_next(*, process: Process) -> Claimed | None:
    """Claim the next turn for `process`. Return None if no turn can start now.

    A conversation that another process has locked is skipped, unless no other conversation has a queued turn. A process
    that hangs in the middle of a write must not block all other turns.
    """
    candidates = waiting_conversations(limit=CANDIDATES)
    for conversation_id in candidates:
        claimed = _claim_in(conversation_id, process=process, waits=False)
        if claimed is not None:
            return claimed
    for conversation_id in candidates:
        try:
            with atomic(), log.short_lock_wait():
                claimed = _claim_in(conversation_id, process=process)
        except DatabaseError:  # still locked: the next poll tries again
            return None
        if claimed is not None:
            return claimed
    return None


def waiting_conversations(*, limit: int = 100) -> list[UUID]:
    """Return idle conversations with a queued turn, in scheduling order.

    The place of each conversation assumes that all conversations before it have started.
    """
    oldest_first = (
        startable()
        .values_list("conversation", "conversation__owner")
        .annotate(since=Min("queued_at"))
        .order_by("since", "conversation")
    )
    waiting = list(oldest_first)
    turns = _at_work() if len(waiting) > 1 else Counter()  # a single conversation needs no order
    places: list[tuple[int, UUID]] = []
    for conversation_id, owner_id, _since in waiting:
        turns[owner_id] += 1
        places.append((turns[owner_id], conversation_id))
    places.sort(key=lambda place: place[0])  # stable: among equals, the oldest comes first
    return [conversation_id for _place, conversation_id in places[:limit]]


def _claim_in(conversation_id: UUID, *, process: Process, waits: bool = True) -> Claimed | None:
    """Claim a turn in one conversation. Log errors, because one conversation must not block all others."""
    try:
        return claim(conversation_id, process=process, waits=waits)
    except (OperationalError, InterfaceError):  # affects all conversations, not only this one
        raise
    except Exception:
        logger.exception(
            "A turn could not be claimed", extra={"conversation_id": str(conversation_id)}
        )
        return None


def _at_work() -> Counter[object]:
    """Count the active turns per user, without those that wait for a person or for a sub-agent."""
    live = Turn.objects.filter(status__in=LIVE_STATUSES).order_by()
    owners = dict(live.values_list("pk", "conversation__owner"))
    calls = selectors.open_calls_of_groups(map(str, owners))
    at_work: Counter[object] = Counter()
    for turn_id, owner_id in owners.items():
        going_on = calls.get(str(turn_id), ())
        at_work[owner_id] += not only_waits(
            (CallStatus(call.status), _only_waits(call.tool_name)) for call in going_on
        )
    return at_work


def _only_waits(tool_name: str) -> bool:
    return tool_name in registry and registry.get(tool_name).only_waits


def _locked(conversation_id: UUID, writer: User | None) -> Conversation:
    if writer is None:
        return log.locked(conversation_id)
    return conversation_for(writer, conversation_id, locks=True)


def _number(turn: Turn, agent: Agent, *, at: datetime) -> None:
    """Assign the next number to a turn in its locked conversation, and its agent's limits and the trace of
    its request.
    """
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


def _check_room(conversation: Conversation, *, waiting: int, parent: Turn | None) -> None:
    """Raise unless another turn may be queued here; `parent` is the turn that would wait for its report."""
    if conversation.deleted_at is not None:
        raise ConversationNotFound
    if conversation.parked_at is not None:
        raise ConversationParked
    if conversation.parent_id is not None and parent is None:
        raise MessageRejected(
            _("This conversation belongs to a sub-agent. Write to the main conversation instead.")
        )
    if waiting >= app_settings.MAX_QUEUED:
        raise QueueIsFull


def _begin(turn: Turn, reports: list[dict[str, Any]], *, at: datetime) -> TurnStart:
    """Store the message of a claimed turn, with the reports delivered to it. Return the event of the turn's start."""
    blocks = [{"type": "text", "text": turn.user_message}] if turn.user_message.strip() else []
    is_report_turn = bool(reports) and turn.source == REPORT_SOURCE
    content = reports if is_report_turn else [*reports, *turn.attachments, *blocks]
    messages.add(turn.conversation, turn, role="user", content=content, at=at)
    checkpoint("in_claim")
    return TurnStart(
        user_message=turn.user_message,
        client_id=turn.client_id,
        agent=turn.agent,
        parent_turn_id=str(turn.parent_id) if turn.parent_id else None,
        turn_timeout_ms=turn.turn_timeout_ms,
        source=turn.source,
        reports=[block["sub_agent"] for block in reports],
        attachments=turn.attachments or None,
    )


def _claimed(turn: Turn) -> ClaimedTurn:
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
        user_id=turn.conversation.owner_id,
        kind=_kind_of(turn),
        traceparent=turn.traceparent,
    )


def _kind_of(turn: Turn) -> ScopeKind:
    if turn.parent_id is not None:
        return ScopeKind.SUB_AGENT
    return ScopeKind.VOICE if turn.source == CancelSource.VOICE else ScopeKind.TEXT_REPLY


def _title(text: str, files: Sequence[AttachmentContent]) -> str:
    line = sanitize_line(text) or ", ".join(file["name"] for file in files)
    return line if len(line) <= TITLE_LENGTH else f"{line[: TITLE_LENGTH - 1].rstrip()}…"


def count_message(user_id: Any, *, now: datetime) -> None:
    """Count a message in its transaction, and lock the user's row until the transaction ends.

    `now` is the database's time. Refused messages are not counted, so waiting always helps.

    Raises: TooManyMessages: too many messages within the last minute.
    """
    tally, _is_new = MessageTally.objects.select_for_update().get_or_create(user_id=user_id)
    second = int(now.timestamp())
    recent = {at: count for at, count in tally.times if at > second - WINDOW}
    if sum(recent.values()) >= app_settings.MAX_MESSAGES_PER_MINUTE:
        raise TooManyMessages
    recent[second] = recent.get(second, 0) + 1
    tally.times = list(recent.items())
    tally.save(update_fields=["times"])


def continue_turn(turn_id: UUID, user: User) -> Enqueued:
    """Queue a turn that continues an interrupted one at a person's request (H4). A repeated request returns the same
    turn.

    Nothing is repeated automatically, because chat models and tools have side effects.

    Raises:
        TurnNotFound: the turn does not exist or belongs to another user.
        CannotContinue: it was not interrupted, or the conversation has continued since.
        ConversationParked, TooManyMessages, QueueIsFull, AgentUnavailable, NotAllowed
    """
    turn = turn_for(user, turn_id)
    client_id = f"{CONTINUE_SOURCE}:{turn.pk}"
    with atomic():
        conversation = log.locked(turn.conversation_id)
        turn.refresh_from_db(fields=["status"])
        is_known = conversation.turns.filter(client_id=client_id).exists()
        is_last = turn.number == conversation.last_number
        if not is_known and not (turn.status == TurnStatus.INTERRUPTED and is_last):
            raise CannotContinue
        return enqueue(
            conversation.pk,
            text=_("Please continue where you were interrupted."),
            source=CONTINUE_SOURCE,
            client_id=client_id,
            writer=user,
        )
