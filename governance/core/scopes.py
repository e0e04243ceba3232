"""Scopes: which work is active where, and which queued work a cancel has made stale (C7)."""

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, Protocol, TypeVar

from governance.core.cancellation import Cancellation

logger = logging.getLogger(__name__)

NANOSECONDS = 1_000_000_000


class ScopeKind(StrEnum):
    """The kind of active work; a closed set."""

    TEXT_REPLY = "text_reply"
    VOICE = "voice"
    SUB_AGENT = "sub_agent"
    TOOL_CALL = "tool_call"


class Cancellable(Protocol):
    """What the registry needs of a piece of work, or of its cancellation token."""

    def cancel(self, cancellation: Cancellation, /) -> bool:
        """Request the cancel; return whether it was the first."""
        ...


W = TypeVar("W", bound=Cancellable)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cutoff:
    """A cancel: what was stamped before it is stale."""

    stamp: int
    cancellation: Cancellation


class ScopeRegistry(Generic[W]):
    """Active work by scope, and the cut-off of each cancel; usable from any thread.

    Work is active from `begin` to `clear`. A scope's cut-off is kept for `retention` seconds, far longer than work is
    on its way into a scope.
    """

    def __init__(
        self, *, retention: float = 600.0, clock: Callable[[], int] = time.time_ns
    ) -> None:
        self._retention = int(retention * NANOSECONDS)
        self._clock = clock
        self._lock = threading.Lock()
        self._last_stamp = 0
        self._active: dict[str, dict[W, ScopeKind]] = {}
        self._cutoffs: OrderedDict[str, _Cutoff] = OrderedDict()
        self._cutoff_of_all: _Cutoff | None = None

    def stamp(self) -> int:
        """Return the time in nanoseconds, or one more than the last stamp if that is later."""
        with self._lock:
            return self._next_stamp()

    def begin(self, scope: str, kind: ScopeKind, work: W, *, queued_at: int | None = None) -> None:
        """Register work that starts now; it starts cancelled if a cancel came after `queued_at`, its queueing stamp."""
        with self._lock:
            self._active.setdefault(scope, {})[work] = kind
            cutoff = self._cutoff_since(scope, queued_at)
        if cutoff is not None:
            _cancel(scope, {work: kind}, cutoff.cancellation)

    def cancel_all(self, scope: str, cancellation: Cancellation) -> int:
        """Cancel all that is active in `scope` and make stale all that is queued.

        Return how many were reached: work that was not cancelled before. It stays active until its owner clears it.
        """
        with self._lock:
            reached = dict(self._active.get(scope, {}))
            self._cutoffs[scope] = _Cutoff(stamp=self._next_stamp(), cancellation=cancellation)
            self._cutoffs.move_to_end(scope)
            self._forget_old_cutoffs()
        return _cancel(scope, reached, cancellation)

    def cancel_everything(self, cancellation: Cancellation) -> int:
        """Do the same in every scope."""
        with self._lock:
            reached = {scope: dict(works) for scope, works in self._active.items()}
            self._cutoff_of_all = _Cutoff(stamp=self._next_stamp(), cancellation=cancellation)
        return sum(_cancel(scope, works, cancellation) for scope, works in reached.items())

    def clear(self, scope: str, work: W) -> None:
        """Remove ended work; a second `clear` does nothing."""
        with self._lock:
            works = self._active.get(scope)
            if works is None:
                return
            works.pop(work, None)
            if not works:
                del self._active[scope]

    def has(self, scope: str) -> bool:
        """Return whether anything is active in `scope`, work that is being cancelled included."""
        with self._lock:
            return scope in self._active

    def active(self, scope: str) -> Iterable[W]:
        """Return the work that is active in `scope`, oldest first."""
        with self._lock:
            return tuple(self._active.get(scope, ()))

    def is_stale(self, scope: str, queued_at: int) -> bool:
        """Return whether a cancel came after the stamp `queued_at`: do not start that work."""
        with self._lock:
            return self._cutoff_since(scope, queued_at) is not None

    def _cutoff_since(self, scope: str, queued_at: int | None) -> _Cutoff | None:
        if queued_at is None:
            return None
        for cutoff in (self._cutoffs.get(scope), self._cutoff_of_all):
            if cutoff is not None and queued_at < cutoff.stamp:
                return cutoff
        return None

    def _next_stamp(self) -> int:
        self._last_stamp = max(self._last_stamp + 1, self._clock())
        return self._last_stamp

    def _forget_old_cutoffs(self) -> None:
        oldest_kept = self._last_stamp - self._retention
        while next(iter(self._cutoffs.values())).stamp < oldest_kept:
            self._cutoffs.popitem(last=False)


def _cancel(scope: str, works: dict[W, ScopeKind], cancellation: Cancellation) -> int:
    """Cancel work and count it; an exception never stops the cancel of its siblings."""
    count = 0
    for work, kind in works.items():
        try:
            count += work.cancel(cancellation)
        except Exception:
            logger.exception(
                "Active work could not be cancelled", extra={"scope": scope, "kind": kind.value}
            )
    return count
