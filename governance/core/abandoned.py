"""Bodies that outlive their calls: kept alive, counted, and observed until they end (T11, B4)."""

import asyncio
import logging
from typing import Any

from governance.core import outcomes
from governance.core.exceptions import MayStillRun
from governance.core.live_call import LiveCall
from governance.core.ports import Observer

logger = logging.getLogger(__name__)


class AbandonedBodies:
    """The bodies of one executor that outlive their calls; `len` counts them."""

    def __init__(self, *, result_limit: int) -> None:
        self._result_limit = result_limit
        self._bodies: set[asyncio.Task[Any]] = set()
        self._settlements: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._bodies)

    def add(self, body: asyncio.Task[Any]) -> None:
        """Keep the body until it has ended, and look at its exception then."""
        if body.done():
            self._discard(body)
        else:
            self._bodies.add(body)
            body.add_done_callback(self._discard)

    def watch_settlement(self, live: LiveCall, body: asyncio.Task[Any], observer: Observer) -> None:
        """Record in a background task how the body ends."""
        logger.warning("A tool call was abandoned", extra=outcomes.log_fields(live))
        task = asyncio.create_task(
            self._settle_late(live, body, observer),
            name=f"late settlement of tool call {live.call.id}",
        )
        self._settlements.add(task)
        task.add_done_callback(self._settlements.discard)

    async def aclose(self, *, timeout: float) -> None:
        """Stop observing; the bodies run on."""
        for task in self._settlements:
            task.cancel()
        if self._settlements:
            await asyncio.wait(self._settlements, timeout=timeout)

    async def _settle_late(
        self, live: LiveCall, body: asyncio.Task[Any], observer: Observer
    ) -> None:
        loop = asyncio.get_running_loop()
        ended_at = loop.time()
        work = await _wait_for_work(body)
        if work is None:
            return
        late = outcomes.late(work, after=loop.time() - ended_at, result_limit=self._result_limit)
        logger.info(
            "A tool call settled late", extra={**outcomes.log_fields(live), "kind": late.kind}
        )
        try:
            await observer.call_settled_late(live, late)
        except Exception:
            logger.exception(
                "A late settlement could not be recorded", extra=outcomes.log_fields(live)
            )

    def _discard(self, body: asyncio.Task[Any]) -> None:
        self._bodies.discard(body)
        if not body.cancelled():
            body.exception()


async def _wait_for_work(body: asyncio.Task[Any]) -> asyncio.Future[Any] | None:
    """Wait for the end of a body, or of its work elsewhere; None if that cannot be observed."""
    await asyncio.wait({body})
    error = None if body.cancelled() else body.exception()
    if not isinstance(error, MayStillRun):
        return body
    if error.answer is None:
        return None
    await asyncio.wait({error.answer})
    return None if error.answer.cancelled() else error.answer
