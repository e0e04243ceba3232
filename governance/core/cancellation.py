"""Cancellation tokens: a request to stop, set once with its cause, and visible to a whole tree of work.

The terms are those of anyio and Temporal: *cancel* is a request, and its reason is one of a closed set. A child
inherits its parents' cancellation; for example, the parents of a call's token are the tokens of its turn and of its
scope. A token is never un-cancelled.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Self, TypeVar
from weakref import WeakValueDictionary

from governance.core.cancel_reasons import CancelReason, CancelSource
from governance.core.containment import contained

logger = logging.getLogger(__name__)


class ScopeKind(StrEnum):
    """The kinds of work in a scope. The set is closed."""

    TEXT_REPLY = "text_reply"
    VOICE = "voice"
    SUB_AGENT = "sub_agent"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancellation:
    """A request to stop: its reason, its source, the person who made it, and an optional note.

    `by` is the display name of the person, and empty if the system made the request.
    """

    reason: CancelReason
    source: CancelSource = CancelSource.POLICY
    by: str = ""
    note: str = ""


class Cancelled(Exception):
    """Raised by `raise_if_cancelled` in a tool that checks its token."""

    def __init__(self, cancellation: Cancellation) -> None:
        super().__init__(f"cancelled: {cancellation.reason}")
        self.cancellation = cancellation


Callback = Callable[[Cancellation], object]


class CancellationToken:
    """A token that tells a tool, a model stream or a child turn to stop (C4).

    Cancelling any of its `parents` cancels it too. `cancel` may be called from any thread. Callbacks run in the calling
    thread, in the order of registration. Tools in threads use `wait_blocking`, and coroutines use `wait`.
    """

    __slots__ = ("__weakref__", "_callbacks", "_cancellation", "_leave_parents", "_lock")

    def __init__(self, *parents: "CancellationToken | None") -> None:
        self._lock = threading.Lock()
        self._callbacks: dict[object, Callback] = {}
        self._cancellation: Cancellation | None = None
        self._leave_parents = [parent.on_cancel(self.cancel) for parent in parents if parent]

    @property
    def cancellation(self) -> Cancellation | None:
        return self._cancellation

    @property
    def is_cancelled(self) -> bool:
        return self._cancellation is not None

    def raise_if_cancelled(self) -> None:
        if self._cancellation is not None:
            raise Cancelled(self._cancellation)

    def child(self) -> "CancellationToken":
        """Return a token that is cancelled together with this one. Cancelling it does not cancel this one."""
        return CancellationToken(self)

    def cancel(self, cancellation: Cancellation) -> bool:
        """Request a stop. Return whether this was the first request; later requests are ignored."""
        with self._lock:
            if self._cancellation is not None:
                return False
            self._cancellation = cancellation
            callbacks, self._callbacks = self._callbacks, {}
        for callback in callbacks.values():
            try:
                with contained():
                    callback(cancellation)
            except Exception:
                logger.exception("A cancellation callback failed")
        return True

    def on_cancel(self, callback: Callback) -> Callable[[], None]:
        """Call `callback` when the token is cancelled, or immediately if it already is.

        Return a function that removes the callback.
        """
        with self._lock:
            if (cancellation := self._cancellation) is None:
                key = object()
                self._callbacks[key] = callback
                return partial(self._forget, key)
        callback(cancellation)
        return _nothing

    async def wait(self) -> Cancellation:
        with self.watched() as requested:
            return await requested

    @contextmanager
    def watched(self) -> "Iterator[asyncio.Future[Cancellation]]":
        """Yield a future of this loop that resolves when the token is cancelled."""
        requested: Promise[Cancellation] = Promise()
        forget = self.on_cancel(requested.resolve)
        try:
            yield requested
        finally:
            forget()

    def wait_blocking(self, timeout: float | None = None) -> bool:
        """Block this thread for at most `timeout` seconds, until the token is cancelled. Return whether it is."""
        requested = threading.Event()
        forget = self.on_cancel(lambda _: requested.set())
        try:
            return requested.wait(timeout)
        finally:
            forget()

    def detach(self) -> None:
        """Leave the parents, so that a long-lived parent keeps no references to ended children."""
        while self._leave_parents:
            self._leave_parents.pop()()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.detach()

    def _forget(self, key: object) -> None:
        with self._lock:
            self._callbacks.pop(key, None)


def _nothing() -> None:
    """Do nothing, because a callback that was called immediately needs no removal."""


class ScopeTokens:
    """The root token of each scope, so that a cancel also affects work that has not begun (C7).

    Work that is queued after a cancel has a new token, so no timestamps have to be compared to find the work that a
    cancel affects. A token lives as long as there is work below it. The methods may be called from any thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tokens: WeakValueDictionary[str, CancellationToken] = WeakValueDictionary()

    def of(self, scope: str) -> CancellationToken:
        """Return the current token of a scope, which is the parent of the tokens of new work."""
        with self._lock:
            return self._tokens.setdefault(scope, CancellationToken())

    def cancel(self, scope: str, cancellation: Cancellation) -> None:
        """Cancel all work in a scope."""
        with self._lock:
            token = self._tokens.pop(scope, None)
        if token is not None:
            token.cancel(cancellation)


T = TypeVar("T")


class Promise(asyncio.Future[T]):
    """A future of the running loop. It keeps its first value and ignores later values."""

    def resolve(self, value: T) -> None:
        if not is_running_here(self.get_loop()):
            with suppress(RuntimeError):  # the loop is closed, so nothing is waiting
                self.get_loop().call_soon_threadsafe(self.resolve, value)
        elif not self.done():
            self.set_result(value)


def is_running_here(loop: asyncio.AbstractEventLoop) -> bool:
    """Return whether this thread is running the loop now."""
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:  # this thread runs no loop
        return False
