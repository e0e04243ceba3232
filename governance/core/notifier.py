"""Notifies the observers of running calls: of changes at once, of progress periodically (V1)."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from governance.core import outcomes
from governance.core.calls import CallStatus
from governance.core.limiter import Obstacle
from governance.core.live_call import LiveCall
from governance.core.ports import Host

logger = logging.getLogger(__name__)


class Notifier:
    """The notifications of one executor's calls; a failing observer is logged and affects no call.

    `interval` is the period of notifications for silent calls, `pause` the shortest time between two for a chatty
    one. A call that has waited for `queue_notice` reports its obstacle.
    """

    def __init__(
        self, live: Mapping[LiveCall, Host], *, interval: float, pause: float, queue_notice: float
    ) -> None:
        self._live = live
        self._interval = interval
        self._pause = pause
        self._queue_notice = queue_notice
        self._sending: dict[LiveCall, asyncio.Task[None]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def send(self, live: LiveCall, notice: Coroutine[Any, Any, None]) -> None:
        """Send a notice after the earlier ones of its call, without waiting for it."""
        task = live.ending.get_loop().create_task(
            _sent(notice, live, after=self._sending.get(live)),
            name=f"notice of tool call {live.id}",
            context=live.context,
        )
        self._sending[live] = task
        task.add_done_callback(partial(self._forget, live, notice))

    def is_sending(self, live: LiveCall) -> bool:
        """Return whether a notice of a call is on its way."""
        return live in self._sending

    async def sent(self, live: LiveCall) -> None:
        """Wait until every notice of a call has been sent, so that none comes after the outcome."""
        if (last := self._sending.get(live)) is not None:
            await asyncio.wait({last})

    @contextmanager
    def waiting(self, live: LiveCall, obstacle: Callable[[], Obstacle | None]) -> Iterator[None]:
        """While a call waits, tell after a moment what for, and again where that has changed."""
        loop = asyncio.get_running_loop()
        timer = loop.call_later(self._queue_notice, lambda: poll())

        def poll() -> None:
            nonlocal timer
            timer = loop.call_later(self._queue_notice, poll)
            found = obstacle()
            if found is not None and found != live.waits_for:
                live.waits_for = found
                self.send(live, self._live[live].observer.call_queued(live))

        try:
            yield
        finally:
            timer.cancel()
            live.waits_for = None

    def watch(self) -> None:
        """Look at the live calls now and then, as long as there are any."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._pause, self._poll)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _poll(self) -> None:
        """Notify of every running call that has progress, or was silent for an interval."""
        self._timer = None
        now = asyncio.get_running_loop().time()
        for live, host in self._live.items():
            if live.limits.deadline is None or live.status is not CallStatus.RUNNING:
                continue
            if live in self._sending:  # a slow observer gets the latest state next time
                continue
            progress = live.progress
            silent_for = min(live.elapsed, now - progress.last_notified_at)
            if progress.has_pending_progress or silent_for >= self._interval:
                progress.has_pending_progress = False
                progress.last_notified_at = now
                self.send(live, host.observer.call_progressed(live))
        if self._live:
            self.watch()

    def _forget(
        self, live: LiveCall, notice: Coroutine[Any, Any, None], sent: asyncio.Task[None]
    ) -> None:
        notice.close()  # it never began if the loop has ended meanwhile
        if self._sending.get(live) is sent:
            del self._sending[live]


async def _sent(
    notice: Coroutine[Any, Any, None], live: LiveCall, *, after: asyncio.Task[None] | None
) -> None:
    if after is not None:
        await asyncio.wait({after})
    try:
        await notice
    except Exception:
        logger.exception("An observer failed", extra=outcomes.log_fields(live))
