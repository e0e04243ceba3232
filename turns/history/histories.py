"""Renders the history of a conversation from its rows, and stores repairs (H1, H3).

Rendered and checked histories are cached, so that a turn only reads the messages added since. The functions use the
synchronous ORM.
"""

import threading
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from itertools import chain, pairwise, starmap
from sys import getsizeof
from typing import Any, NamedTuple
from uuid import UUID

from governance import CallStatus, Disposition, Effects, ToolCall, db_clock, recorder
from governance import selectors as governance_selectors
from governance.db import atomic, on_commit
from turns.conf import app_settings
from turns.core.events import HistoryRepaired
from turns.core.messages import (
    AttachmentBlock,
    Block,
    Message,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from turns.core.prompt_changes import PromptChange
from turns.core.repairs import CRASH, Cause, CauseOf, Repair, interruption_note, repair, violations
from turns.core.turns import LIVE_STATUSES, TurnStatus
from turns.events import log, log_lines
from turns.exceptions import ConversationNotFound
from turns.models import Conversation, Turn
from turns.models import Message as MessageRow
from turns.models import Repair as RepairRow
from turns.storage import history_version

STORED_EVERY = 200  # number of newly checked messages after which the valid position is stored
_OVERHEAD = 500  # bytes of memory per message, in addition to its text
_STOPPED = {CallStatus.CANCELLED, CallStatus.TIMED_OUT}


class _Row(NamedTuple):
    """The columns of a message and of its turn that a history needs, read with one query."""

    position: int
    role: str
    content: Any
    turn_id: UUID
    interrupted: bool
    step: int
    provider_parts: Any
    usage: Any
    note: str
    turn__status: str
    turn__number: int


AnyRow = MessageRow | _Row


def message_of(row: AnyRow) -> Message:
    """Return a row as a message. It begins with the note on the previous turn, if the model read one."""
    note = [{"type": "text", "text": row.note}] if row.note else []
    message = Message.from_json(
        {
            "role": row.role,
            "content": [*note, *row.content],
            "turn_id": row.turn_id,
            "interrupted": row.interrupted,
        }
    )
    if not row.provider_parts and not row.usage:
        return message
    return replace(message, provider_parts=row.provider_parts, usage=row.usage)


def with_results(messages: Sequence[Message]) -> list[Message]:
    """Insert each call's result, from its own row, after the message with the call (invariant 10).

    Images that calls returned follow their results.
    """
    with_calls = dict.fromkeys(message.turn_id or "" for message in messages if message.tool_uses)
    results = {}
    images = {}
    for call in governance_selectors.results_of_groups(with_calls):
        key = (call.group, call.call_id)
        results[key] = ToolResultBlock(
            tool_use_id=call.call_id,
            content=call.result,
            is_error=call.is_error,
            is_synthetic=call.is_synthetic,
        )
        images[key] = [
            AttachmentBlock.of_result(image, tool_use_id=call.call_id) for image in call.images
        ]
    history = []
    for message in messages:
        history.append(message)
        keys = dict.fromkeys((message.turn_id, use.id) for use in message.tool_uses)
        if blocks := [results[key] for key in keys if key in results]:
            image_blocks = chain.from_iterable(images[key] for key in keys if key in images)
            history.append(
                Message(role="user", content=(*blocks, *image_blocks), turn_id=message.turn_id)
            )
    return history


def live_part(rows: Sequence[AnyRow]) -> list[Message]:
    """Return the steps of a live turn whose calls have all ended; only the user's message if these steps are not
    a valid history.
    """
    messages = [(row.step, message_of(row)) for row in rows]
    open_steps = {
        call.step
        for turn_id in {message.turn_id for _step, message in messages if message.tool_uses}
        for call in governance_selectors.calls_of_group(str(turn_id))
        if not CallStatus(call.status).is_terminal
    }
    settled = with_results(
        [message for step, message in messages if message.role == "user" or step not in open_steps]
    )
    if not violations(settled):
        return settled
    from_user = [message for _step, message in messages if message.role == "user"]
    return [message for message in from_user if not violations([message])]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """The messages of a conversation up to `position`, which are a valid history of this version."""

    version: int
    position: int = 0
    messages: tuple[Message, ...] = ()
    memory: int = 0

    def followed_by(self, messages: Sequence[Message], *, position: int) -> "Settled":
        """Return the history extended by these messages, the last one at `position`."""
        return Settled(
            version=self.version,
            position=position,
            messages=(*self.messages, *messages),
            memory=self.memory + sum(map(_memory_of, messages)),
        )


class HistoryCache:
    """A cache of the most recently used histories, limited to `max_bytes` in total.

    A history is returned only if its version is the one in the database.
    """

    def __init__(self, max_bytes: Callable[[], int]) -> None:
        self._max_bytes = max_bytes
        self._histories: OrderedDict[UUID, Settled] = OrderedDict()
        self._memory = 0
        self._lock = threading.Lock()

    def get(self, conversation_id: UUID, *, version: int) -> Settled:
        """Return the cached history of this version, or an empty history if there is none."""
        with self._lock:
            settled = self._histories.get(conversation_id)
            if settled is None or settled.version != version:
                return Settled(version=version)
            self._histories.move_to_end(conversation_id)
            return settled

    def put(self, conversation_id: UUID, settled: Settled) -> None:
        """Store a history, and drop the least recently used ones if there are too many."""
        with self._lock:
            self._drop(conversation_id)
            self._histories[conversation_id] = settled
            self._memory += settled.memory
            while self._memory > self._max_bytes():
                self._drop(next(iter(self._histories)))

    def _drop(self, conversation_id: UUID) -> None:
        dropped = self._histories.pop(conversation_id, None)
        self._memory -= dropped.memory if dropped else 0


CACHE = HistoryCache(lambda: app_settings.HISTORY_CACHE_MEMORY)


def _memory_of(message: Message) -> int:
    """Return the approximate size of a message in bytes."""
    content = sum(map(_memory_of_block, message.content))
    return _OVERHEAD + content + _memory_of_json(message.provider_parts)


def _memory_of_block(block: Block) -> int:
    match block:
        case TextBlock(text=text) | ToolResultBlock(content=text):
            return getsizeof(text)
        case AttachmentBlock():
            return _OVERHEAD
        case ToolUseBlock(input=arguments):
            return _memory_of_json(arguments)


def _memory_of_json(value: Any) -> int:
    parts: Iterable[Any] = ()
    if isinstance(value, Mapping):
        parts = chain(value.keys(), value.values())
    elif isinstance(value, list | tuple):
        parts = value
    return getsizeof(value) + sum(map(_memory_of_json, parts))


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """The position up to which the history of this version is valid."""

    version: int
    position: int


class LastPrompt(NamedTuple):
    """The fields of a conversation that describe its last prompt.

    `prompt_head` is its `PromptHead`, with the number of the first turn that had this head. `prompt_change` is the
    reason that the next prompt will not continue it. `context` is the part of the messages that it contained.
    """

    history_version: int
    prompt_head: dict[str, Any]
    prompt_change: str
    context: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """A valid history, and the repairs made while reading it.

    `checked` is the position up to which it is valid, if that is worth storing. `follows_completed` is true if the
    turn before the live one has completed. `last` describes the last prompt.
    """

    messages: tuple[Message, ...]
    repairs: tuple[Repair, ...] = ()
    events: tuple[log.WireEvent, ...] = ()
    checked: Checked | None = None
    follows_completed: bool = False
    last: LastPrompt


def load(conversation_id: UUID, *, found_when: str) -> History:
    """Return the valid history of a conversation. Repairs are stored, so that each is made only once (H3).

    A live turn is never changed: its settled steps are added unchanged, and its unfinished step is left out.
    """
    return read(conversation_id) or load_repaired(conversation_id, found_when=found_when)


def read(conversation_id: UUID, *, cache: HistoryCache = CACHE) -> History | None:
    """Return the history if it is valid as stored, without locking the conversation.

    Ended turns change only together with the version (`history_version`). A cached history of this version is therefore
    only extended, and messages up to a stored valid position are not checked again. Return None if a repair is needed.
    """
    # Read the version first: a later change is then cached under the old version, and dropped with it.
    conversation = Conversation.objects.filter(pk=conversation_id)
    row = conversation.values_list("valid_position", *LastPrompt._fields).first()
    if row is None:
        raise ConversationNotFound
    valid_position, version, *_ = row
    settled = cache.get(conversation_id, version=version)
    rows = _rows_after(conversation_id, settled.position)
    ended = [row for row in rows if row.turn__status not in LIVE_STATUSES]
    live = [row for row in rows if row.turn__status in LIVE_STATUSES]
    fresh = _render(row for row in ended if row.position > valid_position)
    if violations(fresh):
        return None
    if ended:
        trusted = _render(row for row in ended if row.position <= valid_position)
        settled = settled.followed_by([*trusted, *fresh], position=ended[-1].position)
        if not live or settled.position < live[0].position:
            on_commit(partial(cache.put, conversation_id, settled))
    is_worth_storing = settled.position - valid_position >= STORED_EVERY
    return History(
        messages=(*settled.messages, *live_part(live)),
        checked=Checked(version=version, position=settled.position) if is_worth_storing else None,
        follows_completed=bool(ended)
        and bool(live)
        and ended[-1].turn__status == TurnStatus.COMPLETED
        and live[0].turn__number == ended[-1].turn__number + 1,
        last=LastPrompt(*row[1:]),
    )


def note_checked(conversation_id: UUID, checked: Checked) -> None:
    """Store the valid position of a history, unless it has changed since."""
    unchanged = Conversation.objects.filter(pk=conversation_id, history_version=checked.version)
    unchanged.filter(valid_position__lt=checked.position).update(valid_position=checked.position)


def load_repaired(conversation_id: UUID, *, found_when: str) -> History:
    """Read and repair the history of a conversation while its row is locked, and return the history."""
    with atomic():
        conversation = log.locked(conversation_id)
        ended, live = _rows(conversation)
        messages = _render(ended)
        repaired = repair(messages, cause_of=_cause_of(ended))
        events: list[log.WireEvent] = []
        if repaired.repairs:
            _write_back(ended, messages, repaired.messages)
            at = db_clock.now()
            event = record_repairs(conversation_id, repaired.repairs, found_when=found_when, at=at)
            events = log.append(conversation, ended[-1].turn_id, event, at=at)
            history_version.renew([conversation_id], PromptChange.REPAIR)
            messages = _render(_rows(conversation)[0])
        messages += live_part(live)
        rows = Conversation.objects.filter(pk=conversation_id).values_list(*LastPrompt._fields)
        last = LastPrompt(*rows.get())
    return History(
        messages=tuple(messages), repairs=repaired.repairs, events=tuple(events), last=last
    )


def note_on_previous(conversation_id: UUID, turn_id: UUID) -> str:
    """Return the note for the prompt about an unfinished turn before the running one (H5)."""
    turns = Turn.objects.filter(
        conversation=conversation_id, started_at__isnull=False, replaced_by__isnull=True
    )
    previous = turns.exclude(pk=turn_id).order_by("-number").first()
    if previous is None or previous.status == TurnStatus.COMPLETED:
        return ""
    return note_on(previous)


def note_on(previous: Turn) -> str:
    """Return the note about an unfinished turn, for the prompt of the next turn."""
    calls = governance_selectors.calls_of_group(str(previous.pk))
    blocks: dict[str, list[ToolUseBlock]] = defaultdict(list)
    for call in calls:
        is_stopped = call.disposition == Disposition.SETTLED and call.status in _STOPPED
        block = ToolUseBlock(id=call.call_id, name=call.tool_name)
        effect = "cut" if call.effects == Effects.CUT else "stopped"
        blocks[effect if is_stopped else call.disposition].append(block)
    return interruption_note(
        _cause(previous),
        indeterminate=blocks[Disposition.INDETERMINATE],
        cut=blocks["cut"],
        stopped=blocks["stopped"],
        finished=blocks[Disposition.SETTLED],
        not_started=blocks[Disposition.NOT_STARTED],
    )


def _rows_after(conversation_id: UUID, position: int) -> list[_Row]:
    """Return the finished messages of a conversation after a position."""
    rows = MessageRow.objects.filter(
        conversation=conversation_id,
        position__gt=position,
        is_streaming=False,
        turn__replaced_by__isnull=True,
    )
    return list(starmap(_Row, rows.order_by("position").values_list(*_Row._fields)))


def _rows(conversation: Conversation) -> tuple[list[MessageRow], list[MessageRow]]:
    """Return the finished messages of ended turns, and those of the live turn."""
    rows = MessageRow.objects.filter(
        conversation=conversation, is_streaming=False, turn__replaced_by=None
    )
    ended: list[MessageRow] = []
    live: list[MessageRow] = []
    for row in rows.select_related("turn").order_by("position"):
        (live if row.turn.status in LIVE_STATUSES else ended).append(row)
    return ended, live


def _render(rows: Iterable[AnyRow]) -> list[Message]:
    """Return rows as messages with results. Those from a `MessageRow` have it as `origin`, because repairs need it."""
    return with_results(
        [
            replace(message_of(row), origin=row) if isinstance(row, MessageRow) else message_of(row)
            for row in rows
        ]
    )


def _cause_of(rows: Sequence[MessageRow]) -> CauseOf:
    """Return a function that derives, from a turn's ending, why a call of the turn has no result."""
    causes = {
        str(row.turn_id): _cause(row.turn) for row in rows if row.turn.status not in LIVE_STATUSES
    }
    return lambda turn_id: causes.get(turn_id or "", CRASH)


def _cause(turn: Turn) -> Cause:
    return Cause.of_turn(turn.status, reason=turn.ended_by_reason, error_code=turn.error_code)


def record_repairs(
    conversation_id: UUID, repairs: Sequence[Repair], *, found_when: str, at: datetime
) -> HistoryRepaired:
    """Write an audit row for each repair; return the event for clients."""
    RepairRow.objects.bulk_create(
        RepairRow(
            conversation_id=conversation_id,
            turn_id=UUID(each.turn_id) if each.turn_id else None,
            tool_id=each.tool_id[:200],
            kind=each.kind.value,
            cause=each.cause.name,
            text=each.text,
            found_when=found_when,
            at=at,
        )
        for each in repairs
    )
    log_lines.history_repaired(conversation_id, repairs, found_when=found_when)
    return HistoryRepaired(
        repairs=[
            {"tool_id": each.tool_id, "kind": each.kind.value, "cause": each.cause.name}
            for each in repairs
        ]
    )


def _write_back(
    rows: Sequence[MessageRow], before: Sequence[Message], after: Sequence[Message]
) -> None:
    """Store a repaired history: text and calls in the messages' rows, results in the calls' own rows."""
    stored = _by_row(before)
    repaired = _by_row(message for message in after if _has_own_content(message))
    changed = {row for row in rows if row in repaired and repaired[row] != stored[row]}
    stored_answers = dict(_answers(before))
    for row, (uses, reply) in _answers(after):
        if stored_answers.get(row) == (uses, reply) and reply.origin not in changed:
            continue
        _settle(row, uses, reply.tool_results)
        changed |= _by_row([reply]).keys() & repaired.keys()
    for row in changed:
        blocks: list[Block] = [*repaired[row].visible, *repaired[row].tool_uses]
        if row.note and blocks[:1] == [TextBlock(text=row.note)]:
            del blocks[0]
        row.content = [block.to_json() for block in blocks]
    MessageRow.objects.bulk_update(changed, ["content"])
    MessageRow.objects.filter(pk__in=[row.pk for row in rows if row not in repaired]).delete()


def _by_row(messages: Iterable[Message]) -> dict[MessageRow, Message]:
    """Return the messages that have a row; messages added by repairs have none."""
    return {m.origin: m for m in messages if isinstance(m.origin, MessageRow)}


def _has_own_content(message: Message) -> bool:
    """Return whether a message has content besides results, which are in the rows of their calls."""
    has_text = any(not text.is_blank for text in message.texts)
    return has_text or bool(message.tool_uses or message.attachments)


def _answers(
    messages: Sequence[Message],
) -> Iterator[tuple[MessageRow, tuple[tuple[ToolUseBlock, ...], Message]]]:
    """Yield the row of each message with calls, the calls, and the following message, which contains their results."""
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
            position=position,
        )
        for position, use in enumerate(uses)
    ]
    by_id = {block.tool_use_id: block for block in results}
    recorder.settle_repaired(calls, results=by_id, group=str(row.turn_id), step=row.step)
