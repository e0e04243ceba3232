"""Callables of any program under the rules of tools: a deadline, a token, limits, and one outcome for every call (B8)."""

import functools
import inspect
import itertools
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, ParamSpec, TypeVar, overload

import pydantic_core

from governance import (
    CancellationToken,
    Host,
    Isolation,
    Tool,
    ToolCall,
    ToolContext,
    ToolExecutionError,
    make_tool,
)
from governance.contrib.execution import (
    ExecutorSource,
    enter_context,
    execute_to_the_end,
    executor_of,
)

P = ParamSpec("P")
R = TypeVar("R")

_numbers = itertools.count(1)


@overload
def governed(
    function: Callable[P, Awaitable[R]],
    *,
    executor: ExecutorSource = None,
    scope: str = "",
    token: CancellationToken | None = None,
    host: Host | None = None,
    **declared: Any,
) -> Callable[P, Coroutine[Any, Any, R]]: ...
@overload
def governed(
    function: Callable[P, R],
    *,
    executor: ExecutorSource = None,
    scope: str = "",
    token: CancellationToken | None = None,
    host: Host | None = None,
    **declared: Any,
) -> Callable[P, Coroutine[Any, Any, R]]: ...
def governed(
    function: Callable[..., Any],
    *,
    executor: ExecutorSource = None,
    scope: str = "",
    token: CancellationToken | None = None,
    host: Host | None = None,
    **declared: Any,
) -> Callable[..., Coroutine[Any, Any, Any]]:
    """Return a coroutine function that runs `function` under the executor and returns its very value.

    `declared` are the keywords of `make_tool`. A plain function runs in a thread of its own, or in a worker process
    with `isolation="process"`: then it must be importable, and arguments and value are JSON. `tool_context()` is
    the call's context. The value comes from the call's outcome: what is on record is its text, what is returned is the
    object. Arguments are not validated. Policies are those of the name that the callable has or `declared` gives it.

    Raises:
        ToolTimeoutError: no end within its limit; it was asked to stop, and may run on if it does not listen.
        Cancelled: the call's token or `token` was cancelled.
        ToolExecutionError: the function raised `original_error`, which is the cause too.
        GovernanceError: the call was refused: switched off, no place in the queue.
    """
    tool = _tool(function, declared)
    signature = inspect.signature(function)

    @functools.wraps(function)
    async def run(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs).arguments
        chosen = await executor_of(executor)
        call = ToolCall(
            id=f"{tool.name}-{next(_numbers)}",
            tool_name=tool.name,
            input=pydantic_core.to_jsonable_python(given, fallback=str, bytes_mode="base64"),
            scope=scope,
        )
        made = tool
        if tool.isolation is not Isolation.PROCESS:
            body = functools.partial(function, *args, **kwargs)
            made = with_body(tool, body, is_async=tool.isolation is Isolation.ASYNC)
        live = chosen.prepare(call, token=token, tool=made)
        outcome = await execute_to_the_end(chosen, live, host=host)
        if outcome.error is None:
            return outcome.value
        if isinstance(outcome.error, ToolExecutionError):
            raise outcome.error from outcome.error.original_error
        raise outcome.error

    return run
