"""Runs plain Python tools in worker processes, where any call can be ended (T8, C4).

docs/decisions/worker-processes.md says why this is not a library's pool.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pydantic_core

from governance.core.calls import Progress
from governance.core.cancellation import CancellationToken
from governance.core.images import Show, show_nowhere
from governance.core.invokers import frames
from governance.core.invokers.restart_budget import RestartBudget
from governance.core.invokers.worker_connection import WorkerConnection, WorkerSettings
from governance.core.invokers.worker_errors import (
    CallRefused,
    InputRefused,
    RemoteToolError,
    WorkerDied,
    WorkerPoolBroken,
    WorkerPoolClosed,
    value_of,
)
from governance.core.invokers.worker_pool import WorkerPool
from governance.core.tools import Tool, ToolContext

__all__ = [
    "CallRefused",
    "InputRefused",
    "ProcessInvoker",
    "RemoteToolError",
    "WorkerDied",
    "WorkerPoolBroken",
    "WorkerPoolClosed",
]


class ProcessInvoker:
    """A pool of worker processes. Each has one call at a time, and `spare` of them are warm for the next call.

    Belongs to one event loop. Nothing starts before the first `invoke` or `warm`. A cancelled call ends its worker
    and everything that the worker started; the next call finds a spare.
    """

    def __init__(
        self,
        *,
        max_workers: int,
        kill_grace: float,
        spare: int = 1,
        initializer: str | None = None,
        max_calls_per_worker: int = 100,
        max_worker_bytes: int = 200_000_000,
        result_limit: int = frames.DEFAULT_RESULT_LIMIT,
        start_timeout: float = 30.0,
        environment: Mapping[str, str] | None = None,
        budget: RestartBudget | None = None,
    ) -> None:
        settings = WorkerSettings(
            kill_grace=kill_grace,
            start_timeout=start_timeout,
            max_calls=max_calls_per_worker,
            max_bytes=max_worker_bytes,
            result_limit=result_limit,
            initializer=initializer,
            environment=environment,
        )
        self._result_limit = result_limit
        self.capacity = max_workers
        self._slots = asyncio.Semaphore(max_workers)
        self._pool = WorkerPool(
            settings, max_workers=max_workers, spare=spare, budget=budget or RestartBudget()
        )

    @property
    def live(self) -> int:
        """Workers that are idle, in a call or about to be ready."""
        return self._pool.live

    @property
    def idle(self) -> int:
        return self._pool.idle

    @property
    def busy(self) -> int:
        return self._pool.busy

    @property
    def ending(self) -> int:
        """Workers that are being ended and are not proven gone yet."""
        return self._pool.ending

    @property
    def survivors(self) -> tuple[int, ...]:
        """Process ids of workers whose group was still there after SIGKILL (B4)."""
        return self._pool.survivors

    async def invoke(self, tool: Tool, arguments: Mapping[str, Any], context: ToolContext) -> Any:
        """Run the tool's function in a worker; see `invoke_function`.

        In the worker the tool gets a context of the same class, without `time_left`. Its token knows that it was
        cancelled, not why.
        """
        return await self.invoke_function(
            f"{tool.function.__module__}:{tool.function.__qualname__}",
            arguments,
            call_id=context.call_id,
            on_progress=context.report,
            token=context.token,
            on_return=context.returned,
            show=context.show,
            facts={
                "tool_name": context.tool_name,
                "scope": context.scope,
                "workspace": context.workspace,
                "metadata": dict(context.metadata),
            },
        )

    async def invoke_function(
        self,
        function: str,
        arguments: Mapping[str, Any],
        *,
        call_id: str,
        on_progress: Callable[[Progress], None],
        token: CancellationToken | None = None,
        on_return: Callable[[float], None] = lambda _: None,
        show: Show = show_nowhere,
        facts: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run "module:qualname" with `arguments` in a worker and return its result.

        `facts` go into the tool's context: `tool_name`, `scope`, `workspace`, `metadata`. `on_return` gets the
        `time.monotonic()` at which it returned in the worker, `show` each image that it shows. Cancelling the
        surrounding task sends SIGTERM to the worker's group and SIGKILL after `kill_grace`. `CancelledError` follows
        when the group is gone.

        Raises:
            RemoteToolError, ToolFailed: the tool raised; the second one with a sentence for the model.
            CallRefused: function, arguments or result cannot cross.
            WorkerDied, WorkerPoolBroken: the worker ended during the call, or the function's workers died too often.
            WorkerPoolClosed, Cancelled: `aclose` was called, or `token` was cancelled before the call began.
        """
        request = self._request(function, arguments, call_id=call_id, facts=facts)
        async with self._worker(function) as worker:
            if token is not None:
                token.raise_if_cancelled()
            answer = await worker.call(
                request,
                call_id=call_id,
                on_progress=on_progress,
                on_return=on_return,
                show=show,
            )
        return value_of(answer)

    async def warm(self) -> None:
        """Start the spare workers now instead of at the first call."""
        await self._pool.warm()

    async def aclose(self) -> None:
        """End every worker and its children. Return when all are gone, within the grace and a second."""
        await self._pool.aclose()

    @asynccontextmanager
    async def _worker(self, function: str) -> AsyncIterator[WorkerConnection]:
        """Lend a worker for one call. It is ended if the call is cancelled."""
        worker: WorkerConnection | None = None
        try:
            async with self._slots:
                worker = await self._pool.acquire(function)
                yield worker
        except WorkerDied as death:
            if worker is not None:
                self._pool.record_death(worker, death, function=function)
            raise
        except asyncio.CancelledError:
            if worker is not None:
                await asyncio.wait({self._pool.terminate(worker)})
            raise
        finally:
            if worker is not None:
                self._pool.release(worker)

    def _request(
        self,
        function: str,
        arguments: Mapping[str, Any],
        *,
        call_id: str,
        facts: Mapping[str, Any] | None,
    ) -> bytes:
        try:
            frame = {
                "call": call_id,
                "function": function,
                "arguments": pydantic_core.to_jsonable_python(dict(arguments)),
                "context": pydantic_core.to_jsonable_python(dict(facts or {})),
            }
            return frames.pack(frame, limit=self._result_limit)
        except frames.FrameTooLarge as error:
            raise InputRefused("too_large", f"input: {error}") from None
        except (TypeError, ValueError) as error:
            raise InputRefused("not_json", f"input: {error}") from error
