"""History: makes the messages of a conversation valid again, whatever happened (H1 to H4).

`repair` is pure and idempotent. It has three passes. First *clean* each message by itself. Then *assign* each result
to its call. At last *build* the history: the next user message has one result for each call, in call order. Leave the messages of
a turn that is still running out: its open calls are no orphans.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from governance import CallStatus, unfinished_outcome
from turns.core.claims import CallKey, FoundResult, assign
from turns.core.messages import (
    AttachmentBlock,
    Block,
    Message,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from turns.core.repairs import (
    CRASH,
    Cause,
    CauseOf,
    Repair,
    RepairKind,
    RepairRecord,
    interruption_note,
)
from turns.core.validity import violations

__all__ = [
    "CRASH",
    "Cause",
    "CauseOf",
    "Repair",
    "RepairKind",
    "RepairedHistory",
    "interruption_note",
    "repair",
    "violations",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairedHistory:
    """A valid history and what was put right to get there; nothing, if it was valid."""

    messages: tuple[Message, ...]
    repairs: tuple[Repair, ...] = ()


def repair(
    messages: Sequence[Message],
    *,
    cause_of: CauseOf = lambda _turn_id: CRASH,
) -> RepairedHistory:
    """Return a valid history with all that was said and every real result that has its call.

    `cause_of` tells why a call of a turn has no result.
    """
    if not violations(messages):
        return RepairedHistory(messages=tuple(messages))
    record = RepairRecord(cause_of)
    cleaned = list(chain.from_iterable(_clean(message, record) for message in messages))
    assigned = assign(cleaned, record)
    return RepairedHistory(
        messages=tuple(_build(cleaned, assigned, record=record)), repairs=tuple(record.repairs)
    )


def _clean(message: Message, record: RepairRecord) -> Iterator[Message]:
    """Yield `message` without what can never stand in it.

    Results that an assistant gave follow in a user message of their own.
    """
    kept = _sound_content(message, record)
    cleaned = _with_content(message, kept)
    if not cleaned.is_empty:
        yield cleaned
    elif message.role == "assistant" or message.is_empty:
        record.add(RepairKind.EMPTY_MESSAGE, turn_id=message.turn_id)
    if message.role == "assistant" and message.tool_results:
        for result in message.tool_results:
            record.add(RepairKind.MOVED_RESULT, result.tool_use_id, turn_id=message.turn_id)
        yield Message(role="user", content=message.tool_results, turn_id=message.turn_id)


def _sound_content(message: Message, record: RepairRecord) -> tuple[Block, ...]:
    if message.role == "user":
        for call in message.tool_uses:
            record.add(RepairKind.MALFORMED_CALL, call.id, turn_id=message.turn_id)
        return tuple(block for block in message.content if not isinstance(block, ToolUseBlock))
    calls = tuple(_sound_calls(message, record))
    said = [
        index
        for index, block in enumerate(message.content)
        if isinstance(block, TextBlock | AttachmentBlock)
    ]
    before = message.content[: max(said, default=0)]
    for call in calls:
        if any(call is block for block in before):
            record.add(RepairKind.MOVED_CALL, call.id, turn_id=message.turn_id)
    return (*message.visible, *calls)


def _sound_calls(message: Message, record: RepairRecord) -> Iterator[ToolUseBlock]:
    """Yield the calls that can be answered; one that was cut off is dropped instead."""
    seen: set[str] = set()
    for call in message.tool_uses:
        if not call.is_answerable:
            record.add(RepairKind.MALFORMED_CALL, call.id, turn_id=message.turn_id)
        elif call.id in seen:
            record.add(RepairKind.DUPLICATE_CALL, call.id, turn_id=message.turn_id)
        else:
            seen.add(call.id)
            yield call


def _build(
    cleaned: Sequence[Message],
    assigned: Mapping[CallKey, Sequence[FoundResult]],
    *,
    record: RepairRecord,
) -> Iterator[Message]:
    reused = -1
    for place, message in enumerate(cleaned):
        if message.tool_uses:
            yield message
            results = _results_of(message, place, assigned=assigned, record=record)
            if any(found.place == place + 1 for found in results):
                reused = place + 1
                reply = cleaned[reused]
            else:
                reply = Message(role="user", content=(), turn_id=message.turn_id)
            yield _with_content(reply, (*(found.block for found in results), *reply.visible))
        elif place != reused:
            rest = _with_content(message, message.visible)
            if not rest.is_empty:
                yield rest


def _results_of(
    message: Message,
    place: int,
    *,
    assigned: Mapping[CallKey, Sequence[FoundResult]],
    record: RepairRecord,
) -> list[FoundResult]:
    """Return one result for each call of `message`, in call order."""
    results: list[FoundResult] = []
    last_index = -1
    for call in message.tool_uses:
        found = _choose(assigned.get((place, call.id), ()), record=record)
        if found is None:
            found = _synthesise(call, message, record=record)
        elif found.place != place + 1 or found.is_behind_text or found.index < last_index:
            record.add(RepairKind.MOVED_RESULT, call.id, turn_id=found.turn_id)
        else:
            last_index = found.index
        results.append(found)
    return results


def _choose(results: Sequence[FoundResult], *, record: RepairRecord) -> FoundResult | None:
    """Return the first real result, else the first synthetic one; the others are removed."""
    chosen = min(results, key=lambda found: found.block.is_synthetic, default=None)
    for other in results:
        if chosen is None or other is chosen:
            continue
        is_replaced = other.block.is_synthetic and not chosen.block.is_synthetic
        kind = RepairKind.SYNTHETIC_REPLACED if is_replaced else RepairKind.DUPLICATE_RESULT
        record.add(kind, other.block.tool_use_id, turn_id=other.turn_id)
    return chosen


def _synthesise(call: ToolUseBlock, message: Message, *, record: RepairRecord) -> FoundResult:
    lost = record.cause_of(message.turn_id).ended
    text = unfinished_outcome(call.name, CallStatus.RUNNING, lost=lost).result
    record.add(RepairKind.MISSING_RESULT, call.id, turn_id=message.turn_id, text=text)
    block = ToolResultBlock(tool_use_id=call.id, content=text, is_error=True, is_synthetic=True)
    return FoundResult(block=block, turn_id=message.turn_id)


def _with_content(message: Message, content: tuple[Block, ...]) -> Message:
    return message if content == message.content else replace(message, content=content)
