"""Children: the turns of sub-agents, each started by a tool call of another turn (C10, T10; sync ORM).

A child is an ordinary turn in a conversation of its own, which belongs to the owner of the parent's. It is created
under the lock of the parent's conversation. So nothing starts after a cancel of the parent, and the cancel finds all
that started before.
"""

from dataclasses import dataclass, field
from uuid import UUID, uuid4

from django.db import transaction

from governance import Cancellation, CancelReason
from governance.db_clock import database_now
from governance.sanitize import sanitize_text
from turns.agents.lookup import enabled_agents, find_agent
from turns.cancelling.descendants import ask_for_report, cancel_descendants, cancel_turn
from turns.conf import app_settings
from turns.core.tool_events import SubAgent
from turns.core.turns import ACTIVE_STATUSES, TurnStatus
from turns.events import log
from turns.events.notifications import Notifications
from turns.exceptions import AgentUnavailable
from turns.models import Agent, CancelRequest, Conversation, Turn
from turns.queueing import queue, turn_tree

SOURCE = "agent"  # of a message that an agent wrote to a sub-agent


class ChildRefused(Exception):
    """A sub-agent was not set to work; the sentence tells the model why."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)
        self.sentence = sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The tool call that starts a sub-agent; `time_left` of its turn in seconds, None = no limit.

    `place_id` is the id of the conversation that is begun for it. With the same one again nothing is begun twice.
    """

    turn_id: UUID
    epoch: int
    tool_id: str
    time_left: float | None
    place_id: UUID = field(default_factory=uuid4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Child:
    """A turn that was started, and what is to be published of that."""

    turn_id: UUID
    conversation_id: UUID
    agent: str
    batches: list[log.Batch]


def start(origin: Origin, *, agent: str, message: str, is_detached: bool) -> Child:
    """Queue the turn of a sub-agent, one for each call. Raise `ChildRefused` with a sentence for the model if that may not be."""
    text = _checked(message)
    with transaction.atomic():
        turn_tree.lock(origin.turn_id)
        conversation = log.locked_of(origin.turn_id)
        ours = Turn.objects.filter(pk=origin.turn_id, epoch=origin.epoch, status=TurnStatus.RUNNING)
        parent = ours.first()
        if (known := _started_before(origin)) is not None:
            return known
        if (
            conversation is None
            or conversation.deleted_at is not None
            or parent is None
            or _is_ending(parent, origin.tool_id)
        ):
            raise ChildRefused("This turn is being ended, so no sub-agent was started.")
        _check_limits(parent)
        place = _make_conversation(origin, parent=conversation, agent=_find(agent).name)
        queued = queue.enqueue(place.pk, text=text, source=SOURCE, client_id=None, parent=parent)
        turn = queued.turn
        _put_below(parent, turn, origin, is_detached=is_detached)
        told = log.append(
            conversation, parent.pk, _started(turn, origin.tool_id, is_detached=is_detached)
        )
    return Child(
        turn_id=turn.pk,
        conversation_id=place.pk,
        agent=turn.agent,
        batches=[(conversation.pk, told), (place.pk, queued.events)],
    )


def _make_conversation(origin: Origin, *, parent: Conversation, agent: str) -> Conversation:
    return Conversation.objects.create(
        pk=origin.place_id, owner_id=parent.owner_id, parent=parent, agent=agent
    )


def _put_below(parent: Turn, turn: Turn, origin: Origin, *, is_detached: bool) -> None:
    """Let a queued turn be the child of the one that asked for it. It has no more time than that one."""
    Turn.objects.filter(pk=turn.pk).update(
        root=turn_tree.root_of(parent),
        parent_tool_id=origin.tool_id,
        depth=parent.depth + 1,
        is_detached=is_detached,
        turn_timeout_ms=_limit_ms(turn.turn_timeout_ms, origin.time_left),
    )


def _started_before(origin: Origin) -> Child | None:
    """What was begun already: the answer may have been lost on its way."""
    turn = Turn.objects.filter(conversation=origin.place_id).first()
    if turn is None:
        return None
    return Child(
        turn_id=turn.pk, conversation_id=turn.conversation_id, agent=turn.agent, batches=[]
    )


def cancel_started_by(turn_id: UUID, tool_id: str, cancellation: Cancellation) -> Notifications:
    """End what a call has started: it does not wait for it any more."""
    with transaction.atomic():
        if not log.lock_of(turn_id):
            return Notifications()
        return cancel_descendants(turn_id, cancellation, tool_id=tool_id)


def cancel_session(conversation_id: UUID, turn_id: UUID) -> Notifications:
    """End a sub-agent of a conversation and what it has started; whoever asked for that gets no report."""
    with transaction.atomic():
        log.locked(conversation_id)
        turn = Turn.objects.filter(pk=turn_id, parent__conversation=conversation_id).first()
        if turn is None or turn.status not in ACTIVE_STATUSES:
            return Notifications()
        cancellation = Cancellation(reason=CancelReason.PARENT)
        notifications = cancel_turn(turn, cancellation)
        if notifications.cancelled:  # its conversation is locked: its owner may be writing its row
            Turn.objects.filter(pk=turn.pk, delivered_at=None).update(delivered_at=database_now())
        notifications.add(cancel_descendants(turn.pk, cancellation))
        return notifications


def request_reports_of(turn_id: UUID, tool_id: str) -> Notifications:
    """Let what a call has started report what it has: the call is out of time. The report is delivered."""
    with transaction.atomic():
        if not log.lock_of(turn_id):
            return Notifications()
        out_of_time = Cancellation(reason=CancelReason.TIMEOUT)
        started = Turn.objects.filter(parent=turn_id, parent_tool_id=tool_id)
        notifications = ask_for_report(started, out_of_time)
        # Nobody has waited for what has ended meanwhile.
        ended = started.exclude(status__in=[*ACTIVE_STATUSES, TurnStatus.CANCELLED])
        ended.filter(delivered_at=None).update(is_detached=True)
        return notifications


def _checked(message: str) -> str:
    limit = app_settings.MAX_MESSAGE_LENGTH
    if not message.strip():
        raise ChildRefused("The message to the sub-agent is empty: say what it shall do.")
    if len(message) > limit:
        raise ChildRefused(f"The message to the sub-agent is longer than {limit} characters.")
    return sanitize_text(message)


def _is_ending(parent: Turn, tool_id: str) -> bool:
    """Whether a cancel of the turn or of this call is stored."""
    asked = CancelRequest.objects.filter(turn=parent, tool_id__in=["", tool_id], mode="now")
    return asked.exists()


def _check_limits(parent: Turn) -> None:
    depth, children = app_settings.MAX_DEPTH, app_settings.MAX_CHILDREN
    if parent.depth >= depth:
        raise ChildRefused(
            f"Sub-agents may be nested {depth} deep at most, and this one is at that depth. Do the work yourself."
        )
    live = Turn.objects.filter(parent=parent, status__in=ACTIVE_STATUSES).count()
    if live >= children:
        raise ChildRefused(
            f"This turn has {live} sub-agents at work, and {children} is the limit. Wait until one of them has ended."
        )
    if (sentence := turn_tree.refusal(parent)) is not None:
        raise ChildRefused(sentence)


def _find(name: str) -> Agent:
    try:
        return find_agent(name.strip())
    except AgentUnavailable:
        known = enabled_agents()
        listed = "; ".join(
            f"{agent.name} ({agent.description})" if agent.description else agent.name
            for agent in known
        )
        shown = sanitize_text(name, limit=64)
        raise ChildRefused(
            f'There is no agent named "{shown}", or it is switched off. You may ask: {listed or "none"}.'
        ) from None


def _limit_ms(own_ms: int | None, time_left: float | None) -> int | None:
    """The agent's own limit, but not more than is left of the parent's time, its report included (T10)."""
    if time_left is None:
        return own_ms
    for_report = min(app_settings.REPORT_GRACE, time_left / 4)
    left_ms = max(round((time_left - for_report) * 1000), 1)
    return left_ms if own_ms is None else min(own_ms, left_ms)


def _started(turn: Turn, tool_id: str, *, is_detached: bool) -> SubAgent:
    return SubAgent(
        tool_id=tool_id,
        agent=turn.agent,
        child_turn_id=str(turn.pk),
        child_conversation_id=str(turn.conversation_id),
        is_detached=is_detached,
    )
