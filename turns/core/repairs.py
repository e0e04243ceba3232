"""Repairs the messages of a conversation, so that they are a valid history after any failure (H1 to H5).

`repair` is pure and idempotent. It has three passes: *clean* each message on its own, *assign* each result to its call,
and *build* the history, in which the user message after calls has one result per call, in call order. Do not pass the
messages of a running turn, because its open calls are not orphans.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import chain
from typing import NamedTuple

from governance import CallStatus, CancelReason, unfinished_outcome
from turns.core.messages import (
    AttachmentBlock,
    Block,
    Message,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from turns.core.texts import INTERRUPTED
from turns.core.turns import DATABASE_AWAY, LEASE_LOST, STOOD_STILL, TurnEnding, TurnStatus


class RepairKind(StrEnum):
    """The kinds of repairs. This set is closed."""

    MISSING_RESULT = "missing_result"  # a synthetic result was added
    SYNTHETIC_REPLACED = "synthetic_replaced"  # the real result replaced a synthetic one
    DUPLICATE_RESULT = "duplicate_result"  # a second result of a call was removed
    UNKNOWN_RESULT = "unknown_result"  # a result without a call was removed
    AMBIGUOUS_RESULT = "ambiguous_result"  # a result that could belong to several calls was removed
    MOVED_RESULT = "moved_result"  # a result was moved next to its call, or into call order
    MALFORMED_CALL = "malformed_call"  # a call that was incomplete or from the user was removed
    DUPLICATE_CALL = "duplicate_call"  # a second call with the same id in a message was removed
    MOVED_CALL = "moved_call"  # a call was moved after the text of its message
    EMPTY_MESSAGE = "empty_message"  # an empty message was removed


class Cause(NamedTuple):
    """The reason that a call has no result or that a turn was interrupted: its `name` in rows and on the wire, and a
    `clause` for the model.
    """

    name: str
    clause: str

    @classmethod
    def of(cls, reason: str) -> "Cause":
        """Return the cause for a cancel reason. Unknown reasons of newer versions are still recognized as cancels."""
        is_known = reason in set(CancelReason)
        return cls(reason, CancelReason(reason).row.ended if is_known else "it was cancelled")

    @classmethod
    def of_turn(cls, status: str, *, reason: str, error_code: str) -> "Cause":
        """Return the cause of a turn that was not completed, derived from its stored fields."""
        if reason:
            return cls.of(reason)
        if status == TurnStatus.INTERRUPTED and error_code in LEASE_LOSSES:
            return LEASE_LOSSES[error_code]
        is_error = status == TurnStatus.INTERRUPTED and error_code
        if not is_error and status != TurnStatus.FAILED:
            return CRASH
        error = cls.of(CancelReason.ERROR)
        return error._replace(clause=_failed(error_code) or error.clause)

    @classmethod
    def of_ending(cls, ending: TurnEnding) -> "Cause":
        """Return the cause of a turn that was not completed, derived from its ending."""
        reason = ending.cancellation.reason if ending.cancellation else ""
        return cls.of_turn(ending.status, reason=reason, error_code=ending.error_code)


def _failed(error_code: str) -> str:
    """Return a clause that says why a turn failed with this code; empty for a server error."""
    if error_code.startswith("chat_model_"):
        return _FAILURES.get(error_code, "the chat model could not be used")
    return _FAILURES.get(error_code, "")


_FAILURES = {
    "agent_unavailable": "its agent was not available to the person who wrote",
    "chat_model_declined": "the chat model declined to answer",
    "chat_model_busy": "the chat model was busy",
    "chat_model_dropped": "the connection to the chat model broke",
    "chat_model_ended_early": "the chat model ended its answer too early",
    "chat_model_malformed_call": "the chat model asked for a tool in a way that could not be read",
    "chat_model_overtime": "the chat model took too long",
    "chat_model_slow": "the chat model took too long",
    "chat_model_stalled": "the chat model fell silent",
    "chat_model_timed_out": "the chat model took too long",
    "chat_model_unavailable": "the chat model was not available",
    "context_too_long": "the conversation did not fit the chat model's context window",
    "step_limit": "it had reached its limit of steps",
    "token_limit": "it had used up its tokens",
}

CRASH = Cause("crash", "the server ended unexpectedly")
LEASE_LOSSES = {
    cause.name: cause
    for cause in (
        Cause(
            LEASE_LOST.error_code,
            "the server did not report for too long (it was suspended, could not reach its database, or ended)",
        ),
        Cause(STOOD_STILL.error_code, "the server was suspended for too long"),
        Cause(
            DATABASE_AWAY.error_code, "the server's database was unreachable or locked for too long"
        ),
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """One repair; `tool_id` is empty if a message was repaired."""

    tool_id: str
    kind: RepairKind
    cause: Cause
    turn_id: str | None = None
    text: str = ""


CauseOf = Callable[[str | None], Cause]  # called with a turn's id, or None if it is unknown


class RepairRecord:
    """Collects the repairs of one run, each with its cause."""

    def __init__(self, cause_of: CauseOf) -> None:
        self.repairs: list[Repair] = []
        self.cause_of = cause_of

    def add(
        self, kind: RepairKind, tool_id: str = "", *, turn_id: str | None, text: str = ""
    ) -> None:
        cause = self.cause_of(turn_id)
        self.repairs.append(
            Repair(tool_id=tool_id, kind=kind, cause=cause, turn_id=turn_id, text=text)
        )


def interruption_note(
    cause: Cause,
    *,
    indeterminate: Sequence[ToolUseBlock] = (),
    cut: Sequence[ToolUseBlock] = (),
    stopped: Sequence[ToolUseBlock] = (),
    finished: Sequence[ToolUseBlock] = (),
    not_started: Sequence[ToolUseBlock] = (),
) -> str:
    """Return the note about an uncompleted turn, for the prompt of the next turn (H5)."""
    lines = [f"{INTERRUPTED} did not reach its end: {cause.clause}."]
    if indeterminate:
        lines.append(
            f"May have run in part or whole, check before repeating: {_list(indeterminate)}."
        )
    if cut:
        lines.append(
            f"Stopped in the middle, may have had an effect, check before repeating: {_list(cut)}."
        )
    if stopped:
        lines.append(f"Stopped before the end, no longer running: {_list(stopped)}.")
    if finished:
        lines.append(f"Finished, with valid results: {_list(finished)}.")
    if not_started:
        lines.append(f"Not started: {_list(not_started)}.")
    return "\n".join(lines)


def _list(calls: Sequence[ToolUseBlock]) -> str:
    return ", ".join(f"{call.name} ({call.id})" for call in calls)


# A call is identified by its message's position and its id, because ids may repeat in later turns.
CallKey = tuple[int, str]


def violations(messages: Sequence[Message]) -> list[str]:
    """Return one sentence per violated rule; an empty list means that the history is valid."""
    problems: list[str] = []
    open_ids: tuple[str, ...] = ()
    for index, message in enumerate(messages):
        problems += (
            f"message {index}: {problem}" for problem in _problems(message, open_ids=open_ids)
        )
        open_ids = tuple(call.id for call in message.tool_uses)
    if open_ids:
        problems.append(f"the end: no results for {', '.join(open_ids)}")
    return problems


def _problems(message: Message, *, open_ids: tuple[str, ...]) -> Iterator[str]:
    if message.is_empty:
        yield "is empty"
    if message.role == "assistant":
        yield from _assistant_problems(message, open_ids=open_ids)
    else:
        yield from _user_problems(message, open_ids=open_ids)


def _assistant_problems(message: Message, *, open_ids: tuple[str, ...]) -> Iterator[str]:
    if open_ids:
        yield f"follows calls without results: {', '.join(open_ids)}"
    if message.tool_results:
        yield "an assistant cannot give tool results"
    calls = message.tool_uses
    if message.content[len(message.content) - len(calls) :] != calls:
        yield "a tool call is followed by something else"
    if len({call.id for call in calls}) < len(calls):
        yield "the same call id twice"
    for call in calls:
        if not call.is_answerable:
            yield f"call {call.id!r} is incomplete"


def _user_problems(message: Message, *, open_ids: tuple[str, ...]) -> Iterator[str]:
    if message.tool_uses:
        yield "a user cannot call tools"
    result_ids = tuple(result.tool_use_id for result in message.tool_results)
    if result_ids != open_ids:
        yield f"results for ({', '.join(result_ids)}) where ({', '.join(open_ids)}) were asked for"
    is_no_result = [
        not isinstance(block, ToolResultBlock)
        for block in message.content
        if not isinstance(block, ToolUseBlock)
    ]
    if is_no_result != sorted(is_no_result):
        yield "a result follows a text"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedResult:
    """A result with its origin: the position of its message and its index there; both are -1 for a synthetic result."""

    block: ToolResultBlock
    turn_id: str | None
    position: int = -1
    index: int = -1
    is_behind_text: bool = False


def assign(
    cleaned: Sequence[Message], record: RepairRecord
) -> Mapping[CallKey, list[PlacedResult]]:
    """Return the results of each call, in the order in which they were assigned.

    Results in the right place come first. Then each late or misplaced result is assigned if exactly one call is open
    for it. A result without a call is recorded as a repair, because it will be removed.
    """
    positions: dict[str, list[int]] = defaultdict(list)
    for position, message in enumerate(cleaned):
        for call in message.tool_uses:
            positions[call.id].append(position)
    replies_to = _replies(cleaned)
    assigned: dict[CallKey, list[PlacedResult]] = defaultdict(list)
    displaced: list[tuple[PlacedResult, Sequence[int]]] = []
    for result in _results(cleaned):
        calls = positions.get(result.block.tool_use_id, ())
        of_turn = [
            position
            for position in calls
            if result.turn_id is not None and cleaned[position].turn_id == result.turn_id
        ]
        owner = replies_to.get(result.position)
        if owner is not None and owner in (of_turn or calls):
            assigned[owner, result.block.tool_use_id].append(result)
        else:
            displaced.append(
                (result, of_turn or [position for position in calls if position < result.position])
            )
    for result, candidates in displaced:
        _claim(result, candidates, assigned=assigned, record=record)
    return assigned


def _claim(
    result: PlacedResult,
    candidates: Sequence[int],
    *,
    assigned: dict[CallKey, list[PlacedResult]],
    record: RepairRecord,
) -> None:
    """Assign a misplaced result if exactly one of the candidates is open; otherwise record its removal."""
    tool_id = result.block.tool_use_id
    # A call accepts a result unless it has a real one; a synthetic one may be replaced.
    open_calls = [
        position
        for position in candidates
        if all(each.block.is_synthetic for each in assigned.get((position, tool_id), ()))
    ]
    if len(open_calls) == 1:
        assigned[open_calls[0], tool_id].append(result)
        return
    kind = RepairKind.DUPLICATE_RESULT if candidates else RepairKind.UNKNOWN_RESULT
    record.add(RepairKind.AMBIGUOUS_RESULT if open_calls else kind, tool_id, turn_id=result.turn_id)


def _replies(cleaned: Sequence[Message]) -> Mapping[int, int]:
    """Return, for each user message directly after calls, the position of those calls.

    Results may be split over several messages. A message after text is not a direct reply.
    """
    replies: dict[int, int] = {}
    owner: int | None = None
    for position, message in enumerate(cleaned):
        if message.role == "assistant":
            owner = position if message.tool_uses else None
        elif owner is not None:
            replies[position] = owner
            owner = None if message.visible else owner
    return replies


def _results(cleaned: Sequence[Message]) -> Iterator[PlacedResult]:
    for position, message in enumerate(cleaned):
        is_behind_text = False
        for index, block in enumerate(message.content):
            if isinstance(block, ToolResultBlock):
                yield PlacedResult(
                    block=block,
                    turn_id=message.turn_id,
                    position=position,
                    index=index,
                    is_behind_text=is_behind_text,
                )
            is_behind_text = is_behind_text or isinstance(block, TextBlock | AttachmentBlock)


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairedHistory:
    """A valid history, and the repairs that were made (none if it was already valid)."""

    messages: tuple[Message, ...]
    repairs: tuple[Repair, ...] = ()


def repair(
    messages: Sequence[Message],
    *,
    cause_of: CauseOf = lambda _turn_id: CRASH,
) -> RepairedHistory:
    """Return a valid history with every text and every real result that has a call.

    `cause_of` returns why a call of a turn has no result.
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
    """Yield `message` without invalid parts.

    Results in an assistant message move to a separate user message.
    """
    cleaned = _with_content(message, _sound_content(message, record))
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
    text_indexes = [
        index
        for index, block in enumerate(message.content)
        if isinstance(block, TextBlock | AttachmentBlock)
    ]
    before = message.content[: max(text_indexes, default=0)]
    for call in calls:
        if any(call is block for block in before):
            record.add(RepairKind.MOVED_CALL, call.id, turn_id=message.turn_id)
    return (*message.visible, *calls)


def _sound_calls(message: Message, record: RepairRecord) -> Iterator[ToolUseBlock]:
    """Yield the complete calls; drop those that were cut off."""
    call_ids: set[str] = set()
    for call in message.tool_uses:
        if not call.is_answerable:
            record.add(RepairKind.MALFORMED_CALL, call.id, turn_id=message.turn_id)
        elif call.id in call_ids:
            record.add(RepairKind.DUPLICATE_CALL, call.id, turn_id=message.turn_id)
        else:
            call_ids.add(call.id)
            yield call


def _build(
    cleaned: Sequence[Message],
    assigned: Mapping[CallKey, Sequence[PlacedResult]],
    *,
    record: RepairRecord,
) -> Iterator[Message]:
    reused = -1
    for position, message in enumerate(cleaned):
        if message.tool_uses:
            yield message
            results = _results_of(message, position, assigned=assigned, record=record)
            if any(result.position == position + 1 for result in results):
                reused = position + 1
                reply = cleaned[reused]
            else:
                reply = Message(role="user", content=(), turn_id=message.turn_id)
            yield _with_content(reply, (*(result.block for result in results), *reply.visible))
        elif position != reused:
            rest = _with_content(message, message.visible)
            if not rest.is_empty:
                yield rest


def _results_of(
    message: Message,
    position: int,
    *,
    assigned: Mapping[CallKey, Sequence[PlacedResult]],
    record: RepairRecord,
) -> list[PlacedResult]:
    """Return one result for each call of `message`, in call order."""
    results: list[PlacedResult] = []
    last_index = -1
    for call in message.tool_uses:
        result = _choose(assigned.get((position, call.id), ()), record=record)
        if result is None:
            result = _synthesise(call, message, record=record)
        elif result.position != position + 1 or result.is_behind_text or result.index < last_index:
            record.add(RepairKind.MOVED_RESULT, call.id, turn_id=result.turn_id)
        else:
            last_index = result.index
        results.append(result)
    return results


def _choose(results: Sequence[PlacedResult], *, record: RepairRecord) -> PlacedResult | None:
    """Return the first real result, or else the first synthetic one; the others are removed."""
    choice = min(results, key=lambda result: result.block.is_synthetic, default=None)
    for other in results:
        if choice is None or other is choice:
            continue
        is_replaced = other.block.is_synthetic and not choice.block.is_synthetic
        kind = RepairKind.SYNTHETIC_REPLACED if is_replaced else RepairKind.DUPLICATE_RESULT
        record.add(kind, other.block.tool_use_id, turn_id=other.turn_id)
    return choice


def _synthesise(call: ToolUseBlock, message: Message, *, record: RepairRecord) -> PlacedResult:
    cause = record.cause_of(message.turn_id)
    text = unfinished_outcome(call.name, CallStatus.RUNNING, lost=cause.clause).result
    record.add(RepairKind.MISSING_RESULT, call.id, turn_id=message.turn_id, text=text)
    block = ToolResultBlock(tool_use_id=call.id, content=text, is_error=True, is_synthetic=True)
    return PlacedResult(block=block, turn_id=message.turn_id)


def _with_content(message: Message, content: tuple[Block, ...]) -> Message:
    return message if content == message.content else replace(message, content=content)
