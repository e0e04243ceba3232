"""Read access for clients: lists, snapshots, events, histories, exports. Permissions are checked for each user."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Exists, OuterRef, Q, QuerySet

from governance import CallStatus, db_clock
from governance import selectors as governance_selectors
from governance.db import read_snapshot, run_in_pool_thread, run_in_query_thread
from governance.sanitize import sanitize_text
from turns.agents.lookup import (
    AgentSummary,
    Starters,
    default_name,
    find_agent,
    starters_of,
    usable_agents,
)
from turns.calls import serializers
from turns.cancelling.cancel_requests import ENDS_AFTER_STEP
from turns.conf import app_settings
from turns.core import wire
from turns.core.turns import ACTIVE_STATUSES, TurnStatus
from turns.events import log
from turns.exceptions import ToolCallNotEnded, ToolCallNotFound
from turns.history import histories
from turns.models import Conversation, Event, Message, Repair, Turn
from turns.processes import process_registry
from turns.selectors import conversation_status, turn_serializers
from turns.storage.access import User, conversation_for, reload, sees_all, turn_for

LIST_LENGTH = 200
SEARCH_LENGTH = 200
EVENTS_LENGTH = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationSummary:
    """A conversation in a list; `agent` is the name of the agent that answers now, by default the default agent.

    `standing` is its state, empty if nothing is waiting or running. `asked` is the number of open questions, and
    `tools_running` is the number of running calls. `is_queued` is true if none of its active turns has started.
    `last_seq` is the number of its last event. `parent_id` is the conversation for which a sub-agent's conversation
    works.
    """

    id: UUID
    title: str
    agent: str
    updated_at: datetime
    is_active: bool = False
    is_pinned: bool = False
    standing: str = ""
    asked: int = 0
    tools_running: int = 0
    is_queued: bool = False
    last_seq: int = 0
    parent_id: UUID | None = None
    parent_title: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeResult:
    """The full stored result of a call."""

    tool_name: str
    text: str


@run_in_query_thread
def list_agents(*, user: User) -> list[AgentSummary]:
    """Return the agents that the user may choose, the default first."""
    return usable_agents(user_id=reload(user).pk)


@run_in_query_thread
def list_conversations(
    *, user: User, search: str = "", agent: str = "", offset: int = 0, limit: int = LIST_LENGTH
) -> list[ConversationSummary]:
    """Return the user's conversations, pinned ones first, then the latest, without those of sub-agents.

    `search` is a part of the title; `agent` is the agent that answers in them now.
    """
    owner_id = reload(user).pk
    active = Turn.objects.filter(conversation=OuterRef("pk"), status__in=ACTIVE_STATUSES)
    rows = Conversation.objects.filter(owner_id=owner_id, parent=None, deleted_at=None).annotate(
        is_active=Exists(active)
    )
    if term := sanitize_text(search.strip(), limit=SEARCH_LENGTH):
        rows = rows.filter(title__icontains=term)
    default = default_name(user_id=owner_id)
    if agent := sanitize_text(agent):
        rows = rows.filter(agent__in=[agent, ""] if agent == default else [agent])
    marks = conversation_status.read(owners={owner_id}).marks[owner_id]
    page = _page(rows, offset=offset, limit=limit)
    return [_summary(row, default=default, mark=marks.get(row.pk)) for row in page]


def _page(rows: QuerySet[Conversation], *, offset: int, limit: int) -> list[Conversation]:
    """Return one page of the list. Pinned conversations are read separately, because no index covers both orders."""
    pinned = rows.filter(pinned_at__isnull=False).order_by("-pinned_at", "-updated_at", "-pk")
    first = list(pinned[: offset + limit])
    page = first[offset:]
    skipped = max(offset - len(first), 0)
    others = rows.filter(pinned_at=None).order_by("-updated_at", "-pk")
    return page + list(others[skipped : skipped + limit - len(page)])


@run_in_query_thread
def get_conversation(*, conversation_id: UUID, user: User) -> ConversationSummary:
    """Return one conversation. Raise `ConversationNotFound`."""
    row = conversation_for(user, conversation_id, permission="turns.view_all")
    summary = _summary(row, default=default_name(user_id=row.owner_id))
    if row.parent is None:
        return summary
    return replace(summary, parent_id=row.parent.pk, parent_title=row.parent.title)


@run_in_query_thread
def unbegun_conversation(*, conversation_id: UUID, agent: str, user: User) -> ConversationSummary:
    """Return a summary of the conversation that the first message will create. Raise `AgentUnavailable`."""
    user_id = reload(user).pk
    agent_name = find_agent(sanitize_text(agent.strip(), limit=64), user_id=user_id).name
    return ConversationSummary(
        id=conversation_id, title="", agent=agent_name, updated_at=db_clock.now()
    )


@run_in_query_thread
def starters(*, agent: str, user: User) -> Starters:
    """Return the content of the page that an agent shows before the first message."""
    return starters_of(agent, user_id=reload(user).pk)


@run_in_query_thread
def active_turns(*, user: User) -> list[wire.ActiveTurn]:
    """Return the active turns, with the state of their tools (V5)."""
    turns = Turn.objects.filter(status__in=ACTIVE_STATUSES).select_related("owner")
    if not sees_all(user):
        # Not a join, because SQLite would start with all messages of the user.
        own = Conversation.objects.filter(
            pk=OuterRef("conversation"), owner_id=user.pk, deleted_at=None
        )
        turns = turns.filter(Exists(own))
    rows = list(turns.order_by("queued_at")[:LIST_LENGTH])
    at = db_clock.now()
    running = serializers.DescribedCalls((row.pk for row in rows), at=at)
    return [turn_serializers.active_turn(row, running.of(row.pk), at=at) for row in rows]


@run_in_query_thread
def get_turn(*, turn_id: UUID, user: User) -> wire.TurnWithCalls:
    """Return one turn with its calls. Raise `TurnNotFound`."""
    turn = turn_for(user, turn_id, permission="turns.view_all")
    at = db_clock.now()
    described = serializers.DescribedCalls([turn.pk], at=at).of(turn.pk)
    return {
        **turn_serializers.active_turn(turn, described, at=at),
        **turn_serializers.ended_turns([turn])[0],
        "user_message": turn.user_message,
        "calls": described,
    }


@run_in_query_thread
def tool_result(*, turn_id: UUID, tool_id: str, user: User) -> WholeResult:
    """Return the whole result of a call that has ended.

    Raises: TurnNotFound, ToolCallNotFound, ToolCallNotEnded
    """
    turn = turn_for(user, turn_id, permission="turns.view_all")
    if not governance_selectors.has_call(str(turn.pk), tool_id):
        raise ToolCallNotFound
    row = governance_selectors.call(str(turn.pk), tool_id)
    if not CallStatus(row.status).is_terminal:
        raise ToolCallNotEnded
    return WholeResult(tool_name=row.tool_name, text=row.result)


@run_in_query_thread
def turn_events(*, turn_id: UUID, user: User, after: int) -> tuple[list[log.WireEvent], int]:
    """Return a turn's events after `after`, and the value of `after` for the next request, because reading a long turn
    takes several requests.
    """
    turn = turn_for(user, turn_id, permission="turns.view_all")
    events = log.read_turn(turn.pk, after=after, limit=EVENTS_LENGTH)
    has_more = len(events) == EVENTS_LENGTH
    return events, events[-1]["seq"] if has_more else turn.conversation.last_seq


@run_in_query_thread
def conversation_events(
    *, conversation_id: UUID, after: int, limit: int = 1000
) -> list[log.WireEvent]:
    """Return a conversation's events with numbers above `after`. The caller must have checked permissions."""
    return log.read(conversation_id, after=after, limit=limit)


@run_in_query_thread
def last_seq(*, conversation_id: UUID) -> int:
    """Return the number of a conversation's last event. Raise `ConversationNotFound`."""
    return log.last_seq(conversation_id)


@run_in_query_thread
def reaches_back(*, conversation_id: UUID, after: int) -> bool:
    """Return whether the log contains every event after `after`, and `after` is a valid number."""
    last = log.last_seq(conversation_id)
    if after >= last:
        return after == last
    return Event.objects.filter(conversation_id=conversation_id, seq=after + 1).exists()


@run_in_query_thread
def active_turn_ids(*, conversation_id: UUID) -> list[str]:
    """Return the ids of the active turns of a conversation."""
    return _active_turn_ids(conversation_id)


@run_in_query_thread
def pulse(*, conversation_id: UUID, user: User) -> tuple[int, list[str]]:
    """Return the last event's number and the ids of active turns; raise `ConversationNotFound`.

    The turns are read first. If the client already knows the last event, nothing has changed since, so that both
    values are consistent.
    """
    ids = _active_turn_ids(conversation_id)
    row = conversation_for(user, conversation_id, permission="turns.view_all")
    return row.last_seq, ids


@run_in_query_thread
def partial_text(*, turn_id: UUID, user: User) -> tuple[str, int]:
    """Return the stored text of a turn's unfinished message, and its step; step 0 if there is none."""
    turn = turn_for(user, turn_id, permission="turns.view_all")
    message = Message.objects.filter(turn=turn, is_streaming=True).first()
    return (turn_serializers.text_of(message.content), message.step) if message else ("", 0)


@run_in_query_thread
def snapshot(*, conversation_id: UUID, user: User, before: int | None = None) -> wire.Snapshot:
    """Return everything that a page needs to show a conversation; with `before`, only messages before that position."""
    conversation_for(user, conversation_id, permission="turns.view_all")
    with read_snapshot():  # so that no event is both in the snapshot and sent after it
        return _snapshot(log.locked(conversation_id), before=before)


@run_in_pool_thread
def history(*, conversation_id: UUID, user: User) -> wire.History:
    """Return the history as a model would read it, which is always valid (H1), and all repairs made so far."""
    conversation = conversation_for(user, conversation_id, permission="turns.view_all")
    loaded = histories.load(conversation.pk, found_when="history_read")
    repairs = Repair.objects.filter(conversation=conversation).order_by("at", "pk")
    return {
        "messages": [
            {"role": message.role, "content": [block.to_json() for block in message.content]}
            for message in loaded.messages
        ],
        "repairs": [
            {
                "tool_id": repair.tool_id,
                "turn_id": str(repair.turn_id) if repair.turn_id else None,
                "kind": repair.kind,
                "cause": repair.cause,
                "at": repair.at.isoformat(),
            }
            for repair in repairs
        ],
    }


@run_in_pool_thread
def export(*, conversation_id: UUID, user: User) -> dict[str, Any]:
    """Return a complete export of the user's conversation: every message, and every call with its full result. Raise
    `ConversationNotFound`.
    """
    conversation = conversation_for(user, conversation_id)
    turns = list(Turn.objects.filter(conversation=conversation).order_by("number"))
    facts = turn_serializers.ended_turns(turns)
    messages = _messages_of(conversation)
    calls = _calls_of(turns)
    return {
        "conversation_id": str(conversation.pk),
        "title": conversation.title,
        "created_at": conversation.created_at.isoformat(),
        "exported_at": db_clock.now().isoformat(),
        "turns": [
            {
                **fact,
                "queued_at": turn.queued_at.isoformat(),
                "messages": messages.get(turn.pk, []),
                "calls": calls.get(turn.pk, []),
            }
            for turn, fact in zip(turns, facts, strict=True)
        ],
    }


def processes_lack_shared_layer() -> bool:
    """Return whether several processes are alive but at least one cannot receive the others' messages.

    This uses the synchronous ORM.
    """
    return process_registry.lack_shared_layer()


def _active_turn_ids(conversation_id: UUID) -> list[str]:
    active = Turn.objects.filter(conversation_id=conversation_id, status__in=ACTIVE_STATUSES)
    return [str(pk) for pk in active.order_by("number").values_list("pk", flat=True)]


def _snapshot(conversation: Conversation, *, before: int | None) -> wire.Snapshot:
    limit = app_settings.SNAPSHOT_MESSAGES
    messages = _latest_messages(conversation, limit + 2, before=before)
    page = _within(messages, limit)[::-1]
    at = db_clock.now()
    turns = _turns_of(conversation, page, with_active=before is None)
    described = serializers.DescribedCalls((turn.pk for turn in turns), at=at)
    ended = [turn for turn in turns if turn.status not in ACTIVE_STATUSES]
    active = [turn for turn in turns if turn.status in ACTIVE_STATUSES] if before is None else []
    return {
        "type": "snapshot",
        "seq": conversation.last_seq,
        "messages": [turn_serializers.message(row) for row in page],
        "calls": [call for turn in ended for call in described.of(turn.pk)],
        "turns": turn_serializers.ended_turns(ended),
        "active_turns": [
            turn_serializers.live_turn(turn, described.of(turn.pk), at=at) for turn in active
        ],
        "has_earlier": len(messages) > len(page),
        "parked": turn_serializers.parked(conversation),
    }


def _messages_of(conversation: Conversation) -> dict[UUID, list[Any]]:
    messages: dict[UUID, list[Any]] = {}
    rows = Message.objects.filter(conversation=conversation, is_streaming=False)
    for row in rows.order_by("position"):
        messages.setdefault(row.turn_id, []).append(turn_serializers.message(row))
    return messages


def _calls_of(turns: list[Turn]) -> dict[UUID, list[Any]]:
    """Return the serialized calls of each turn, with full results."""
    at = db_clock.now()
    described = serializers.DescribedCalls((turn.pk for turn in turns), at=at)
    whole = {
        (result.group, result.call_id): result.result
        for result in governance_selectors.results_of_groups(str(turn.pk) for turn in turns)
    }
    return {
        turn.pk: [
            {**call, "result": whole[str(turn.pk), call["tool_id"]]}
            if (str(turn.pk), call["tool_id"]) in whole
            else call
            for call in described.of(turn.pk)
        ]
        for turn in turns
    }


def _latest_messages(
    conversation: Conversation, count: int, *, before: int | None
) -> list[Message]:
    """Return up to `count` finished messages, latest first; with `before`, those before this position."""
    rows = Message.objects.filter(conversation=conversation, is_streaming=False)
    if before is not None:
        rows = rows.filter(position__lt=before)
    return list(rows.order_by("-position")[:count])


def _within(messages: list[Message], limit: int) -> list[Message]:
    """Return as many of the first messages as fit the limit, but at least one. Each message and call counts as one.

    If only the user's message of the oldest turn is missing, it is added.
    """
    weight = 0
    for index, message in enumerate(messages):
        weight += 1 + sum(block["type"] == "tool_use" for block in message.content)
        if index > 0 and weight > limit:
            begins_turn = message.role == "user" and message.turn_id == messages[index - 1].turn_id
            return messages[: index + begins_turn]
    return messages


def _turns_of(
    conversation: Conversation, messages: Iterable[Message], *, with_active: bool
) -> list[Turn]:
    """Return the turns of the messages; `with_active` adds active turns and those cancelled before they started."""
    condition = Q(pk__in={message.turn_id for message in messages})
    if with_active:
        here = Q(conversation=conversation)
        condition |= here & Q(status__in=ACTIVE_STATUSES)
        # Turns cancelled before they started, unless their messages were pruned.
        condition |= here & Q(status=TurnStatus.CANCELLED, started_at=None) & ~Q(user_message="")
    turns = Turn.objects.filter(condition).select_related("owner").order_by("-number")
    if with_active:
        turns = turns.annotate(ends_after_step=ENDS_AFTER_STEP)
    return list(turns[: app_settings.SNAPSHOT_MESSAGES])[::-1]


def _summary(
    row: Conversation, *, default: str, mark: conversation_status.StatusMark | None = None
) -> ConversationSummary:
    return ConversationSummary(
        id=row.pk,
        title=row.title,
        agent=row.agent or default,
        updated_at=row.updated_at,
        is_active=getattr(row, "is_active", False),
        is_pinned=row.pinned_at is not None,
        standing=mark.standing if mark else "",
        asked=len(mark.asked_in) if mark else 0,
        tools_running=mark.tools_running if mark else 0,
        is_queued=mark.is_queued if mark else False,
        last_seq=row.last_seq,
    )
