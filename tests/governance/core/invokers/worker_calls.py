"""Calls in worker processes as the tests make, watch, release and cancel them."""

import asyncio
import contextlib
import os

from governance.core.calls import Progress
from governance.core.cancellation import CancellationToken
from governance.core.images import show_nowhere
from tests.support import cancel, eventually

TOOLS = "tests.governance.core.invokers.worker_tools"
GRACE = 0.3


class Call:
    """One call under way, and what it reported."""

    def __init__(self, invoker, function, arguments, *, facts=None, show=show_nowhere):
        self.reports: asyncio.Queue[Progress] = asyncio.Queue()
        call = {
            "call": "call",
            "function": function if ":" in function else f"{TOOLS}:{function}",
            "arguments": arguments,
            "limit": 1_000,
            "context": facts or {},
        }
        self.task = asyncio.create_task(self._run(invoker, call, show))

    async def _run(self, invoker, call, show):
        worker = await invoker.prepare(CancellationToken())
        return await worker.call(
            call, on_progress=self.reports.put_nowait, on_return=lambda _: None, show=show
        )

    async def report(self):
        """Wait for the next report; fail if the call ends first."""
        next_report = asyncio.create_task(self.reports.get())
        await asyncio.wait({next_report, self.task}, return_when=asyncio.FIRST_COMPLETED)
        if not next_report.done():
            next_report.cancel()
            raise AssertionError(f"ended without a report: {self.task.result()!r}")
        return next_report.result()

    async def cancel(self):
        """Cancel the call once and wait until it has ended."""
        await cancel(self.task)


def release(pipe, text="released"):
    descriptor = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    os.write(descriptor, text.encode())
    os.close(descriptor)


async def released(call, pipe):
    """Release the tool as soon as it waits at the pipe, and return the call's result."""

    await eventually(lambda: opens(pipe))
    return await call.task


def opens(pipe):
    """Release what waits at the pipe. Return whether anything did."""
    with contextlib.suppress(OSError):
        release(pipe)
        return True
    return False


async def run(invoker, function, **arguments):
    return await Call(invoker, function, arguments).task
