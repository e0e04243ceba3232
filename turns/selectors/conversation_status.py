"""Overviews: the state of a person's conversations, the latest one, and the questions of sub-agents.

Every few seconds, a process reads one overview for all its open sockets, with a constant number of queries.
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
from django.db.models import Exists, OuterRef, Q, QuerySet, Subquery

from governance import approval_store, db_clock
from governance import selectors as governance_selectors
from governance.approval_store import ApprovalRow
from governance.db import run_in_query_thread
from turns.calls import approvals
from turns.core.turns import ACTIVE_STATUSES, TurnStatus
from turns.core.wire import BackgroundWork, SubAgentForm, SubAgentQuestion, arguments_of
from turns.models import Conversation, Message, Turn
from turns.selectors.turn_serializers import text_of

MOST_INTERRUPTED = 200  # the latest interrupted turns of all owners; no list shows more for one


class ConversationStatus(StrEnum):
    """The states of an active conversation, most urgent first, named as in the wire format."""

    ASKING = "asking"
    PARKED = "parked"
    WORKING = "working"
    INTERRUPTED = "interrupted"


_URGENCY = tuple(ConversationStatus)
_TURN_FIELDS = (
    "status",
    "agent",
    "parent_id",
    "parent_tool_id",
    "is_detached",
    "queued_at",
    "started_at",
    "conversation__owner",
)
_CONVERSATION_FIELDS = ("owner", "parent", "parked_at", "deleted_at", "last_number")


@dataclass(frozen=True, slots=True)
class StatusMark:
    """The state of a conversation. `asked_in` lists the conversation of each open question, including sub-agents'.

    `tools_running` is the number of running calls, including sub-agents'. `is_queued` is true if none of its active
    turns has started.
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
    """The states of conversations: `marks` by owner and conversation, and the `latest` conversation of each owner.

    `questions`, `forms` and `background` contain the questions, forms and detached turns of sub-agents, by the
    conversation for which they work. `edited` is the time at which each owner last renamed, pinned or deleted a
    conversation. `last_seqs` contains the number of each conversation's last event.
    """

    marks: dict[Any, dict[UUID, StatusMark]] = field(default_factory=lambda: defaultdict(dict))
    latest: dict[Any, Conversation] = field(default_factory=dict)
    questions: dict[UUID, list[SubAgentQuestion]] = field(default_factory=lambda: defaultdict(list))
    forms: dict[UUID, list[SubAgentForm]] = field(default_factory=lambda: defaultdict(list))
    background: dict[UUID, list[BackgroundWork]] = field(default_factory=lambda: defaultdict(list))
    edited: dict[Any, datetime | None] = field(default_factory=dict)
    last_seqs: dict[UUID, int] = field(default_factory=dict)

    def add(self, conversation: Conversation, mark: StatusMark) -> None:
        """Mark a conversation. If it already has a mark, keep the more urgent state and add up the counts."""
        marks = self.marks[conversation.owner_id]
        earlier = marks.get(conversation.pk)
        marks[conversation.pk] = earlier.joined(mark) if earlier else mark


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamingText:
    """The text so far of an unfinished message."""

    turn_id: UUID
    step: int
    text: str


def read(*, owners: Collection[Any] = (), conversations: Collection[UUID] = ()) -> Overview:
    """Return the marks of these owners, and the questions of sub-agents that work for these conversations.

    Callers must have checked permissions.
    """
    latest = {row.owner_id: row for row in _latest(owners)}
    edited = {owner_id: row.list_edited_at for owner_id, row in latest.items()}
    rows = Conversation.objects.filter(pk__in=conversations).order_by()
    facts = list(rows.values_list("pk", "owner", "last_seq"))
    last_seqs = {pk: last_seq for pk, _owner_id, last_seq in facts}
    overview = Overview(latest=latest, edited=edited, last_seqs=last_seqs)
    # A sub-agent's conversation has the owner of its family, so this includes all of the family.
    lines = _Lines({*owners, *(owner_id for _pk, owner_id, _last_seq in facts)})
    groups = [str(turn.pk) for turn in lines.active]
    questions = approval_store.open_questions(groups)
    running = governance_selectors.running_tools(groups)
    for conversation, standing in _waiting_for_person(owners):
        overview.add(conversation, StatusMark(standing))
    at = db_clock.now()
    for turn in sorted(lines.active, key=lambda turn: turn.queued_at):
        line, tools = lines.of(turn), running.get(str(turn.pk), [])
        if line[-1].conversation.owner_id in owners:
            mark = StatusMark(
                ConversationStatus.WORKING,
                tools_running=len(tools),
                is_queued=turn.status == TurnStatus.QUEUED,
            )
            overview.add(line[-1].conversation, mark)
        for branch, parent in pairwise(line if turn.is_detached else ()):
            if parent.conversation_id in conversations:
                work = _in_background(turn, branch=branch, tools=tools, at=at)
                overview.background[parent.conversation_id].append(work)
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
        for branch, parent in pairwise(line):
            if parent.conversation_id in conversations:
                how: Any = {"asker": line[0], "branch": branch, "at": at}
                if question.form is None:
                    described = _described(question, **how)
                    overview.questions[parent.conversation_id].append(described)
                else:
                    overview.forms[parent.conversation_id].append(_form_of(question, **how))


look = run_in_query_thread(read)


@run_in_query_thread
def streaming_texts(conversations: Collection[UUID]) -> dict[UUID, StreamingText]:
    """Return the stored texts of unfinished messages, by conversation. The caller must have checked permissions."""
    unfinished = Message.objects.filter(
        is_streaming=True, turn__status=TurnStatus.RUNNING, turn__conversation__in=conversations
    )
    return {
        message.conversation_id: StreamingText(
            turn_id=message.turn_id, step=message.step, text=text_of(message.content)
        )
        for message in unfinished.order_by()
    }


class _Lines:
    """The active turns of given owners, each with its ancestors."""

    def __init__(self, owners: Collection[Any]) -> None:
        # Not a join, because SQLite would start with all messages of the owners.
        own = Conversation.objects.filter(
            pk=OuterRef("conversation"), owner__pk__in=owners, deleted_at=None
        )
        self.active = list(_turns(Q(Exists(own), status__in=ACTIVE_STATUSES)))
        self._turns: dict[UUID | None, Turn] = {turn.pk: turn for turn in self.active}
        level = self.active
        while missing := {turn.parent_id for turn in level} - {None, *self._turns}:
            level = list(_turns(Q(pk__in=missing)))
            self._turns |= {turn.pk: turn for turn in level}

    def of(self, turn: Turn) -> Sequence[Turn]:
        """Return the turn and its ancestors up to the root."""
        line = [turn]
        while (parent := self._turns.get(line[-1].parent_id)) is not None:
            line.append(parent)
        return line

    def of_question(self, question: ApprovalRow) -> Sequence[Turn]:
        """Return the asking turn and its ancestors; return nothing if the asking turn is being cancelled or
        belongs to another owner.
        """
        turn = self._turns.get(UUID(question.group))
        return self.of(turn) if turn and turn.status == TurnStatus.RUNNING else ()


def _turns(condition: Q) -> "QuerySet[Turn]":
    return Turn.objects.filter(condition).select_related("conversation").only(*_TURN_FIELDS)


def _latest(owners: Collection[Any]) -> "QuerySet[Any]":
    """Return each owner's latest conversation and the time of the owner's last edit, using two index lookups."""
    own = Conversation.objects.filter(owner=OuterRef("pk"), parent=None, deleted_at=None)
    people = get_user_model()._default_manager.filter(pk__in=owners).order_by()
    latest = people.values_list(Subquery(own.order_by("-updated_at").values("pk")[:1]))
    edited = Conversation.objects.filter(owner=OuterRef("owner"), edited_at__isnull=False)
    last_edit = Subquery(edited.order_by("-edited_at").values("edited_at")[:1])
    rows = Conversation.objects.filter(pk__in=latest).order_by().only("owner", "title")
    return rows.annotate(list_edited_at=last_edit)


def _waiting_for_person(
    owners: Collection[Any],
) -> Iterable[tuple[Conversation, ConversationStatus]]:
    """Return conversations that wait for a person to resume or continue them."""
    if not owners:
        return
    # Select by state first, because few rows match; by owner, a database would read all their conversations.
    parked = Conversation.objects.filter(parked_at__isnull=False, deleted_at=None)
    for row in parked.order_by().only("owner", "parent"):
        if row.owner_id in owners and row.parent_id is None:
            yield row, ConversationStatus.PARKED
    names = ("number", *(f"conversation__{name}" for name in _CONVERSATION_FIELDS))
    interrupted = Turn.objects.filter(status=TurnStatus.INTERRUPTED).order_by("-queued_at")
    for turn in interrupted.select_related("conversation").only(*names)[:MOST_INTERRUPTED]:
        row = turn.conversation
        is_at_rest = row.parent_id is None and row.parked_at is None and row.deleted_at is None
        if row.owner_id in owners and is_at_rest and turn.number == row.last_number:
            yield row, ConversationStatus.INTERRUPTED


def _described(
    question: ApprovalRow, *, asker: Turn, branch: Turn, at: datetime
) -> SubAgentQuestion:
    """Return the question of a descendant, shown at the call that started `branch`, the turn that leads to it."""
    return {
        "turn_id": str(asker.pk),
        "conversation_id": str(asker.conversation_id),
        "agent": asker.agent,
        "parent_turn_id": str(branch.parent_id),
        "parent_tool_id": branch.parent_tool_id,
        "tool_id": question.call_id,
        "tool_name": question.tool_name,
        "tool_title": question.tool_title,
        "tool_server": question.tool_server,
        "input": question.input,
        "arguments": arguments_of(question.input),
        **approvals.describe(question, at=at),
    }


def _form_of(question: ApprovalRow, *, asker: Turn, branch: Turn, at: datetime) -> SubAgentForm:
    """Return the form of a descendant's call, shown at the call that started `branch`."""
    return {
        "turn_id": str(asker.pk),
        "conversation_id": str(asker.conversation_id),
        "agent": asker.agent,
        "parent_turn_id": str(branch.parent_id),
        "parent_tool_id": branch.parent_tool_id,
        "tool_id": question.call_id,
        "tool_name": question.tool_name,
        **approvals.describe_form(question, at=at),
    }


def _in_background(
    turn: Turn, *, branch: Turn, tools: Iterable[tuple[str, str]], at: datetime
) -> BackgroundWork:
    """Return a detached turn, shown at the call that started `branch`, the turn that leads to it."""
    return {
        "turn_id": str(turn.pk),
        "conversation_id": str(turn.conversation_id),
        "agent": turn.agent,
        "status": turn.status,
        "parent_turn_id": str(branch.parent_id),
        "parent_tool_id": branch.parent_tool_id,
        "elapsed_ms": max(
            round((at - (turn.started_at or turn.queued_at)).total_seconds() * 1000), 0
        ),
        "tools": [{"tool_name": name, "tool_title": title} for name, title in tools],
    }
