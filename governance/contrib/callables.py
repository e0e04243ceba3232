"""Runs any program's callables as tools: a deadline, a token, limits, and one outcome for every call (B8)."""

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
    ToolOutcome,
    make_tool,
)
from governance.contrib.execution import (
    ExecutorSource,
    execute_to_end,
    executor_for,
    with_body,
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
    """Return a coroutine function that runs `function` under the executor and returns its own value.

    `declared` are the keywords of `make_tool`. A plain function runs in a thread of its own. With
    `isolation="process"` it runs in a worker process: it must be importable, and arguments and value cross as JSON. A
    parameter annotated with `ToolContext` is filled in. Policies are those of the callable's name, or of the name in
    `declared`.

    The value is the call's `ToolOutcome.value`, the same object; the record has only its text.

    Raises:
        ToolTimeoutError: no end within its limit; it was asked to stop, and may run on if it does not listen.
        Cancelled: the call's token or `token` was cancelled.
        ToolExecutionError: the function raised `original_error`, which is the cause too.
        GovernanceError: the call was refused: switched off, no place in the queue, no approval.
    """
    tool = _tool(function, declared)
    parameter = None if isinstance(function, functools.partial) else tool.context_parameter
    signature = _without(inspect.signature(function), parameter)

    @functools.wraps(function)
    async def run(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs).arguments

        def body(context: ToolContext) -> Any:
            if parameter is None:
                return function(*args, **kwargs)
            return function(**given, **{parameter: context})

        chosen = await executor_for(executor)
        call = _call(tool, given, scope=scope)
        made = tool if tool.isolation is Isolation.PROCESS else with_body(tool, body)
        live = chosen.prepare(call, token=token, tool=made)
        return _value(await execute_to_end(chosen, live, host=host))

    run.__signature__ = signature  # type: ignore[attr-defined]
    return run


def _tool(function: Callable[..., Any], declared: dict[str, Any]) -> Tool:
    is_plain = inspect.isroutine(function) or isinstance(function, functools.partial)
    name = declared.pop("name", None) or getattr(function, "__name__", type(function).__name__)
    # only arguments that cross into a process are validated; others are passed as they are
    is_process = declared.get("isolation") == Isolation.PROCESS
    tool = make_tool(
        function if is_plain else function.__call__,  # type: ignore[operator]
        **{"name": name, "render": _render, "raw_schema": None if is_process else {}, **declared},
    )
    if is_process:
        tool.build()
    return tool


def _without(signature: inspect.Signature, parameter: str | None) -> inspect.Signature:
    kept = [one for one in signature.parameters.values() if one.name != parameter]
    return signature.replace(parameters=kept)


def _call(tool: Tool, given: dict[str, Any], *, scope: str) -> ToolCall:
    return ToolCall(
        id=f"{tool.name}-{next(_numbers)}",
        tool_name=tool.name,
        input=pydantic_core.to_jsonable_python(given, fallback=str, bytes_mode="base64"),
        scope=scope,
    )


def _render(value: Any) -> str:
    """Return the value's text for the record; an unserialisable value is no failure, as the caller gets the object."""
    if value is None or isinstance(value, str):
        return value or ""
    try:
        return pydantic_core.to_json(value, fallback=str, bytes_mode="base64").decode()
    except ValueError:
        return f"<{type(value).__qualname__}>"


def _value(outcome: ToolOutcome) -> Any:
    if outcome.error is None:
        return outcome.value
    if isinstance(outcome.error, ToolExecutionError):
        raise outcome.error from outcome.error.original_error
    raise outcome.error
