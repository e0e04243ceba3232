"""Renders the history of a conversation from its rows, and makes repairs stick (H1, H3; sync ORM)."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from itertools import pairwise, starmap
from typing import Any, NamedTuple
from uuid import UUID

from django.db import transaction
from django.db.models import UUIDField
from django.utils import timezone

from governance import CallStatus, Disposition, ToolCall
from governance import repairs as call_repairs
from governance import selectors as governance_selectors
from governance.prepared_statements import Select, fields_of
from turns.core.events import HistoryRepaired
from turns.core.history import repair, violations
from turns.core.messages import Message, ToolResultBlock, ToolUseBlock
from turns.core.repairs import CRASH, Cause, CauseOf, Repair, interruption_note
from turns.core.turns import LIVE_STATUSES, TurnStatus
from turns.events import log, log_lines
from turns.exceptions import ConversationNotFound
from turns.history.cache import CACHE, HistoryCache
from turns.history.rendering import MessageFields, live_part, message_of, with_results
from turns.models import Conversation, Turn
from turns.models import Message as MessageRow
from turns.models import Repair as RepairRow
from turns.storage import history_version

STORED_EVERY = 200  # messages that were checked since it was last stored how many are valid
_STOPPED = {CallStatus.CANCELLED, CallStatus.TIMED_OUT}


class _Row(NamedTuple):
    """What a history needs of a message's row; its turn is live or not at the same moment."""

    position: int
    role: str
    content: Any
    turn_id: UUID
    interrupted: bool
    step: int
    turn__status: str
    turn__number: int  # 0 = not known


_VALID = Select(
    lambda pk: Conversation.objects.filter(pk=pk).values_list("history_version", "valid_position"),
    **fields_of(Conversation, "pk"),
)
_BEHIND = Select(
    lambda conversation_id, position: (
        MessageRow.objects.filter(
            conversation=conversation_id,
            position__gt=position,
            is_streaming=False,
            turn__replaced_by__isnull=True,
        )
        .order_by("position")
        .values_list(*_Row._fields)
    ),
    conversation_id=UUIDField(),
    **fields_of(MessageRow, "position"),
)
_PREVIOUS = Select(
    lambda conversation_id, turn_id: (
        Turn.objects.filter(
            conversation=conversation_id, started_at__isnull=False, replaced_by__isnull=True
        )
        .exclude(pk=turn_id)
        .order_by("-number")[:1]
    ),
    conversation_id=UUIDField(),
    turn_id=UUIDField(),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """Up to which position a history of a version is valid."""

    version: int
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The messages up to the last settled one, and the repairs that this reading made.

    `checked` is how far it was found to be valid, where that is worth being stored. `completed` is the number of its
    last turn, if this reading found it completed; 0 = not known.
    """

    messages: tuple[Message, ...]
    repairs: tuple[Repair, ...] = ()
    events: tuple[log.WireEvent, ...] = ()
    checked: Checked | None = None
    completed: int = 0


def load(conversation_id: UUID, *, found_when: str) -> History:
    """Return the valid history of a conversation. What had to be put right is stored, so it is done once (H3).

    A live turn is never touched. What it has settled is added as it is, its unfinished step is left out.
    """
    return read(conversation_id) or load_repaired(conversation_id, found_when=found_when)


def read(
    conversation_id: UUID,
    *,
    cache: HistoryCache = CACHE,
    locked: Conversation | None = None,
    added: MessageRow | None = None,
) -> History | None:
    """Return the history if it is valid as it is stored. It takes no lock of the conversation, so nobody waits for it.

    What has ended does not change but with a new version (`history_version`). So what is kept of this version is only
    continued, and what was stored as valid is not checked again. None if something has to be repaired. A row that is
    `locked` tells its version itself. `added` is the message that was just put behind all others.
    """
    # The version goes first: what changes from now on is read under the old one, and dropped with it.
    version, valid_position = _validity_of(conversation_id, locked)
    known = cache.get(conversation_id, version=version)
    rows = _rows_behind(conversation_id, known.position, added)
    ended = [row for row in rows if row.turn__status not in LIVE_STATUSES]
    live = [row for row in rows if row.turn__status in LIVE_STATUSES]
    fresh = _render(row for row in ended if row.position > valid_position)
    if violations(fresh):
        return None
    if ended:
        trusted = _render(row for row in ended if row.position <= valid_position)
        known = known.followed_by([*trusted, *fresh], position=ended[-1].position)
        if not live or known.position < live[0].position:
            transaction.on_commit(partial(cache.put, conversation_id, known))
    is_worth_it = known.position - valid_position >= STORED_EVERY
    return History(
        messages=(*known.messages, *live_part(live)),
        checked=Checked(version=version, position=known.position) if is_worth_it else None,
        completed=_number_of_completed(ended),
    )


def _number_of_completed(ended: Sequence[_Row]) -> int:
    if ended and ended[-1].turn__status == TurnStatus.COMPLETED:
        return ended[-1].turn__number
    return 0


def _validity_of(conversation_id: UUID, locked: Conversation | None) -> tuple[int, int]:
    """Return the version of the history, and the position up to which it is known to be valid."""
    if locked is not None:
        return locked.history_version, locked.valid_position
    if (valid := _VALID.first(pk=conversation_id)) is None:
        raise ConversationNotFound
    return valid


def note_checked(conversation_id: UUID, checked: Checked) -> None:
    """Store how far a history was found to be valid, unless it has changed since."""
    unchanged = Conversation.objects.filter(pk=conversation_id, history_version=checked.version)
    unchanged.filter(valid_position__lt=checked.position).update(valid_position=checked.position)


def load_repaired(conversation_id: UUID, *, found_when: str) -> History:
    """Return the history as `load` does, reading and repairing it under the conversation's lock."""
    with transaction.atomic():
        conversation = log.locked(conversation_id)
        ended, live = _rows(conversation)
        messages = _render(ended)
        repaired = repair(messages, cause_of=_cause_of(ended))
        events: list[log.WireEvent] = []
        if repaired.repairs:
            _write_back(ended, messages, repaired.messages)
            at = timezone.now()
            told = record_repairs(conversation_id, repaired.repairs, found_when=found_when, at=at)
            events = log.append(conversation, ended[-1].turn_id, told, at=at)
            history_version.renew([conversation_id])
            messages = _render(_rows(conversation)[0])
        messages += live_part(live)
    return History(messages=tuple(messages), repairs=repaired.repairs, events=tuple(events))


def note_on_previous(conversation_id: UUID, turn_id: UUID) -> str:
    """Return what the prompt of a running turn says about an unfinished turn before it (H5)."""
    previous = _PREVIOUS.first(conversation_id=conversation_id, turn_id=turn_id)
    if previous is None or previous.status == TurnStatus.COMPLETED:
        return ""
    return note_on(previous)


def note_on(previous: Turn) -> str:
    """Return what the turn after this one, which did not reach its end, is told about it."""
    calls = governance_selectors.calls_of_group(str(previous.pk))
    known: dict[str, list[ToolUseBlock]] = defaultdict(list)
    for call in calls:
        is_stopped = call.disposition == Disposition.SETTLED and call.status in _STOPPED
        block = ToolUseBlock(id=call.call_id, name=call.tool_name)
        known["stopped" if is_stopped else call.disposition].append(block)
    return interruption_note(
        _cause(previous),
        indeterminate=known[Disposition.INDETERMINATE],
        stopped=known["stopped"],
        finished=known[Disposition.SETTLED],
        not_started=known[Disposition.NOT_STARTED],
    )


def _rows_behind(
    conversation_id: UUID, position: int, added: MessageRow | None = None
) -> list[_Row]:
    """The finished messages of a conversation behind a position. Where that is the one that a live turn has `added`, it is not read."""
    if added is not None and added.position == position + 1:
        said = (added.position, added.role, added.content, added.turn_id)
        return [_Row(*said, added.interrupted, added.step, TurnStatus.RUNNING.value, 0)]
    return list(starmap(_Row, _BEHIND.all(conversation_id=conversation_id, position=position)))


def _rows(conversation: Conversation) -> tuple[list[MessageRow], list[MessageRow]]:
    """The finished messages of the turns that have ended, and those of the live turn."""
    rows = MessageRow.objects.filter(
        conversation=conversation, is_streaming=False, turn__replaced_by=None
    )
    ended: list[MessageRow] = []
    live: list[MessageRow] = []
    for row in rows.select_related("turn").order_by("position"):
        (live if row.turn.status in LIVE_STATUSES else ended).append(row)
    return ended, live


def _render(rows: Iterable[MessageFields]) -> list[Message]:
    return with_results([_message(row) for row in rows])


def _message(row: MessageFields) -> Message:
    """What a row says; a repair has to know the row, and what is kept must not keep it."""
    said = message_of(row)
    return replace(said, origin=row) if isinstance(row, MessageRow) else said


def _cause_of(rows: Sequence[MessageRow]) -> CauseOf:
    """Why a call of an ended turn may lack its result: how its turn ended."""
    causes = {
        str(row.turn_id): _cause(row.turn) for row in rows if row.turn.status not in LIVE_STATUSES
    }
    return lambda turn_id: causes.get(turn_id or "", CRASH)


def _cause(turn: Turn) -> Cause:
    return Cause.of_turn(turn.status, reason=turn.ended_by_reason, error_code=turn.error_code)


def record_repairs(
    conversation_id: UUID, repairs: Sequence[Repair], *, found_when: str, at: datetime
) -> HistoryRepaired:
    """Write an audit row for each repair; return the event that tells clients of them."""
    RepairRow.objects.bulk_create(
        RepairRow(
            conversation_id=conversation_id,
            turn_id=UUID(repaired.turn_id) if repaired.turn_id else None,
            tool_id=repaired.tool_id[:200],
            kind=repaired.kind.value,
            cause=repaired.cause.name,
            text=repaired.text,
            found_when=found_when,
            at=at,
        )
        for repaired in repairs
    )
    log_lines.history_repaired(conversation_id, repairs, found_when=found_when)
    return HistoryRepaired(
        repairs=[
            {"tool_id": repaired.tool_id, "kind": repaired.kind.value, "cause": repaired.cause.name}
            for repaired in repairs
        ]
    )


def _write_back(
    rows: Sequence[MessageRow], before: Sequence[Message], after: Sequence[Message]
) -> None:
    """Store a repaired history: text and calls in the messages' rows, results in the calls' own rows."""
    said = _by_row(before)
    kept = _by_row(message for message in after if _is_kept(message))
    changed = {row for row in rows if row in kept and kept[row] != said[row]}
    answered = dict(_answers(before))
    for row, (uses, reply) in _answers(after):
        if answered.get(row) == (uses, reply) and reply.origin not in changed:
            continue
        _settle(row, uses, reply.tool_results)
        changed |= _by_row([reply]).keys() & kept.keys()
    for row in changed:
        blocks = (*kept[row].visible, *kept[row].tool_uses)
        row.content = [block.to_json() for block in blocks]
    MessageRow.objects.bulk_update(changed, ["content"])
    MessageRow.objects.filter(pk__in=[row.pk for row in rows if row not in kept]).delete()


def _by_row(messages: Iterable[Message]) -> dict[MessageRow, Message]:
    """The messages that have a row; what a repair has added has none."""
    return {m.origin: m for m in messages if isinstance(m.origin, MessageRow)}


def _is_kept(message: Message) -> bool:
    """Whether a message's row says anything: results are on the rows of their calls."""
    has_words = any(not text.is_blank for text in message.texts)
    return has_words or bool(message.tool_uses or message.attachments)


def _answers(
    messages: Sequence[Message],
) -> Iterator[tuple[MessageRow, tuple[tuple[ToolUseBlock, ...], Message]]]:
    """The row of each message with calls, those calls, and the message after it, where their results belong."""
    for message, reply in pairwise((*messages, Message(role="user", content=()))):
        if message.tool_uses and isinstance(message.origin, MessageRow):
            yield message.origin, (message.tool_uses, reply)


def _settle(
    row: MessageRow, uses: Sequence[ToolUseBlock], results: Sequence[ToolResultBlock]
) -> None:
    calls = [
        ToolCall(
            id=use.id,
            tool_name=use.name,
            input=use.input,
            scope=str(row.conversation_id),
            position=place,
        )
        for place, use in enumerate(uses)
    ]
    by_id = {block.tool_use_id: block for block in results}
    call_repairs.settle(calls, results=by_id, group=str(row.turn_id), step=row.step)
