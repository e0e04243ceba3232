"""Cancellation tokens: a request to stop, set once with its cause, and seen by a whole tree.

The words follow anyio and Temporal: *cancel* is a request, and its reason belongs to a closed set. A child inherits
its parent's cancellation. A token is never un-cancelled.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Self

from governance.core.cancel_reasons import CancelReason, CancelSource
from governance.core.containment import contained
from governance.core.promises import Promise

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancellation:
    """One request to stop: reason, means, who (a display name, empty for the system) and an optional note."""

    reason: CancelReason
    source: CancelSource = CancelSource.POLICY
    by: str = ""
    note: str = ""


class Cancelled(Exception):
    """Raised by `raise_if_cancelled` in a tool that looks at its token."""

    def __init__(self, cancellation: Cancellation) -> None:
        super().__init__(f"cancelled: {cancellation.reason}")
        self.cancellation = cancellation


Callback = Callable[[Cancellation], object]


class CancellationToken:
    """Tells a tool, a model stream or a child turn that it must stop (C4).

    `cancel` may be called from any thread. Callbacks run in the calling thread, in the order of registration. Tools
    in threads use `wait_blocking`, coroutines `wait`.
    """

    __slots__ = ("_callbacks", "_cancellation", "_leave_parent", "_lock")

    def __init__(self, *, parent: "CancellationToken | None" = None) -> None:
        self._lock = threading.Lock()
        self._callbacks: dict[object, Callback] = {}
        self._cancellation: Cancellation | None = None
        self._leave_parent = parent.on_cancel(self._cancel_from_parent) if parent else _nothing

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
        """Return a token that is cancelled with this one, but not the other way round."""
        return CancellationToken(parent=self)

    def cancel(self, cancellation: Cancellation) -> bool:
        """Request the cancel; the first request wins. Return whether this was the first."""
        with self._lock:
            if self._cancellation is not None:
                return False
            self._cancellation = cancellation
            callbacks, self._callbacks = self._callbacks, {}
        for callback in callbacks.values():
            try:
                with contained:
                    callback(cancellation)
            except Exception:
                logger.exception("A cancellation callback failed")
        return True

    def on_cancel(self, callback: Callback) -> Callable[[], None]:
        """Call `callback` at the request, or now if it was made already. Return a function that takes it back."""
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
        """Give a future of this loop that is done at the request."""
        requested: Promise[Cancellation] = Promise()
        forget = self.on_cancel(requested.resolve)
        try:
            yield requested
        finally:
            forget()

    def wait_blocking(self, timeout: float | None = None) -> bool:
        """Block this thread until the request, `timeout` seconds at most. Return whether it was made."""
        requested = threading.Event()
        forget = self.on_cancel(lambda _: requested.set())
        try:
            return requested.wait(timeout)
        finally:
            forget()

    def detach(self) -> None:
        """Leave the parent, so that a long-lived parent does not keep its ended children."""
        self._leave_parent()
        self._leave_parent = _nothing

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.detach()

    def _cancel_from_parent(self, cancellation: Cancellation) -> None:
        self.cancel(cancellation)

    def _forget(self, key: object) -> None:
        with self._lock:
            self._callbacks.pop(key, None)


def _nothing() -> None:
    """Take back a registration that was never kept."""
