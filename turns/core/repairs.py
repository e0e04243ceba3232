"""Repairs: what was wrong in a history, why, and what the model reads about it (H3, H5)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from turns.core.marks import INTERRUPTED
from turns.core.messages import ToolUseBlock


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


class RepairCause(StrEnum):
    """Why a call has no result. The names shared with the cancel reasons mean the same."""

    CRASH = "crash"
    USER = "user"
    ADMIN = "admin"
    PARENT = "parent"
    DISCONNECT = "disconnect"
    TIMEOUT = "timeout"
    LOOP = "loop"
    SUPERSEDED = "superseded"
    SHUTDOWN = "shutdown"
    ERROR = "error"
    SIBLING = "sibling"
    NOT_STARTED = "not_started"


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """One thing that was put right.

    `tool_id` is empty where it was a message; `text` is the synthetic result, if one was added.
    """

    tool_id: str
    kind: RepairKind
    cause: RepairCause
    turn_id: str | None = None
    text: str = ""


# Called with a call's id and its turn's id; None falls back to the default cause.
CauseOf = Callable[[str, str | None], RepairCause | None]


class RepairRecord:
    """Collects the repairs of one run, each with its cause."""

    def __init__(
        self, causes: Mapping[str, RepairCause] | CauseOf, *, default_cause: RepairCause
    ) -> None:
        self.repairs: list[Repair] = []
        self._causes = causes
        self._default_cause = default_cause

    def cause(self, tool_id: str, turn_id: str | None) -> RepairCause:
        if isinstance(self._causes, Mapping):
            return self._causes.get(tool_id, self._default_cause)
        return self._causes(tool_id, turn_id) or self._default_cause

    def add(
        self, kind: RepairKind, tool_id: str = "", *, turn_id: str | None, text: str = ""
    ) -> None:
        cause = self.cause(tool_id, turn_id)
        self.repairs.append(
            Repair(tool_id=tool_id, kind=kind, cause=cause, turn_id=turn_id, text=text)
        )


# How it ended: the same words serve a call's synthetic result and the note about a turn. Only what
# a person did is put down to a person; what the system did by itself says so (acceptance 78).
_ENDED: Mapping[RepairCause, str] = MappingProxyType(
    {
        RepairCause.CRASH: "the server ended unexpectedly",
        RepairCause.USER: "the user cancelled it",
        RepairCause.ADMIN: "an administrator cancelled it",
        RepairCause.PARENT: "the turn that it belongs to was cancelled",
        RepairCause.DISCONNECT: "it was cancelled automatically, because nobody was connected",
        RepairCause.TIMEOUT: "its time limit was reached",
        RepairCause.LOOP: "it was halted automatically, because the same calls were repeated",
        RepairCause.SUPERSEDED: "it was cancelled automatically, because a newer call replaced it",
        RepairCause.SHUTDOWN: "the server was shut down",
        RepairCause.ERROR: "an internal error ended it",
        RepairCause.SIBLING: "it was cancelled automatically, because a call beside it failed",
        RepairCause.NOT_STARTED: "it was cancelled before it was started",
    }
)


def synthetic_text(name: str, cause: RepairCause) -> str:
    """Return the result that stands in for one that was never recorded."""
    if cause is RepairCause.NOT_STARTED:
        return f'[CANCELLED] Tool "{name}" was not started.'
    return (
        f'[INTERRUPTED] Tool "{name}": {_ENDED[cause]}; no result was recorded; '
        "it may or may not have run. Check its effects before you call it again."
    )


def interruption_note(
    cause: RepairCause,
    *,
    indeterminate: Sequence[ToolUseBlock] = (),
    settled: Sequence[ToolUseBlock] = (),
    not_started: Sequence[ToolUseBlock] = (),
) -> str:
    """Return what the next turn's prompt says about a turn that did not reach its end (H5)."""
    lines = [f"{INTERRUPTED} did not reach its end: {_ENDED[cause]}."]
    if indeterminate:
        lines.append(
            f"May have run in part or whole, check before repeating: {_list(indeterminate)}."
        )
    if settled:
        lines.append(f"Finished, the results stand: {_list(settled)}.")
    if not_started:
        lines.append(f"Not started: {_list(not_started)}.")
    return "\n".join(lines)


def _list(calls: Sequence[ToolUseBlock]) -> str:
    return ", ".join(f"{call.name} ({call.id})" for call in calls)
