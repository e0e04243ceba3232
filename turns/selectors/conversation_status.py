"""Overviews: which conversations of a person work, wait or were interrupted, which is the latest, what sub-agents ask.

One is read every few seconds for all open sockets of a process at once: a handful of queries, however many those are.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from itertools import pairwise
from typing import Any
from uuid import UUID

from django.contrib.auth import get_user_model
from django.db.models import Exists, OuterRef, Q, Subquery
from django.utils import timezone

from governance import approval_store
from governance.approval_store import ApprovalRow
from governance.db import run_in_query_thread
from turns.calls import approvals
from turns.core.turns import ACTIVE_STATUSES, TurnStatus
from turns.core.wire import SubAgentQuestion
from turns.models import Conversation, Turn

MOST_INTERRUPTED = 200  # of all owners together, the latest; a list shows as many of one


class ConversationStatus(StrEnum):
    """How a conversation stands that is not at rest, the most urgent first; the names are the wire's."""

    ASKING = "asking"
    PARKED = "parked"
    WORKING = "working"
    INTERRUPTED = "interrupted"


_URGENCY = tuple(ConversationStatus)
_PLACE = ("owner", "parent", "parked_at", "last_number")


@dataclass(frozen=True, slots=True)
class StatusMark:
    """How a conversation stands; `asked_in` says where its open questions were put, once for each: by sub-agents too."""

    standing: ConversationStatus
    asked_in: tuple[UUID, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """Marks by owner and conversation, latest conversations by owner, open questions of sub-agents by whom they work for."""

    marks: dict[Any, dict[UUID, StatusMark]] = field(default_factory=lambda: defaultdict(dict))
    latest: dict[Any, Conversation] = field(default_factory=dict)
    questions: dict[UUID, list[SubAgentQuestion]] = field(default_factory=lambda: defaultdict(list))

    def add(
        self, conversation: Conversation, standing: ConversationStatus, *asked_in: UUID
    ) -> None:
        """Mark a conversation; the more urgent of two marks stays."""
        marks = self.marks[conversation.owner_id]
        known = marks.get(conversation.pk, StatusMark(standing))
        urgent = min(known.standing, standing, key=_URGENCY.index)
        marks[conversation.pk] = StatusMark(urgent, known.asked_in + asked_in)


def read(*, owners: Collection[Any] = (), conversations: Collection[UUID] = ()) -> Overview:
    """Return the marks of some owners, and what is asked below some conversations; the caller has checked who asks."""
    overview = Overview(latest={row.owner_id: row for row in _latest(owners)})
    lines = _Lines({*owners, *_owners_of(conversations)})
    questions = approval_store.open_questions(str(turn.pk) for turn in lines.active)
    for conversation, standing in _left_behind(owners):
        overview.add(conversation, standing)
    for turn in lines.active:
        root = lines.of(turn)[-1].conversation
        if root.owner_id in owners:
            overview.add(root, ConversationStatus.WORKING)
    at = timezone.now()
    for question in questions:
        if not (line := lines.of_question(question)):
            continue
        root = line[-1].conversation
        if root.owner_id in owners:
            overview.add(root, ConversationStatus.ASKING, line[0].conversation_id)
        for below, above in pairwise(line):
            if above.conversation_id in conversations:
                described = _described(question, asker=line[0], below=below, at=at)
                overview.questions[above.conversation_id].append(described)
    return overview


look = run_in_query_thread(read)


def _owners_of(conversations: Collection[UUID]) -> Iterable[Any]:
    """Whose these conversations are, and all that is done for them: a sub-agent's conversation has the owner of its family."""
    return Conversation.objects.filter(pk__in=conversations).values_list("owner", flat=True)


class _Lines:
    """The turns of some owners that wait or run, each with those that it works for."""

    def __init__(self, owners: Collection[Any]) -> None:
        # Not by a join, which SQLite would begin with all that the owners have ever said.
        ours = Conversation.objects.filter(pk=OuterRef("conversation"), owner__in=owners)
        self.active = _turns(Q(Exists(ours), status__in=ACTIVE_STATUSES))
        self._known: dict[UUID | None, Turn] = {turn.pk: turn for turn in self.active}
        above = self.active
        while missing := {turn.parent_id for turn in above} - {None, *self._known}:
            above = _turns(Q(pk__in=missing))
            self._known |= {turn.pk: turn for turn in above}

    def of(self, turn: Turn) -> Sequence[Turn]:
        """The turn, the one that it works for, and so on up to the one that nobody has set to work."""
        line = [turn]
        while (above := self._known.get(line[-1].parent_id)) is not None:
            line.append(above)
        return line

    def of_question(self, question: ApprovalRow) -> Sequence[Turn]:
        """The line of the turn that asks; empty where it is to end, or is none of ours."""
        turn = self._known.get(UUID(question.group))
        return self.of(turn) if turn and turn.status == TurnStatus.RUNNING else ()


def _turns(wanted: Q) -> list[Turn]:
    rows = Turn.objects.filter(wanted).select_related("conversation")
    return list(rows.only("status", "agent", "parent_id", "parent_tool_id", "conversation__owner"))


def _latest(owners: Collection[Any]) -> Iterable[Conversation]:
    """The conversation of each owner in which something has happened last: one look into an index for each."""
    if not owners:
        return ()
    own = Conversation.objects.filter(owner=OuterRef("pk"), parent=None).order_by("-updated_at")
    people = get_user_model()._default_manager.filter(pk__in=owners).order_by()
    latest = people.values_list(Subquery(own.values("pk")[:1]))
    return Conversation.objects.filter(pk__in=latest).order_by().only("owner", "title")


def _left_behind(owners: Collection[Any]) -> Iterable[tuple[Conversation, ConversationStatus]]:
    """The conversations in which nothing goes on until a person says so."""
    if not owners:
        return
    # Chosen here, since there are few of both; by owner a database would read all that theirs have ever been.
    parked = Conversation.objects.filter(parked_at__isnull=False).order_by()
    for row in parked.only("owner", "parent"):
        if row.owner_id in owners and row.parent_id is None:
            yield row, ConversationStatus.PARKED
    interrupted = Turn.objects.filter(status=TurnStatus.INTERRUPTED).select_related("conversation")
    interrupted = interrupted.only("number", *(f"conversation__{name}" for name in _PLACE))
    for turn in interrupted.order_by("-queued_at")[:MOST_INTERRUPTED]:
        row = turn.conversation
        is_at_rest = row.parent_id is None and row.parked_at is None
        if row.owner_id in owners and is_at_rest and turn.number == row.last_number:
            yield row, ConversationStatus.INTERRUPTED


def _described(
    question: ApprovalRow, *, asker: Turn, below: Turn, at: datetime
) -> SubAgentQuestion:
    """A question as the page shows it whose call has set `below` to work, which has led to whoever asks."""
    return {
        "turn_id": str(asker.pk),
        "conversation_id": str(asker.conversation_id),
        "agent": asker.agent,
        "parent_turn_id": str(below.parent_id),
        "parent_tool_id": below.parent_tool_id,
        "tool_id": question.call_id,
        "tool_name": question.tool_name,
        "input": question.input,
        **approvals.describe(question, at=at),
    }
