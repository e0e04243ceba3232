"""Children: turns of sub-agents, each started by a tool call of another turn (C10, T10).

A child is an ordinary turn in a separate conversation of the parent's owner. It is created under the lock of the
parent's conversation, so nothing starts after a cancel of the parent, and the cancel finds everything that started
before. The functions here use the synchronous ORM.
"""

from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

from governance import Cancellation, CancelReason
from governance.db import atomic
from governance.db_clock import database_now
from governance.sanitize import sanitize_text
from turns.agents.lookup import find_agent, usable_agents
from turns.cancelling.descendants import ask_for_report, cancel_descendants, cancel_turn
from turns.conf import app_settings
from turns.core.events import SubAgent
from turns.core.turns import ACTIVE_STATUSES, TurnStatus
from turns.events import log
from turns.events.notifications import Notifications
from turns.exceptions import AgentUnavailable
from turns.models import Agent, CancelRequest, Conversation, Turn
from turns.queueing import queue, turn_tree

SOURCE = "agent"  # marks messages from an agent to a sub-agent


class ChildRefused(Exception):
    """A sub-agent was not started; the text is a sentence for the model."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)
        self.sentence = sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The tool call that starts a sub-agent. `time_left` is the number of seconds that its turn has left; None means
    that there is no limit.

    `conversation_id` is the id of the sub-agent's new conversation, and makes a repeated start idempotent.
    """

    turn_id: UUID
    epoch: int
    tool_id: str
    time_left: float | None
    conversation_id: UUID = field(default_factory=uuid4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Child:
    """The turn of a started sub-agent, with the events to publish."""

    turn_id: UUID
    conversation_id: UUID
    agent: str
    batches: list[log.Batch]


def start(origin: Origin, *, agent: str, message: str, is_detached: bool) -> Child:
    """Queue a sub-agent's turn. A call can start only one, so a repeated request returns the same turn.

    Raise `ChildRefused` with a sentence for the model if the sub-agent is not allowed.
    """
    text = _checked(message)
    with atomic():
        turn_tree.lock(origin.turn_id)
        conversation = log.locked_of(origin.turn_id)
        ours = Turn.objects.filter(pk=origin.turn_id, epoch=origin.epoch, status=TurnStatus.RUNNING)
        parent = ours.first()
        if (child := _started_before(origin)) is not None:
            return child
        if (
            conversation is None
            or conversation.deleted_at is not None
            or parent is None
            or CancelRequest.objects.filter(
                turn=parent, tool_id__in=["", origin.tool_id], mode="now"
            ).exists()
        ):
            raise ChildRefused("This turn is being ended, so no sub-agent was started.")
        _check_limits(parent)
        own = Conversation.objects.create(
            pk=origin.conversation_id,
            owner_id=conversation.owner_id,
            parent=conversation,
            agent=_find(agent, user_id=conversation.owner_id).name,
        )
        queued = queue.enqueue(own.pk, text=text, source=SOURCE, client_id=None, parent=parent)
        turn = queued.turn
        Turn.objects.filter(pk=turn.pk).update(
            root=turn_tree.root_of(parent),
            parent_tool_id=origin.tool_id,
            depth=parent.depth + 1,
            is_detached=is_detached,
            turn_timeout_ms=_limit_ms(turn.turn_timeout_ms, origin.time_left),
        )
        event = SubAgent(
            tool_id=origin.tool_id,
            agent=turn.agent,
            child_turn_id=str(turn.pk),
            child_conversation_id=str(turn.conversation_id),
            is_detached=is_detached,
        )
        events = log.append(conversation, parent.pk, event)
    return Child(
        turn_id=turn.pk,
        conversation_id=own.pk,
        agent=turn.agent,
        batches=[(conversation.pk, events), (own.pk, queued.events)],
    )


def _started_before(origin: Origin) -> Child | None:
    """Return the child if the call has already started it, because the response to the first attempt may be lost."""
    turn = Turn.objects.filter(conversation=origin.conversation_id).first()
    if turn is None:
        return None
    return Child(
        turn_id=turn.pk, conversation_id=turn.conversation_id, agent=turn.agent, batches=[]
    )


def cancel_started_by(turn_id: UUID, tool_id: str, cancellation: Cancellation) -> Notifications:
    """Cancel the sub-agents that a call has started, because it no longer waits for them."""
    with atomic():
        if not log.lock_of(turn_id):
            return Notifications()
        return cancel_descendants(turn_id, cancellation, tool_id=tool_id)


def cancel_session(conversation_id: UUID, turn_id: UUID) -> Notifications:
    """Cancel a sub-agent of a conversation and its descendants; no report is delivered."""
    with atomic():
        log.locked(conversation_id)
        turn = Turn.objects.filter(pk=turn_id, parent__conversation=conversation_id).first()
        if turn is None or turn.status not in ACTIVE_STATUSES:
            return Notifications()
        cancellation = Cancellation(reason=CancelReason.PARENT)
        notifications = cancel_turn(turn, cancellation)
        # Only then does this transaction hold the lock of the turn's conversation; without it, the owner may be writing
        # the row.
        if notifications.cancelled:
            Turn.objects.filter(pk=turn.pk, delivered_at=None).update(delivered_at=database_now())
        notifications.add(cancel_descendants(turn.pk, cancellation))
        return notifications


def request_reports_of(turn_id: UUID, tool_id: str) -> Notifications:
    """Request reports from the sub-agents of a call that timed out; the reports are delivered later."""
    with atomic():
        if not log.lock_of(turn_id):
            return Notifications()
        out_of_time = Cancellation(reason=CancelReason.TIMEOUT)
        started = Turn.objects.filter(parent=turn_id, parent_tool_id=tool_id)
        notifications = ask_for_report(started, out_of_time)
        # Their reports are delivered too if they ended in the meantime, because the call no longer waits for them.
        ended = started.exclude(status__in=[*ACTIVE_STATUSES, TurnStatus.CANCELLED])
        ended.filter(delivered_at=None).update(is_detached=True)
        return notifications


def _checked(message: str) -> str:
    limit = app_settings.MAX_MESSAGE_LENGTH
    if not message.strip():
        raise ChildRefused("The message to the sub-agent is empty. Say what it should do.")
    if len(message) > limit:
        raise ChildRefused(f"The message to the sub-agent is longer than {limit} characters.")
    return sanitize_text(message)


def _check_limits(parent: Turn) -> None:
    depth, children = app_settings.MAX_DEPTH, app_settings.MAX_CHILDREN
    if parent.depth >= depth:
        raise ChildRefused(
            f"Sub-agents can be nested at most {depth} levels deep, and this one is at that level. Do the work yourself."
        )
    live = Turn.objects.filter(parent=parent, status__in=ACTIVE_STATUSES).count()
    if live >= children:
        raise ChildRefused(
            f"This turn already has {live} running sub-agents, and the limit is {children}. Wait until one of them ends."
        )
    if (sentence := turn_tree.refusal(parent)) is not None:
        raise ChildRefused(sentence)


def _find(name: str, *, user_id: Any) -> Agent:
    """Return the agent that will work for the same person."""
    try:
        return find_agent(name.strip(), user_id=user_id)
    except AgentUnavailable:
        names = "; ".join(
            f"{agent.name} ({agent.description})" if agent.description else agent.name
            for agent in usable_agents(user_id=user_id)
        )
        display_name = sanitize_text(name, limit=64)
        raise ChildRefused(
            f'There is no agent named "{display_name}", it is switched off, or the person you work for may not use it. You can ask: {names or "none"}.'
        ) from None


def _limit_ms(own_ms: int | None, time_left: float | None) -> int | None:
    """Return the time limit of a sub-agent: its agent's own, but at most the time that its parent has left, minus the
    time for a report (T10).
    """
    if time_left is None:
        return own_ms
    for_report = min(app_settings.REPORT_GRACE, time_left / 4)
    left_ms = max(round((time_left - for_report) * 1000), 1)
    return left_ms if own_ms is None else min(own_ms, left_ms)
