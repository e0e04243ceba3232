"""What clients may read of conversations and turns: lists, snapshots, events, histories; checked for each user."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from django.db.models import Exists, OuterRef, Q, QuerySet
from django.utils import timezone

from governance import CallStatus
from governance import selectors as governance_selectors
from governance.db import read_snapshot, run_in_pool_thread, run_in_query_thread
from governance.sanitize import sanitize_text
from turns.agents.lookup import AgentSummary, enabled_agents, find_agent
from turns.agents.starters import Starters, starters_of
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
    """A conversation in a list; `agent` names who answers in it now, the default one where nobody was chosen.

    `standing` is its state where it is not at rest. `asked` counts the decisions that it waits for, `tools_running` the
    calls at work. `is_queued` = no turn of those that wait has begun. `last_seq` numbers its last event. `parent_id` is
    the conversation that it works for, where it is a sub-agent's.
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
    """What a call came to: all that is stored of it."""

    tool_name: str
    text: str


@run_in_query_thread
def list_agents(*, user: User) -> list[AgentSummary]:
    """Return the agents that are switched on, the default one first."""
    reload(user)
    return enabled_agents()


@run_in_query_thread
def list_conversations(
    *, user: User, search: str = "", agent: str = "", offset: int = 0, limit: int = LIST_LENGTH
) -> list[ConversationSummary]:
    """Return the user's conversations, pinned ones first, then the latest; not those in which sub-agents work.

    `search` is a part of the title; `agent` answers in them now.
    """
    owner_id = reload(user).pk
    active = Turn.objects.filter(conversation=OuterRef("pk"), status__in=ACTIVE_STATUSES)
    rows = Conversation.objects.filter(owner_id=owner_id, parent=None, deleted_at=None).annotate(
        is_active=Exists(active)
    )
    if wanted := sanitize_text(search.strip(), limit=SEARCH_LENGTH):
        rows = rows.filter(title__icontains=wanted)
    default = find_agent().name
    if agent := sanitize_text(agent):
        rows = rows.filter(agent__in=[agent, ""] if agent == default else [agent])
    marks = conversation_status.read(owners={owner_id}).marks[owner_id]
    page = _page(rows, offset=offset, limit=limit)
    return [_summary(row, default=default, mark=marks.get(row.pk)) for row in page]


def _page(rows: QuerySet[Conversation], *, offset: int, limit: int) -> list[Conversation]:
    """Return a part of the list. In one order no index could have it: of both kinds the database would sort all."""
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
    summary = _summary(row, default=find_agent().name)
    if row.parent is None:
        return summary
    return replace(summary, parent_id=row.parent.pk, parent_title=row.parent.title)


@run_in_query_thread
def unbegun_conversation(*, conversation_id: UUID, agent: str, user: User) -> ConversationSummary:
    """Return a conversation as it will be that its first message makes. Raise `AgentUnavailable`."""
    reload(user)
    chosen = find_agent(sanitize_text(agent.strip(), limit=64)).name
    return ConversationSummary(
        id=conversation_id, title="", agent=chosen, updated_at=timezone.now()
    )


@run_in_query_thread
def starters(*, agent: str, user: User) -> Starters:
    """Return what an agent's empty page offers."""
    reload(user)
    return starters_of(agent)


@run_in_query_thread
def active_turns(*, user: User) -> list[wire.ActiveTurn]:
    """Return the turns that wait or run, with what their tools are doing (V5)."""
    turns = Turn.objects.filter(status__in=ACTIVE_STATUSES).select_related("owner")
    if not sees_all(user):
        # Not by a join, which SQLite would begin with all that the user has ever said.
        own = Conversation.objects.filter(
            pk=OuterRef("conversation"), owner_id=user.pk, deleted_at=None
        )
        turns = turns.filter(Exists(own))
    rows = list(turns.order_by("queued_at")[:LIST_LENGTH])
    at = timezone.now()
    running = serializers.DescribedCalls((row.pk for row in rows), at=at)
    return [turn_serializers.active_turn(row, running.of(row.pk), at=at) for row in rows]


@run_in_query_thread
def get_turn(*, turn_id: UUID, user: User) -> wire.TurnWithCalls:
    """Return one turn with its calls. Raise `TurnNotFound`."""
    turn = turn_for(user, turn_id, permission="turns.view_all")
    at = timezone.now()
    described = serializers.DescribedCalls([turn.pk], at=at).of(turn.pk)
    return {
        **turn_serializers.active_turn(turn, described, at=at),
        **turn_serializers.ended_turns([turn])[0],
        "user_message": turn.user_message,
        "calls": described,
    }


@run_in_query_thread
def tool_result(*, turn_id: UUID, tool_id: str, user: User) -> WholeResult:
    """Return the whole result of a call that has ended. Raise `TurnNotFound`, `ToolCallNotFound`, `ToolCallNotEnded`."""
    turn = turn_for(user, turn_id, permission="turns.view_all")
    if not governance_selectors.has_call(str(turn.pk), tool_id):
        raise ToolCallNotFound
    row = governance_selectors.call(str(turn.pk), tool_id)
    if not CallStatus(row.status).is_terminal:
        raise ToolCallNotEnded
    return WholeResult(tool_name=row.tool_name, text=row.result)


@run_in_query_thread
def turn_events(*, turn_id: UUID, user: User, after: int) -> tuple[list[log.WireEvent], int]:
    """Return a turn's events above `after`, and the number to ask `after` next: a long turn takes several answers."""
    turn = turn_for(user, turn_id, permission="turns.view_all")
    events = log.read_turn(turn.pk, after=after, limit=EVENTS_LENGTH)
    has_more = len(events) == EVENTS_LENGTH
    return events, events[-1]["seq"] if has_more else turn.conversation.last_seq


@run_in_query_thread
def conversation_events(
    *, conversation_id: UUID, after: int, limit: int = 1000
) -> list[log.WireEvent]:
    """Return a conversation's events above `after`; the caller has checked who asks."""
    return log.read(conversation_id, after=after, limit=limit)


@run_in_query_thread
def last_seq(*, conversation_id: UUID) -> int:
    """Return the number of a conversation's last event. Raise `ConversationNotFound`."""
    return log.last_seq(conversation_id)


@run_in_query_thread
def reaches_back(*, conversation_id: UUID, after: int) -> bool:
    """Return whether the log still has every event above `after`, and `after` is a number it has given."""
    last = log.last_seq(conversation_id)
    if after >= last:
        return after == last
    return Event.objects.filter(conversation_id=conversation_id, seq=after + 1).exists()


@run_in_query_thread
def active_turn_ids(*, conversation_id: UUID) -> list[str]:
    """Return the ids of the turns that wait or run in a conversation."""
    active = Turn.objects.filter(conversation_id=conversation_id, status__in=ACTIVE_STATUSES)
    return [str(pk) for pk in active.order_by("number").values_list("pk", flat=True)]


@run_in_query_thread
def partial_text(*, turn_id: UUID, user: User) -> tuple[str, int]:
    """Return what the unfinished message of a turn says so far, as stored, and its step; 0 = there is none."""
    turn = turn_for(user, turn_id, permission="turns.view_all")
    message = Message.objects.filter(turn=turn, is_streaming=True).first()
    return (turn_serializers.text_of(message.content), message.step) if message else ("", 0)


@run_in_query_thread
def snapshot(*, conversation_id: UUID, user: User, before: int | None = None) -> wire.Snapshot:
    """Return all that a page needs to show a conversation as it is now, or `before` a message's position."""
    conversation_for(user, conversation_id, permission="turns.view_all")
    with read_snapshot():  # nothing is both in the snapshot and an event after it
        return _snapshot(log.locked(conversation_id), before=before)


@run_in_pool_thread
def history(*, conversation_id: UUID, user: User) -> wire.History:
    """Return the history as a model would get it: always valid (H1), with the repairs that were ever made."""
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


def processes_lack_shared_layer() -> bool:
    """Return whether several processes are alive of which one at least cannot hear the others (sync)."""
    return process_registry.lack_shared_layer()


def _snapshot(conversation: Conversation, *, before: int | None) -> wire.Snapshot:
    limit = app_settings.SNAPSHOT_MESSAGES
    messages = _latest_messages(conversation, limit + 2, before=before)
    shown = _within(messages, limit)[::-1]
    at = timezone.now()
    turns = _turns_of(conversation, shown, with_active=before is None)
    described = serializers.DescribedCalls((turn.pk for turn in turns), at=at)
    ended = [turn for turn in turns if turn.status not in ACTIVE_STATUSES]
    active = [turn for turn in turns if turn.status in ACTIVE_STATUSES] if before is None else []
    return {
        "type": "snapshot",
        "seq": conversation.last_seq,
        "messages": [turn_serializers.message(row) for row in shown],
        "calls": [call for turn in ended for call in described.of(turn.pk)],
        "turns": turn_serializers.ended_turns(ended),
        "active_turns": [
            turn_serializers.live_turn(turn, described.of(turn.pk), at=at) for turn in active
        ],
        "has_earlier": len(messages) > len(shown),
        "parked": turn_serializers.parked(conversation),
    }


def _latest_messages(
    conversation: Conversation, count: int, *, before: int | None
) -> list[Message]:
    """Return finished messages, the latest first; with `before`, those in front of this position."""
    rows = Message.objects.filter(conversation=conversation, is_streaming=False)
    if before is not None:
        rows = rows.filter(position__lt=before)
    return list(rows.order_by("-position")[:count])


def _within(messages: list[Message], limit: int) -> list[Message]:
    """Return the first messages that weigh no more than the limit together, one at least: each call counts, too.

    If only the message that has begun their last turn is left of it, it comes along.
    """
    weight = 0
    for place, message in enumerate(messages):
        weight += 1 + sum(block["type"] == "tool_use" for block in message.content)
        if place > 0 and weight > limit:
            is_its_beginning = (
                message.role == "user" and message.turn_id == messages[place - 1].turn_id
            )
            return messages[: place + is_its_beginning]
    return messages


def _turns_of(
    conversation: Conversation, messages: Iterable[Message], *, with_active: bool
) -> list[Turn]:
    """The turns of the messages shown, those that wait, and those that were ended before they began."""
    wanted = Q(pk__in={message.turn_id for message in messages})
    if with_active:
        here = Q(conversation=conversation)
        wanted |= here & Q(status__in=ACTIVE_STATUSES)
        # … unless what they said has been pruned.
        wanted |= here & Q(status=TurnStatus.CANCELLED, started_at=None) & ~Q(user_message="")
    turns = Turn.objects.filter(wanted).select_related("owner").order_by("-number")
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
