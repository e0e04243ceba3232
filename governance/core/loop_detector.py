"""Detect loops: a turn that repeats calls with the same results, or only fails, is first warned, then halted (A4)."""

import json
import re
from collections import deque
from collections.abc import Container, Mapping
from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b
from typing import Any, NamedTuple, Self

# The longest detected cycle, in calls (A-B-A-B is a cycle of two).
_LONGEST_CYCLE = 4
# In a longer result, nonces are masked only at both ends, but the whole result is hashed.
_NORMALISED_END = 8192

# Parts of a result that differ from run to run without any progress. Shorter numbers are kept, because they may be
# counts.
_NONCE = re.compile(
    r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b"  # UUID
    r"|\b\d{4}-\d\d-\d\d[t ]\d\d:\d\d(?::\d\d)?(?:[.,]\d+)?(?:z|[+-]\d\d:?\d\d)?"  # date with time
    r"|\b\d\d?:\d\d:\d\d(?:[.,]\d+)?\b"  # time of day
    r"|\b0x[0-9a-f]+\b"  # address
    r"|\b(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{8,}\b"  # hexadecimal id
    r"|\b\d+\.\d+ ?(?:[mnµ]?s|sec|seconds)\b|\b\d+ ?[mnµ]s\b"  # measured duration
    r"|\b\d+\.\d{6,}\b|\b\d{10,}(?:\.\d+)?\b",  # random or epoch number
    re.IGNORECASE,
)


class LoopAction(StrEnum):
    """The action that the loop detector requires after a call."""

    OK = "ok"
    WARN = "warn"
    HALT = "halt"


class LoopKind(StrEnum):
    """The kind of loop that was detected."""

    REPEATED_CALL = "repeated_call"
    ALTERNATING_CALLS = "alternating_calls"
    ERRORS_IN_A_ROW = "errors_in_a_row"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopVerdict:
    """The action to take after a call.

    `text` is for the model. Append it to the call's one result instead of adding a second result.
    """

    action: LoopAction = LoopAction.OK
    kind: LoopKind | None = None
    count: int = 0
    text: str = ""


class _Observation(NamedTuple):
    call: bytes
    result: bytes
    step: object


_OK = LoopVerdict()


class LoopDetector:
    """A detector of repeated calls within one turn.

    A pattern is counted once per step. Parallel calls of one step never stop a turn whose model has not read a warning
    yet. `window` is the number of remembered calls; to stop a cycle of n calls, it must be at least n times
    `halt_after`. `warn_after=None` turns the detector off; with `halt_after=None`, it only warns.
    """

    def __init__(
        self,
        *,
        window: int,
        warn_after: int | None,
        halt_after: int | None,
        exempt: Container[str] = frozenset(),
    ) -> None:
        _check_limits(window, warn_after=warn_after, halt_after=halt_after)
        self._warn_after = warn_after
        self._halt_after = halt_after
        self._exempt = exempt
        self._recent: deque[_Observation] = deque(maxlen=window)
        self._failed_steps = 0
        self._last_failed_step: object = None

    @classmethod
    def off(cls) -> Self:
        """Return a detector that never warns or halts."""
        return cls(window=1, warn_after=None, halt_after=None)

    def observe(
        self,
        tool_name: str,
        input: Mapping[str, Any],
        result: str | None,
        *,
        is_error: bool,
        step: int | None = None,
    ) -> LoopVerdict:
        """Record one ended call and judge the turn so far.

        Pass the tool's own `result`, without an appended warning. `None` means that the call was refused and did not
        run, which is treated as a repeated result (acceptance 86). Calls of one step have the same `step`; without a
        `step`, each call is a separate step. Calls of exempt tools are not recorded.
        """
        if self._warn_after is None or tool_name in self._exempt:
            return _OK
        occasion: object = object() if step is None else step
        call = _call_digest(tool_name, input)
        digest = self._last_result(call) if result is None else _result_digest(result)
        self._recent.append(_Observation(call, digest, occasion))
        self._count_failure(occasion, is_error=is_error)
        return self._judge(tool_name)

    def _last_result(self, call: bytes) -> bytes:
        results = (entry.result for entry in reversed(self._recent) if entry.call == call)
        return next(results, b"")

    def _count_failure(self, step: object, *, is_error: bool) -> None:
        if not is_error:
            self._failed_steps, self._last_failed_step = 0, None
        elif step != self._last_failed_step:
            self._failed_steps, self._last_failed_step = self._failed_steps + 1, step

    def _judge(self, tool_name: str) -> LoopVerdict:
        rounds, calls = self._longest_cycle()
        kind = LoopKind.REPEATED_CALL if calls == 1 else LoopKind.ALTERNATING_CALLS
        count = rounds
        if self._failed_steps > rounds:
            kind, count = LoopKind.ERRORS_IN_A_ROW, self._failed_steps
        action = self._action(count)
        if action is LoopAction.OK:
            return _OK
        calls_left = None if self._halt_after is None else self._halt_after - count
        text = _describe(kind, tool_name, count=count) + _advise(
            action, kind, calls_left=calls_left
        )
        return LoopVerdict(action=action, kind=kind, count=count, text=text)

    def _action(self, count: int) -> LoopAction:
        if self._halt_after is not None and count >= self._halt_after:
            return LoopAction.HALT
        if self._warn_after is not None and count >= self._warn_after:
            return LoopAction.WARN
        return LoopAction.OK

    def _longest_cycle(self) -> tuple[int, int]:
        """Return how often the latest calls repeated a cycle without progress, and the number of calls in that cycle.

        The search goes back in time. It ends at a call that later had a different result, which was progress, and at a
        call that would make the cycle longer than `_LONGEST_CYCLE`.
        """
        result_of: dict[bytes, bytes] = {}
        steps_of: dict[bytes, set[object]] = {}
        best = (0, 1)
        for entry in reversed(self._recent):
            if (
                result_of.setdefault(entry.call, entry.result) != entry.result
                or len(result_of) > _LONGEST_CYCLE
            ):
                break
            steps_of.setdefault(entry.call, set()).add(entry.step)
            rounds = min(map(len, steps_of.values()))
            if rounds > best[0]:
                best = (rounds, len(steps_of))
        return best


def _check_limits(window: int, *, warn_after: int | None, halt_after: int | None) -> None:
    """Raise ValueError for limits with which the detector cannot work."""
    if warn_after is None:
        return
    if warn_after < 2:
        raise ValueError("warn_after must be at least 2: one call is no loop.")
    if halt_after is not None and halt_after <= warn_after:
        raise ValueError("halt_after must be greater than warn_after: the model is warned first.")
    if window < (halt_after or warn_after):
        raise ValueError(
            "window must hold at least halt_after calls, or no loop is ever long enough."
        )


_encode = json.JSONEncoder(sort_keys=True, default=repr).encode


def _call_digest(tool_name: str, input: Mapping[str, Any]) -> bytes:
    return _digest(_encode([tool_name, input]))


def _result_digest(result: str) -> bytes:
    if len(result) <= 2 * _NORMALISED_END:
        return _digest(_NONCE.sub("#", result))
    head, middle, tail = (
        result[:_NORMALISED_END],
        result[_NORMALISED_END:-_NORMALISED_END],
        result[-_NORMALISED_END:],
    )
    return _digest(f"{_NONCE.sub('#', head)}{middle}{_NONCE.sub('#', tail)}")


def _digest(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _describe(kind: LoopKind, tool_name: str, *, count: int) -> str:
    if kind is LoopKind.REPEATED_CALL:
        description = (
            f'Tool "{tool_name}" was called {count} times with the same input and the same result.'
        )
    elif kind is LoopKind.ALTERNATING_CALLS:
        description = (
            f"The same calls have taken turns {count} times, each with the same result as before."
        )
    else:
        description = (
            f"Tool calls have failed {count} times in a row, without a success in between."
        )
    return f"[LOOP] {description}"


def _advise(action: LoopAction, kind: LoopKind, *, calls_left: int | None) -> str:
    if action is LoopAction.HALT:
        return " The turn was halted automatically."
    advice = (
        " Use what you have, change the input, take another way, or tell the user what is missing."
    )
    if kind is LoopKind.ERRORS_IN_A_ROW:
        advice = " Read the errors, take another way, or tell the user what is missing."
    return advice if calls_left is None else f"{advice} After {calls_left} more the turn is halted."
