"""Renders the history of a conversation from its rows, and makes repairs stick (H1, H3; sync ORM)."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from governance import CallStatus, Disposition, ToolCall
from governance import repairs as call_repairs
from governance import selectors as governance
from turns import log
from turns.core.events import EventType, TurnEvent
from turns.core.history import repair
from turns.core.messages import Message, TextBlock, ToolResultBlock, ToolUseBlock
from turns.core.repairs import CauseOf, Repair, RepairCause, interruption_note
from turns.core.turns import LIVE_STATUSES, TurnStatus
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

    The unfinished step of a live turn is left out: a running turn is never touched.
    """
    with transaction.atomic():
        conversation = log.locked(conversation_id)
        rows = _settled_rows(conversation)
        repaired = repair(_render(rows), causes=_cause_of(rows))
        events: list[log.WireEvent] = []
        if repaired.repairs:
            events = _store(
                conversation, rows, repaired.messages, repaired.repairs, found_when=found_when
            )
    return History(messages=repaired.messages, repairs=repaired.repairs, events=tuple(events))


def note_on_previous(turn: Turn) -> str:
    """Return what the prompt of `turn` says about the turn before it, if that did not reach its end (H5)."""
    ended = Turn.objects.filter(
        conversation_id=turn.conversation_id, number__lt=turn.number, started_at__isnull=False
    )
    previous = ended.order_by("-number").first()
    if previous is None or previous.status == TurnStatus.COMPLETED:
        return ""
    calls = governance.calls_of_group(str(previous.pk))
    by_disposition: dict[str, list[ToolUseBlock]] = defaultdict(list)
    for call in calls:
        by_disposition[call.disposition].append(ToolUseBlock(id=call.call_id, name=call.tool_name))
    return interruption_note(
        _cause(previous),
        indeterminate=by_disposition[Disposition.INDETERMINATE],
        settled=by_disposition[Disposition.SETTLED],
        not_started=by_disposition[Disposition.NOT_STARTED],
    )


def _settled_rows(conversation: Conversation) -> list[MessageRow]:
    """The messages of a conversation without what a live turn is still saying or doing."""
    rows = list(
        MessageRow.objects.filter(conversation=conversation, is_streaming=False)
        .select_related("turn")
        .order_by("position")
    )
    live = next((row.turn for row in reversed(rows) if row.turn.status in LIVE_STATUSES), None)
    if live is None:
        return rows
    open_steps = {
        call.step
        for call in governance.calls_of_group(str(live.pk))
        if not CallStatus(call.status).is_terminal
    }
    return [
        row
        for row in rows
        if row.turn_id != live.pk or row.step not in open_steps or row.role == "user"
    ]


def _render(rows: Sequence[MessageRow]) -> list[Message]:
    """Put each call's result, from its own row, behind the message that asked for it (invariant 10)."""
    results: dict[tuple[str, int], list[ToolResultBlock]] = defaultdict(list)
    with_calls = {
        str(row.turn_id)
        for row in rows
        if any(block.get("type") == "tool_use" for block in row.content)
    }
    for call in governance.calls_of_groups(with_calls):
        if CallStatus(call.status).is_terminal:
            results[call.group, call.step].append(
                ToolResultBlock(
                    tool_use_id=call.call_id,
                    content=call.result,
                    is_error=call.is_error,
                    is_synthetic=call.is_synthetic,
                )
            )
    messages = []
    for row in rows:
        message = _message(row)
        messages.append(message)
        if message.tool_uses and (found := results.pop((str(row.turn_id), row.step), None)):
            messages.append(Message(role="user", content=tuple(found), turn_id=message.turn_id))
    return messages


def _message(row: MessageRow) -> Message:
    return Message.from_json(
        {
            "role": row.role,
            "content": row.content,
            "turn_id": str(row.turn_id),
            "interrupted": row.interrupted,
        }
    )


def _cause_of(rows: Sequence[MessageRow]) -> CauseOf:
    """Why a call of an ended turn may lack its result: how its turn ended."""
    causes = {
        str(row.turn_id): _cause(row.turn) for row in rows if row.turn.status not in LIVE_STATUSES
    }
    return lambda _tool_id, turn_id: causes.get(turn_id or "")


def _cause(turn: Turn) -> RepairCause:
    if turn.status == TurnStatus.INTERRUPTED and not turn.ended_by_reason:
        return RepairCause.CRASH
    try:
        return RepairCause(turn.ended_by_reason)
    except ValueError:
        return RepairCause.ERROR if turn.status == TurnStatus.FAILED else RepairCause.CRASH


def _store(
    conversation: Conversation,
    rows: Sequence[MessageRow],
    messages: Sequence[Message],
    repairs: Sequence[Repair],
    *,
    found_when: str,
) -> list[log.WireEvent]:
    """Write a repaired history back, turn by turn, with an audit row for each repair; return the events of it."""
    touched = {repaired.turn_id for repaired in repairs if repaired.turn_id is not None}
    for turn_id in touched:
        _rewrite(
            [row for row in rows if str(row.turn_id) == turn_id],
            [message for message in messages if message.turn_id == turn_id],
        )
    at = timezone.now()
    RepairRow.objects.bulk_create(
        RepairRow(
            conversation=conversation,
            turn_id=UUID(repaired.turn_id) if repaired.turn_id else None,
            tool_id=repaired.tool_id[:200],
            kind=repaired.kind.value,
            cause=repaired.cause.value,
            text=repaired.text,
            found_when=found_when,
            at=at,
        )
        for repaired in repairs
    )
    return log.append(conversation, rows[-1].turn_id, repairs_event(repairs), at=at)


def repairs_event(repairs: Iterable[Repair]) -> TurnEvent:
    """Return the event that tells clients of repairs."""
    listed = [
        {"tool_id": repaired.tool_id, "kind": repaired.kind.value, "cause": repaired.cause.value}
        for repaired in repairs
    ]
    return TurnEvent(type=EventType.HISTORY_REPAIRED, payload={"repairs": listed})


def _rewrite(rows: Sequence[MessageRow], messages: Sequence[Message]) -> None:
    """Replace one turn's messages: text and calls in the messages' rows, results in the calls' own rows."""
    kept = [message for message in messages if message.tool_uses or message.texts]
    turn_id = str(rows[0].turn_id)
    for row, message in zip(rows, kept, strict=False):
        row.role = message.role
        row.interrupted = message.interrupted
        kept_blocks: tuple[TextBlock | ToolUseBlock, ...] = (*message.texts, *message.tool_uses)
        row.content = [block.to_json() for block in kept_blocks]
        row.step = row.step or 1
    _write_results(rows, messages, turn_id=turn_id)
    MessageRow.objects.bulk_update(rows[: len(kept)], ["role", "interrupted", "content", "step"])
    MessageRow.objects.filter(pk__in=[row.pk for row in rows[len(kept) :]]).delete()


def _write_results(
    rows: Sequence[MessageRow], messages: Sequence[Message], *, turn_id: str
) -> None:
    """The results of a message's calls are in the message after it."""
    kept = iter(rows)
    for message, following in zip(messages, (*messages[1:], None), strict=False):
        if not (message.tool_uses or message.texts):
            continue
        row = next(kept)
        if following is not None and message.tool_uses:
            calls = [
                ToolCall(
                    id=use.id,
                    tool_name=use.name,
                    input=use.input,
                    scope=str(row.conversation_id),
                    position=place,
                )
                for place, use in enumerate(message.tool_uses)
            ]
            results = {block.tool_use_id: block for block in following.tool_results}
            call_repairs.settle(calls, results=results, group=turn_id, step=row.step)
