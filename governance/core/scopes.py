"""Scopes: which work is active where, and which queued work a cancel has made stale (C7)."""

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from governance.core.cancellation import Cancellation

logger = logging.getLogger(__name__)

NANOSECONDS = 1_000_000_000
# Each cancel adds at most one cut-off and looks at this many old ones: forgetting keeps up.
_LOOKED_AT_PER_CANCEL = 4


class ScopeKind(StrEnum):
    """What a piece of active work is; a closed set."""

    TEXT_REPLY = "text_reply"
    VOICE = "voice"
    SUB_AGENT = "sub_agent"


class Cancellable(Protocol):
    """What the registry needs of a cancellation token."""

    def cancel(self, cancellation: Cancellation, /) -> bool:
        """Make the request; return whether it was the first."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ActiveWork:
    """One piece of work that runs in a scope; a handle, so two pieces are never equal."""

    scope: str
    kind: ScopeKind
    started: int
    token: Cancellable


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cutoff:
    """The last cancel of a scope: all that was stamped before it is stale."""

    stamp: int
    cancellation: Cancellation


class ScopeRegistry:
    """Active work by scope, and the cut-off that each cancel leaves; usable from any thread.

    Memory: active work is kept until `clear`. A cut-off is forgotten once its scope is idle *and*
    it is older than `retention` seconds. That is safe because work waits in a queue only behind
    work that is active in its scope; what is under way into an idle scope is a hand-off, which
    takes far less than `retention`. No cut-off of another scope stands in for a forgotten one.
    """

    def __init__(
        self, *, retention: float = 600.0, clock: Callable[[], int] = time.time_ns
    ) -> None:
        self._retention = int(retention * NANOSECONDS)
        self._clock = clock
        self._lock = threading.Lock()
        self._last_stamp = 0
        self._active: dict[str, dict[ActiveWork, None]] = {}
        self._cutoffs: OrderedDict[str, _Cutoff] = OrderedDict()

    def stamp(self) -> int:
        """Return the time in nanoseconds, or one more than the last stamp if that is later."""
        with self._lock:
            return self._next_stamp()

    def begin(
        self, scope: str, kind: ScopeKind, *, token: Cancellable, queued: int | None = None
    ) -> ActiveWork:
        """Register work that starts now.

        With `queued`, the stamp of its queueing, work that a cancel overtook starts cancelled; that
        closes the gap between a check with `is_stale` and the start.
        """
        with self._lock:
            work = ActiveWork(scope=scope, kind=kind, started=self._next_stamp(), token=token)
            self._active.setdefault(scope, {})[work] = None
            cutoff = self._cutoffs.get(scope)
        if cutoff is not None and queued is not None and queued < cutoff.stamp:
            token.cancel(cutoff.cancellation)
        return work

    def cancel_all(self, scope: str, cancellation: Cancellation) -> int:
        """Cancel all that is active in `scope` and make stale all that was queued; count those.

        Only work that was not cancelled before counts. It stays active until its owner clears it.
        """
        with self._lock:
            reached = tuple(self._active.get(scope, ()))
            self._cutoffs[scope] = _Cutoff(stamp=self._next_stamp(), cancellation=cancellation)
            self._cutoffs.move_to_end(scope)
            self._forget_old_cutoffs()
        return sum(_cancel(work, cancellation) for work in reached)

    def clear(self, work: ActiveWork) -> None:
        """Take ended work out; clearing twice does nothing."""
        with self._lock:
            works = self._active.get(work.scope)
            if works is None:
                return
            works.pop(work, None)
            if not works:
                del self._active[work.scope]

    def has(self, scope: str) -> bool:
        """Return whether anything is active in `scope`, work that is being cancelled included."""
        with self._lock:
            return scope in self._active

    def active(self, scope: str) -> tuple[ActiveWork, ...]:
        """Return the work that is active in `scope`, oldest first."""
        with self._lock:
            return tuple(self._active.get(scope, ()))

    def is_stale(self, scope: str, started: int) -> bool:
        """Return whether a cancel of its scope overtook work stamped `started`: do not start it."""
        with self._lock:
            cutoff = self._cutoffs.get(scope)
        return cutoff is not None and started < cutoff.stamp

    def _next_stamp(self) -> int:
        self._last_stamp = max(self._last_stamp + 1, self._clock())
        return self._last_stamp

    def _forget_old_cutoffs(self) -> None:
        oldest_kept = self._last_stamp - self._retention
        for _ in range(min(_LOOKED_AT_PER_CANCEL, len(self._cutoffs))):
            scope, cutoff = next(iter(self._cutoffs.items()))
            if cutoff.stamp >= oldest_kept:
                return
            if scope in self._active:
                self._cutoffs.move_to_end(scope)  # busy: looked at again in a later round
            else:
                del self._cutoffs[scope]


def _cancel(work: ActiveWork, cancellation: Cancellation) -> bool:
    """Cancel one piece of work; one that fails never keeps its siblings from being cancelled."""
    try:
        return work.token.cancel(cancellation)
    except Exception:
        logger.exception(
            "Active work could not be cancelled", extra={"scope": work.scope, "kind": work.kind}
        )
        return False
