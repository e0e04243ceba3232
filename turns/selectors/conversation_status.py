"""Overviews: which conversations of a person work, wait or were interrupted, which is the latest, what sub-agents ask.

One is read every few seconds for all open sockets of a process at once. That is a handful of queries, however many those are.
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
from django.db.models import Exists, OuterRef, Q, QuerySet, Subquery, UUIDField
from django.utils import timezone

from governance import approval_store
from governance import selectors as governance_selectors
from governance.approval_store import ApprovalRow
from governance.db import run_in_query_thread
from governance.prepared_statements import Select, Several
from turns.calls import approvals
from turns.core.turns import ACTIVE_STATUSES, TurnStatus
from turns.core.wire import BackgroundWork, SubAgentQuestion
from turns.models import Conversation, Turn

MOST_INTERRUPTED = 200  # of all owners together, the latest; a list shows as many of one


class ConversationStatus(StrEnum):
    """How a conversation stands that is not at rest, the most urgent first; the names are the wire's."""

    ASKING = "asking"
    PARKED = "parked"
    WORKING = "working"
    INTERRUPTED = "interrupted"


_URGENCY = tuple(ConversationStatus)
_SHOWN = (
    "status",
    "agent",
    "parent_id",
    "parent_tool_id",
    "is_detached",
    "queued_at",
    "started_at",
    "conversation__owner",
)
_PLACE = ("owner", "parent", "parked_at", "deleted_at", "last_number")


@dataclass(frozen=True, slots=True)
class StatusMark:
    """How a conversation stands; `asked_in` says where its open questions were put, once for each: by sub-agents too.

    `tools_running` counts the calls at work, those of sub-agents too; `is_queued` = none of its turns has begun yet.
    """

    standing: ConversationStatus
    asked_in: tuple[UUID, ...] = ()
    tools_running: int = 0
    is_queued: bool = False

    def joined(self, other: "StatusMark") -> "StatusMark":
        return StatusMark(
            standing=min(self.standing, other.standing, key=_URGENCY.index),
            asked_in=self.asked_in + other.asked_in,
            tools_running=self.tools_running + other.tools_running,
            is_queued=self.is_queued and other.is_queued,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """How conversations stand: marks by owner and conversation, latest conversations by owner.

    `questions` and `background` are by the conversation that sub-agents work for. `edited` is when each owner has last
    renamed, pinned or deleted one. `last_seqs` are the numbers of the last events.
    """

    marks: dict[Any, dict[UUID, StatusMark]] = field(default_factory=lambda: defaultdict(dict))
    latest: dict[Any, Conversation] = field(default_factory=dict)
    questions: dict[UUID, list[SubAgentQuestion]] = field(default_factory=lambda: defaultdict(list))
    background: dict[UUID, list[BackgroundWork]] = field(default_factory=lambda: defaultdict(list))
    edited: dict[Any, datetime | None] = field(default_factory=dict)
    last_seqs: dict[UUID, int] = field(default_factory=dict)

    def add(self, conversation: Conversation, mark: StatusMark) -> None:
        """Mark a conversation; of two marks the more urgent one stays, with what both count."""
        marks = self.marks[conversation.owner_id]
        known = marks.get(conversation.pk)
        marks[conversation.pk] = known.joined(mark) if known else mark


def read(*, owners: Collection[Any] = (), conversations: Collection[UUID] = ()) -> Overview:
    """Return the marks of some owners, and what is asked below some conversations; the caller has checked who asks."""
    latest = {row.owner_id: row for row in _LATEST.all(owners=owners)}
    edited = {owner_id: row.list_edited_at for owner_id, row in latest.items()}
    places = _PLACES.all(conversations=conversations)
    last_seqs = {pk: last_seq for pk, _owner_id, last_seq in places}
    overview = Overview(latest=latest, edited=edited, last_seqs=last_seqs)
    # A sub-agent's conversation has the owner of its family: these are all who work for one.
    lines = _Lines({*owners, *(owner_id for _pk, owner_id, _last_seq in places)})
    groups = [str(turn.pk) for turn in lines.active]
    questions = approval_store.open_questions(groups)
    running = governance_selectors.running_tools(groups)
    for conversation, standing in _left_behind(owners):
        overview.add(conversation, StatusMark(standing))
    at = timezone.now()
    for turn in sorted(lines.active, key=lambda turn: turn.queued_at):
        line, tools = lines.of(turn), running.get(str(turn.pk), [])
        if line[-1].conversation.owner_id in owners:
            overview.add(line[-1].conversation, _at_work(turn, tools_running=len(tools)))
        for below, above in pairwise(line if turn.is_detached else ()):
            if above.conversation_id in conversations:
                work = _in_background(turn, below=below, tools=tools, at=at)
                overview.background[above.conversation_id].append(work)
    _add_questions(overview, lines, questions, owners=owners, conversations=conversations, at=at)
    return overview


def _add_questions(
    overview: Overview,
    lines: "_Lines",
    questions: Iterable[ApprovalRow],
    *,
    owners: Collection[Any],
    conversations: Collection[UUID],
    at: datetime,
) -> None:
    for question in questions:
        if not (line := lines.of_question(question)):
            continue
        root = line[-1].conversation
        if root.owner_id in owners:
            overview.add(root, StatusMark(ConversationStatus.ASKING, (line[0].conversation_id,)))
        for below, above in pairwise(line):
            if above.conversation_id in conversations:
                described = _described(question, asker=line[0], below=below, at=at)
                overview.questions[above.conversation_id].append(described)


look = run_in_query_thread(read)


def _at_work(turn: Turn, *, tools_running: int) -> StatusMark:
    return StatusMark(
        ConversationStatus.WORKING,
        tools_running=tools_running,
        is_queued=turn.status == TurnStatus.QUEUED,
    )


class _Lines:
    """The turns of some owners that wait or run, each with those that it works for."""

    def __init__(self, owners: Collection[Any]) -> None:
        self.active = _ACTIVE.all(owners=owners)
        self._known: dict[UUID | None, Turn] = {turn.pk: turn for turn in self.active}
        above = self.active
        while missing := {turn.parent_id for turn in above} - {None, *self._known}:
            above = _ABOVE.all(turns=missing)
            self._known |= {turn.pk: turn for turn in above}

    def of(self, turn: Turn) -> Sequence[Turn]:
        """The turn and each parent of it, up to the root."""
        line = [turn]
        while (above := self._known.get(line[-1].parent_id)) is not None:
            line.append(above)
        return line

    def of_question(self, question: ApprovalRow) -> Sequence[Turn]:
        """The line of the turn that asks; empty where it is to end, or is none of ours."""
        turn = self._known.get(UUID(question.group))
        return self.of(turn) if turn and turn.status == TurnStatus.RUNNING else ()


def _turns(wanted: Q) -> "QuerySet[Turn]":
    return Turn.objects.filter(wanted).select_related("conversation").only(*_SHOWN)


def _active(owners: Any) -> "QuerySet[Turn]":
    # Not by a join, which SQLite would begin with all that the owners have ever said.
    ours = Conversation.objects.filter(
        pk=OuterRef("conversation"), owner__pk__in=owners, deleted_at=None
    )
    return _turns(Q(Exists(ours), status__in=ACTIVE_STATUSES))


def _latest(owners: Any) -> "QuerySet[Any]":
    """The conversation of each owner in which something has happened last, and when one was edited last.

    Two looks into an index for each.
    """
    own = Conversation.objects.filter(owner=OuterRef("pk"), parent=None, deleted_at=None)
    people = get_user_model()._default_manager.filter(pk__in=owners).order_by()
    latest = people.values_list(Subquery(own.order_by("-updated_at").values("pk")[:1]))
    edited = Conversation.objects.filter(owner=OuterRef("owner"), edited_at__isnull=False)
    last_edit = Subquery(edited.order_by("-edited_at").values("edited_at")[:1])
    rows = Conversation.objects.filter(pk__in=latest).order_by().only("owner", "title")
    return rows.annotate(list_edited_at=last_edit)


def _left_behind(owners: Collection[Any]) -> Iterable[tuple[Conversation, ConversationStatus]]:
    """The conversations in which nothing goes on until a person says so."""
    if not owners:
        return
    # Chosen here, since there are few of both; by owner a database would read all that theirs have ever been.
    for row in _PARKED.all():
        if row.owner_id in owners and row.parent_id is None:
            yield row, ConversationStatus.PARKED
    for turn in _INTERRUPTED.all():
        row = turn.conversation
        is_at_rest = row.parent_id is None and row.parked_at is None and row.deleted_at is None
        if row.owner_id in owners and is_at_rest and turn.number == row.last_number:
            yield row, ConversationStatus.INTERRUPTED


_OWNER = Conversation._meta.get_field("owner")
_LATEST = Select(_latest, owners=Several(_OWNER))
_PLACES = Select(
    lambda conversations: (
        Conversation.objects.filter(pk__in=conversations)
        .order_by()
        .values_list("pk", "owner", "last_seq")
    ),
    conversations=Several(UUIDField()),
)
_ACTIVE = Select(_active, owners=Several(_OWNER))
_ABOVE = Select(lambda turns: _turns(Q(pk__in=turns)), turns=Several(UUIDField()))
_PARKED = Select(
    lambda: (
        Conversation.objects.filter(parked_at__isnull=False, deleted_at=None)
        .order_by()
        .only("owner", "parent")
    )
)
_INTERRUPTED = Select(
    lambda: (
        Turn.objects.filter(status=TurnStatus.INTERRUPTED)
        .select_related("conversation")
        .only("number", *(f"conversation__{name}" for name in _PLACE))
        .order_by("-queued_at")[:MOST_INTERRUPTED]
    )
)


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
        "tool_title": question.tool_title,
        "tool_server": question.tool_server,
        "input": question.input,
        **approvals.describe(question, at=at),
    }


def _in_background(
    turn: Turn, *, below: Turn, tools: Iterable[tuple[str, str]], at: datetime
) -> BackgroundWork:
    """A detached turn as the page shows it that works for a call which has set `below` to work."""
    return {
        "turn_id": str(turn.pk),
        "conversation_id": str(turn.conversation_id),
        "agent": turn.agent,
        "status": turn.status,
        "parent_turn_id": str(below.parent_id),
        "parent_tool_id": below.parent_tool_id,
        "elapsed_ms": max(
            round((at - (turn.started_at or turn.queued_at)).total_seconds() * 1000), 0
        ),
        "tools": [{"tool_name": name, "tool_title": title} for name, title in tools],
    }
