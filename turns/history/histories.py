"""Renders the history of a conversation from its rows, and makes repairs stick (H1, H3; sync ORM)."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from governance import CallStatus, Disposition, ToolCall
from governance import repairs as call_repairs
from governance import selectors as governance_selectors
from turns.core.events import HistoryRepaired
from turns.core.history import repair, violations
from turns.core.messages import Message, TextBlock, ToolResultBlock, ToolUseBlock
from turns.core.repairs import CRASH, Cause, CauseOf, Repair, interruption_note
from turns.core.turns import LIVE_STATUSES, TurnStatus
from turns.events import log
from turns.models import Conversation, Turn
from turns.models import Message as MessageRow
from turns.models import Repair as RepairRow


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The messages up to the last one that is settled, and the repairs that were made just now to get there."""

    messages: tuple[Message, ...]
    repairs: tuple[Repair, ...] = ()
    events: tuple[log.WireEvent, ...] = ()


def load(conversation_id: UUID, *, found_when: str) -> History:
    """Return the valid history of a conversation; what had to be put right is stored, so it is done once (H3).

    A live turn is never touched: what it has settled is added as it is, its unfinished step is left out.
    """
    return read(conversation_id) or load_repaired(conversation_id, found_when=found_when)


def read(conversation_id: UUID) -> History | None:
    """Return the history if it is valid as it is stored; without the conversation's lock, so that nobody waits for it.

    What has ended does not change any more, unless it has to be repaired: then this returns None.
    """
    live_turns = Turn.objects.filter(conversation=conversation_id, status__in=LIVE_STATUSES)
    live_ids = set(live_turns.values_list("pk", flat=True))
    rows = MessageRow.objects.filter(conversation=conversation_id, is_streaming=False)
    if live_ids:
        live = list(rows.filter(turn__in=live_ids).order_by("position"))
        rows = rows.exclude(turn__in=live_ids)
    else:
        live = []
    ended = [
        Message.from_json(
            {"role": role, "content": content, "turn_id": turn_id, "interrupted": interrupted}
        )
        for role, content, turn_id, interrupted in rows.order_by("position").values_list(
            "role", "content", "turn_id", "interrupted"
        )
    ]
    messages = _with_results(ended)
    return None if violations(messages) else History(messages=(*messages, *_live_part(live)))


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
            messages = _render(_rows(conversation)[0])
        messages += _live_part(live)
    return History(messages=tuple(messages), repairs=repaired.repairs, events=tuple(events))


def note_on_previous(turn: Turn) -> str:
    """Return what the prompt of `turn` says about the turn before it, if that did not reach its end (H5)."""
    ended = Turn.objects.filter(
        conversation_id=turn.conversation_id, number__lt=turn.number, started_at__isnull=False
    )
    previous = ended.order_by("-number").first()
    if previous is None or previous.status == TurnStatus.COMPLETED:
        return ""
    calls = governance_selectors.calls_of_group(str(previous.pk))
    by_disposition: dict[str, list[ToolUseBlock]] = defaultdict(list)
    for call in calls:
        by_disposition[call.disposition].append(ToolUseBlock(id=call.call_id, name=call.tool_name))
    return interruption_note(
        _cause(previous),
        indeterminate=by_disposition[Disposition.INDETERMINATE],
        settled=by_disposition[Disposition.SETTLED],
        not_started=by_disposition[Disposition.NOT_STARTED],
    )


def _rows(conversation: Conversation) -> tuple[list[MessageRow], list[MessageRow]]:
    """The finished messages of the turns that have ended, and those of the live turn."""
    rows = MessageRow.objects.filter(conversation=conversation, is_streaming=False)
    ended: list[MessageRow] = []
    live: list[MessageRow] = []
    for row in rows.select_related("turn").order_by("position"):
        (live if row.turn.status in LIVE_STATUSES else ended).append(row)
    return ended, live


def _live_part(rows: Sequence[MessageRow]) -> list[Message]:
    """The steps of a live turn whose calls have all ended; if they are no valid history, what the user said."""
    if not rows:
        return []
    open_steps = {
        call.step
        for call in governance_selectors.calls_of_group(str(rows[0].turn_id))
        if not CallStatus(call.status).is_terminal
    }
    settled = _render([row for row in rows if row.role == "user" or row.step not in open_steps])
    if not violations(settled):
        return settled
    said = [_message(row) for row in rows if row.role == "user"]
    return [message for message in said if not violations([message])]


def _render(rows: Sequence[MessageRow]) -> list[Message]:
    """Put each call's result, from its own row, behind the message that asked for it (invariant 10)."""
    return _with_results([_message(row) for row in rows])


def _with_results(said: Sequence[Message]) -> list[Message]:
    with_calls = dict.fromkeys(message.turn_id or "" for message in said if message.tool_uses)
    results = {
        (call.group, call.call_id): ToolResultBlock(
            tool_use_id=call.call_id,
            content=call.result,
            is_error=call.is_error,
            is_synthetic=call.is_synthetic,
        )
        for call in governance_selectors.results_of_groups(with_calls)
    }
    messages = []
    for message in said:
        messages.append(message)
        asked = dict.fromkeys((message.turn_id, use.id) for use in message.tool_uses)
        if found := tuple(results[key] for key in asked if key in results):
            messages.append(Message(role="user", content=found, turn_id=message.turn_id))
    return messages


def _message(row: MessageRow) -> Message:
    fields = {
        "role": row.role,
        "content": row.content,
        "turn_id": str(row.turn_id),
        "interrupted": row.interrupted,
    }
    return replace(Message.from_json(fields), origin=row)


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
        blocks: tuple[TextBlock | ToolUseBlock, ...] = (*kept[row].texts, *kept[row].tool_uses)
        row.content = [block.to_json() for block in blocks]
    MessageRow.objects.bulk_update(changed, ["content"])
    MessageRow.objects.filter(pk__in=[row.pk for row in rows if row not in kept]).delete()


def _by_row(messages: Iterable[Message]) -> dict[MessageRow, Message]:
    """The messages that have a row; what a repair has added has none."""
    return {m.origin: m for m in messages if isinstance(m.origin, MessageRow)}


def _is_kept(message: Message) -> bool:
    """Whether a message's row says anything: results are on the rows of their calls."""
    return bool(message.tool_uses) or any(not text.is_blank for text in message.texts)


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
