"""Families: a person's turn and all turns that work for it, at any depth, share one budget (C10).

A turn that delivers a report belongs to the family of the report, so that sub-agents cannot exceed the budget without a
person. The conversations of a family are a tree as well. The functions here use the synchronous ORM.
"""

from collections.abc import Mapping
from uuid import UUID

from django.db.models import Q

from turns.conf import app_settings
from turns.core.chat_model import tokens_of
from turns.core.turns import ACTIVE_STATUSES
from turns.events import log
from turns.exceptions import ConversationNotFound
from turns.models import Agent, Conversation, Turn


def root_of(turn: Turn) -> UUID:
    """Return the id of the family's first turn, which may be this one."""
    return turn.root_id or turn.pk


def lock(turn_id: UUID, *, waits: bool = True) -> None:
    """Lock the conversation of the family's first turn before any conversation below it, so that the family's size is
    counted by one transaction at a time.

    Raise `ConversationNotFound` if it is locked and `waits` is False.
    """
    above = Turn.objects.filter(pk=turn_id, root__isnull=False)
    for conversation_id in above.values_list("root__conversation", flat=True):
        log.locked(conversation_id, waits=waits)


def refusal(turn: Turn) -> str | None:
    """Return the reason why this turn may not start another sub-agent, as a sentence for the model; None if it may."""
    family = Turn.objects.filter(root=root_of(turn))
    at_work, most = app_settings.MAX_FAMILY, app_settings.MAX_FAMILY_TOTAL
    if family.count() >= most:
        return (
            f"{most} sub-agents have been started for the user's message, which is the limit. Do the rest yourself, or"
            " report what is done and what is missing."
        )
    if family.filter(status__in=ACTIVE_STATUSES).count() >= at_work:
        return (
            f"{at_work} sub-agents are running for the user's message, including those of other agents, which is the limit."
            " Wait until one of them ends, or do the work yourself."
        )
    return None


def has_room_for_report_turn(turn: Turn) -> bool:
    """Return whether the budget allows one more turn, to deliver the report of a sub-agent that `turn` started."""
    children = Turn.objects.filter(parent=turn, status__in=ACTIVE_STATUSES)
    family = Turn.objects.filter(root=root_of(turn), status__in=ACTIVE_STATUSES)
    return children.count() < app_settings.MAX_CHILDREN and family.count() < app_settings.MAX_FAMILY


def token_limit(turn: Turn) -> int | None:
    """Return the family's total token limit, which the agent of the person's turn sets; None if there is no limit."""
    return turn.token_limit if turn.root is None else turn.root.token_limit


def line_of(conversation_id: UUID) -> list[UUID]:
    """Return the ids of the conversations on the path from the root to this one, including both."""
    line = [conversation_id]
    while True:
        above = Conversation.objects.values_list("parent_id", flat=True).filter(pk=line[0]).first()
        if above is None:
            return line
        line.insert(0, above)


def rules_above(turn_id: UUID) -> list[str]:
    """Return the approval rules of the agents of this turn and of its ancestors, in no particular order."""
    names = []
    above: UUID | None = turn_id
    while above is not None:
        parent = Turn.objects.filter(pk=above).values_list("agent", "parent_id").first()
        name, above = parent or ("", None)
        names.append(name)
    return list(Agent.objects.filter(name__in=names).values_list("approval", flat=True))


def share_usage(turn: Turn, usage: Mapping[str, int]) -> int:
    """Store a turn's usage so far; return the tokens used by the other turns of its family."""
    Turn.objects.filter(pk=turn.pk).update(usage=dict(usage))
    root_id = root_of(turn)
    others = Turn.objects.filter(Q(pk=root_id) | Q(root=root_id)).exclude(pk=turn.pk)
    return sum(tokens_of(used) for used in others.values_list("usage", flat=True))


def tree_of(top_id: UUID) -> list[UUID]:
    family: list[UUID] = []
    level = [top_id]
    while level:
        family += level
        children = Conversation.objects.filter(parent__in=level).exclude(pk__in=family)
        level = list(children.values_list("pk", flat=True))
    return family


def parent_id_of(conversation_id: UUID) -> UUID | None:
    """Return the id of the parent conversation, if any. Raise `ConversationNotFound`."""
    parent = Conversation.objects.filter(pk=conversation_id).values_list("parent_id").first()
    if parent is None:
        raise ConversationNotFound
    return parent[0]
