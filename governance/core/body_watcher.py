"""Waits for the end of a call's body. Ends it when a limit or a cancel comes first (C3, C13).

A body that does not end by itself gets a *signal*: its token is cancelled. Then it gets *one task cancel* and a
*bounded grace*. After that either its end is proved, or it is *abandoned*. Nobody waits longer for a body.
"""

import asyncio

from governance.core.abandoned import AbandonedBodies
from governance.core.bodies import Body
from governance.core.calls import CallStatus, Disposition
from governance.core.cancel_reasons import CancelReason
from governance.core.cancellation import Cancellation
from governance.core.endings import BODY_ENDED, Ending, EndingKind
from governance.core.live_call import LiveCall
from governance.core.notifier import Notifier
from governance.core.ports import Host

NOTIFY_AFTER = 0.05  # seconds for a body to end before its observer is notified of the cancel


class BodyWatcher:
    """Watches the bodies of an executor; `grace` is how long one may take to end after a cancel, in seconds."""

    def __init__(self, *, notifier: Notifier, abandoned: AbandonedBodies, grace: float) -> None:
        self._notifier = notifier
        self._abandoned = abandoned
        self._grace = grace

    async def watch(self, live: LiveCall, body: Body) -> Ending:
        """Wait for the first of: the end of the body, a limit, a cancel."""
        self._notifier.watch()
        try:
            ending = await live.ending
        except asyncio.CancelledError:  # the process goes down (invariant 6): ask, do not wait
            live.token.cancel(Cancellation(reason=CancelReason.SHUTDOWN))
            body.task.cancel()
            self._abandoned.add(body.task)
            raise
        finally:
            body.deadline.close()
        if body.returned_at is not None and not body.is_done:  # its return is still on its way here
            await asyncio.wait({body.task}, timeout=self._grace)
        if ending is not BODY_ENDED and not body.has_value:
            return ending
        reached = body.limit_reached
        if reached is None:  # just in time, however late that was noticed (T11)
            return BODY_ENDED
        if ending.kind is EndingKind.CANCEL:
            return ending
        limit, seconds = reached
        return Ending(kind=EndingKind.TIMEOUT, limit=limit, seconds=seconds)

    async def end(self, live: LiveCall, body: Body, ending: Ending, host: Host) -> Ending:
        """Signal, cancel once, wait for the grace. Return `BODY_ENDED` if a cancelled body still returned in time (C13)."""
        live.change_status(CallStatus.CANCELLING)
        live.token.cancel(Cancellation(reason=CancelReason.TIMEOUT))
        was_late = body.is_done
        body.task.cancel()
        try:
            _done, going_on = await asyncio.wait(
                {body.task}, timeout=min(NOTIFY_AFTER, self._grace)
            )
            if going_on:
                self._notifier.send(live, host.observer.call_cancelling(live))
                await asyncio.wait({body.task}, timeout=max(self._grace - NOTIFY_AFTER, 0))
        finally:
            self._abandoned.add(body.task)
        if body.has_value and not was_late and ending.kind is EndingKind.CANCEL:
            return BODY_ENDED
        is_unsettled = body.disposition is Disposition.INDETERMINATE
        body.outlives = body.has_value or was_late or is_unsettled
        return ending
