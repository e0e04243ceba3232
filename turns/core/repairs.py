"""Repairs: what was wrong in a history, why, and what the model reads about it (H3, H5)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from governance import CancelReason
from turns.core.messages import ToolUseBlock
from turns.core.prompt_markers import INTERRUPTED
from turns.core.turns import TurnEnding, TurnStatus


class RepairKind(StrEnum):
    """What was done; a closed set."""

    MISSING_RESULT = "missing_result"  # a synthetic result was added
    SYNTHETIC_REPLACED = "synthetic_replaced"  # by the real result
    DUPLICATE_RESULT = "duplicate_result"  # removed
    UNKNOWN_RESULT = "unknown_result"  # no such call: removed
    AMBIGUOUS_RESULT = "ambiguous_result"  # could belong to several calls: removed
    MOVED_RESULT = "moved_result"  # next to its call, or into call order
    MALFORMED_CALL = "malformed_call"  # cut off, without id or name, or said by the user: removed
    DUPLICATE_CALL = "duplicate_call"  # the same id twice in one message: the first is kept
    MOVED_CALL = "moved_call"  # behind the text of its message
    EMPTY_MESSAGE = "empty_message"  # removed


class Cause(NamedTuple):
    """Why a call has no result, or a turn no end of its own. It is a name for rows and the wire, and a clause for the model."""

    name: str
    ended: str

    @classmethod
    def of(cls, reason: str) -> "Cause":
        """Return the cause that a cancel for a reason is. A reason of a newer version still says that it was a cancel."""
        known = (
            CancelReason(reason).row.ended if reason in set(CancelReason) else "it was cancelled"
        )
        return cls(reason, known)

    @classmethod
    def of_turn(cls, status: str, *, reason: str, error_code: str) -> "Cause":
        """Return why a turn of this status did not reach its end, by what is stored of it."""
        if reason:
            return cls.of(reason)
        is_error = status == TurnStatus.INTERRUPTED and error_code
        return cls.of(CancelReason.ERROR) if is_error or status == TurnStatus.FAILED else CRASH

    @classmethod
    def of_ending(cls, ending: TurnEnding) -> "Cause":
        """Return why a turn that ends so did not reach its end."""
        reason = ending.cancellation.reason if ending.cancellation else ""
        return cls.of_turn(ending.status, reason=reason, error_code=ending.error_code)


CRASH = Cause("crash", "the server ended unexpectedly")


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """One thing that was put right.

    `tool_id` is empty where it was a message; `text` is the synthetic result, if one was added.
    """

    tool_id: str
    kind: RepairKind
    cause: Cause
    turn_id: str | None = None
    text: str = ""


CauseOf = Callable[[str | None], Cause]  # called with a turn's id, if it is known


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
    stopped: Sequence[ToolUseBlock] = (),
    finished: Sequence[ToolUseBlock] = (),
    not_started: Sequence[ToolUseBlock] = (),
) -> str:
    """Return what the next turn's prompt says about a turn that did not reach its end (H5)."""
    lines = [f"{INTERRUPTED} did not reach its end: {cause.ended}."]
    if indeterminate:
        lines.append(
            f"May have run in part or whole, check before repeating: {_list(indeterminate)}."
        )
    if stopped:
        lines.append(f"Stopped before the end, no longer running: {_list(stopped)}.")
    if finished:
        lines.append(f"Finished, the results stand: {_list(finished)}.")
    if not_started:
        lines.append(f"Not started: {_list(not_started)}.")
    return "\n".join(lines)


def _list(calls: Sequence[ToolUseBlock]) -> str:
    return ", ".join(f"{call.name} ({call.id})" for call in calls)
