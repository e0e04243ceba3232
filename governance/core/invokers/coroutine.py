"""Runs coroutine tools on the event loop."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from governance.core.containment import begin_work, contained
from governance.core.tools import Tool, ToolContext

RunInThread = Callable[..., Awaitable[Any]]
Surroundings = Callable[[Tool, ToolContext], AbstractAsyncContextManager[RunInThread]]
"""A function that returns a context manager to enter around a body. The context manager yields a function that runs the
tool's blocking functions.
"""


@asynccontextmanager
async def _no_surroundings(_tool: Tool, _context: ToolContext) -> AsyncIterator[RunInThread]:
    yield asyncio.to_thread


class CoroutineInvoker:
    """An invoker that awaits the tool's coroutine in the task that the executor has created for it.

    `surroundings` returns a context manager that is entered around each body, for example to provide a database thread.
    """

    def __init__(self, surroundings: Surroundings = _no_surroundings) -> None:
        self._surroundings = surroundings

    async def invoke(self, tool: Tool, arguments: Mapping[str, Any], context: ToolContext) -> Any:
        """Run the body and return its value with its text. If the body requests an exit, raise a `RuntimeError`.

        A cancelled body may have left work behind, as `asyncio.to_thread` does. The task then ends when that work ends,
        or immediately at a second cancel, which arrives when the loop is closing.
        """
        work = begin_work()
        keywords = dict(arguments)
        if tool.context_parameter is not None:
            keywords[tool.context_parameter] = context
        try:
            with contained():
                async with self._surroundings(tool, context) as run_in_thread:
                    value = tool.function(**keywords)
                    if inspect.isasyncgen(value):
                        value = await context.writer.collect(value)
                    else:
                        value = await value
                    if context.writer.writes_quickly(value):
                        return context.writer.write(value)
                    return await run_in_thread(context.writer.write, value)
        except BaseException:
            if (task := asyncio.current_task()) is not None and task.cancelling():
                await work.ended()
            raise
        finally:
            context.returned()
