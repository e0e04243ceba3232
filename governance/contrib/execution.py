"""Executes one call for code outside this project: finds the executor, wraps the body, and always waits for the
outcome.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, TypeAlias

from governance import (
    Cancellation,
    CancelReason,
    Host,
    Isolation,
    LiveCall,
    Tool,
    ToolContext,
    ToolExecutor,
    ToolOutcome,
    registry,
)
from governance.core.invokers.thread import ThreadInvoker
from governance.per_loop import PerLoop

ExecutorSource: TypeAlias = ToolExecutor | Callable[[], Awaitable[ToolExecutor]] | None

_executors: PerLoop[ToolExecutor] = PerLoop()
_context: ContextVar[ToolContext] = ContextVar("context of the governed call")


async def executor_for(source: ExecutorSource) -> ToolExecutor:
    """Return `source` if it is an executor, the executor that it returns if it is a function, or the executor of the
    running loop if it is None.

    With Django, pass `governance.runtime.get_executor`. The executor of the running loop has the built-in limits. It
    uses threads but no worker processes, so it need not be closed.
    """
    if source is None:
        return _executors.get_or_make(_make)
    return source if isinstance(source, ToolExecutor) else await source()


async def execute_to_end(
    executor: ToolExecutor, live: LiveCall, *, host: Host | None = None
) -> ToolOutcome:
    """Execute the call to its outcome. If the surrounding task is cancelled, cancel the call and wait for its outcome.

    The executor alone would leave such a call without an outcome. The grace period limits the wait.

    Raises:
        asyncio.CancelledError: the surrounding task was cancelled.
    """
    execution = asyncio.create_task(executor.execute(live, host=host), name=f"call {live.id}")
    try:
        return await asyncio.shield(execution)
    except asyncio.CancelledError:
        live.cancel(Cancellation(reason=CancelReason.PARENT))
        await asyncio.wait({execution})
        raise


def tool_context() -> ToolContext:
    """Return the context of the governed call in which this code runs. It offers the token, progress and the time left.

    Raises:
        LookupError: no governed call is running here.
    """
    return _context.get()


def with_body(tool: Tool, body: Callable[[ToolContext], Any]) -> Tool:
    """Return the tool with a body for one call. The body receives only the context of the call."""

    async def run_async(context: ToolContext, **_: Any) -> Any:
        _context.set(context)
        return await body(context)

    def run(context: ToolContext, **_: Any) -> Any:
        _context.set(context)
        return body(context)

    function: Any = run_async if tool.isolation is Isolation.ASYNC else run
    if tool.timeout_argument is not None:
        function.__signature__ = inspect.signature(
            tool.function
        )  # the default of the timeout argument is a limit (T2)
    return replace(tool, function=function, raw_schema=tool.raw_schema or {})


def _make() -> ToolExecutor:
    threads = ThreadInvoker(max_threads=32, max_abandoned=16)
    return ToolExecutor(registry=registry, invokers={Isolation.THREAD: threads})
