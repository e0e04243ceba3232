"""Families: a turn of a person and all turns that work for it, at any depth. They share one budget (C10; sync ORM).

A turn that carries a report belongs to the family that it reports of. Without a person nothing grows beyond the budget.
"""

from collections.abc import Mapping
from uuid import UUID

from django.db.models import Q

from turns.conf import app_settings
from turns.core.turns import ACTIVE_STATUSES
from turns.events import log
from turns.models import Agent, Conversation, Turn


def root_of(turn: Turn) -> UUID:
    """Return the turn that the family of this one began with: this one, unless it was set to work."""
    return turn.root_id or turn.pk


def lock(turn_id: UUID, *, waits: bool = True) -> None:
    """Lock the conversation that the family of a turn began in, before any below it. So its size is counted once at a time.

    Raise `ConversationNotFound` if somebody else has the lock and we do not wait.
    """
    above = Turn.objects.filter(pk=turn_id, root__isnull=False)
    for conversation_id in above.values_list("root__conversation", flat=True):
        log.locked(conversation_id, waits=waits)


def refusal(turn: Turn) -> str | None:
    """Return why nobody may be set to work for this turn any more, in a sentence for the model. None if somebody may."""
    family = Turn.objects.filter(root=root_of(turn))
    at_work, most = app_settings.MAX_FAMILY, app_settings.MAX_FAMILY_TOTAL
    if family.count() >= most:
        return (
            f"{most} sub-agents were set to work for the user's message in all, which is the limit. Do the rest yourself, or"
            " report what is done and what is missing."
        )
    if family.filter(status__in=ACTIVE_STATUSES).count() >= at_work:
        return (
            f"{at_work} sub-agents are at work for the user's message, yours and those of others, which is the limit. Wait"
            " until one of them has ended, or do the work yourself."
        )
    return None


def has_room_for_report_turn(turn: Turn) -> bool:
    """Return whether a turn that carries a report may work below this one now. What it reports of is counted already."""
    children = Turn.objects.filter(parent=turn, status__in=ACTIVE_STATUSES)
    family = Turn.objects.filter(root=root_of(turn), status__in=ACTIVE_STATUSES)
    return children.count() < app_settings.MAX_CHILDREN and family.count() < app_settings.MAX_FAMILY


def token_limit(turn: Turn) -> int | None:
    """Return how many tokens the family may use in all: what the agent may that the person speaks to. None = no limit."""
    return turn.token_limit if turn.root is None else turn.root.token_limit


def line_of(conversation_id: UUID) -> list[UUID]:
    """Return the conversation that everything began in, those that led to this one, and this one."""
    line = [conversation_id]
    while True:
        above = Conversation.objects.values_list("parent_id", flat=True).filter(pk=line[0]).first()
        if above is None:
            return line
        line.insert(0, above)


def rules_above(turn_id: UUID) -> list[str]:
    """Return the approval rules of the agents that a sub-agent works for, from its parent's turn upwards."""
    names = []
    above: UUID | None = turn_id
    while above is not None:
        found = Turn.objects.filter(pk=above).values_list("agent", "parent_id").first()
        name, above = found or ("", None)
        names.append(name)
    return list(Agent.objects.filter(name__in=names).values_list("approval", flat=True))


def share_usage(turn: Turn, usage: Mapping[str, int]) -> int:
    """Store what a turn has used so far; return what the rest of its family has, in tokens."""
    Turn.objects.filter(pk=turn.pk).update(usage=dict(usage))
    root_id = root_of(turn)
    others = Turn.objects.filter(Q(pk=root_id) | Q(root=root_id)).exclude(pk=turn.pk)
    return sum(sum(used.values()) for used in others.values_list("usage", flat=True))
