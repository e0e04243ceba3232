"""Runs any program's callables as tools, with a deadline, a token, limits, and one outcome for every call (B8)."""

import functools
import inspect
import itertools
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from typing import Any, Literal, ParamSpec, TypeVar, overload

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
from governance.sanitize import sanitize_json

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
    failures: Literal["raise"] = "raise",
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
    failures: Literal["raise"] = "raise",
    **declared: Any,
) -> Callable[P, Coroutine[Any, Any, R]]: ...
@overload
def governed(
    function: Callable[P, Awaitable[R]],
    *,
    executor: ExecutorSource = None,
    scope: str = "",
    token: CancellationToken | None = None,
    host: Host | None = None,
    failures: Literal["text"],
    **declared: Any,
) -> Callable[P, Coroutine[Any, Any, R | str]]: ...
@overload
def governed(
    function: Callable[P, R],
    *,
    executor: ExecutorSource = None,
    scope: str = "",
    token: CancellationToken | None = None,
    host: Host | None = None,
    failures: Literal["text"],
    **declared: Any,
) -> Callable[P, Coroutine[Any, Any, R | str]]: ...
def governed(
    function: Callable[..., Any],
    *,
    executor: ExecutorSource = None,
    scope: str = "",
    token: CancellationToken | None = None,
    host: Host | None = None,
    failures: Literal["raise", "text"] = "raise",
    **declared: Any,
) -> Callable[..., Coroutine[Any, Any, Any]]:
    """Return a coroutine function that runs `function` through an executor and returns the value that it returns.

    `declared` contains keyword arguments of `make_tool`. A plain function runs in its own thread. With
    `isolation="process"` it runs in a worker process, so it must be importable, and its arguments and its value are
    transferred as JSON. A parameter that is annotated with `ToolContext` receives the context of the call. The limits
    are those set for the callable's name, or for the name in `declared`.

    The caller gets the object `ToolOutcome.value` itself; only its text is stored.

    With `failures="text"`, a call that fails raises no exception. Instead, it returns `ToolOutcome.result`, a string
    that tells the chat model what happened and whether the function may still be running. If the surrounding task is
    cancelled, the call still raises `CancelledError`.

    Raises:
        ToolTimeoutError: the function did not end within its limit. It was asked to stop, but may still be running.
        Cancelled: the call's own token or `token` was cancelled.
        ToolExecutionError: the function raised an exception, which is in `original_error` and also the cause.
        GovernanceError: the call was refused, for example because the tool is disabled, the queue is full, or a person
            did not approve it.
    """
    if failures not in ("raise", "text"):
        raise ValueError(f'failures must be "raise" or "text", not {failures!r}')
    tool = _tool(function, declared)
    parameter = None if isinstance(function, functools.partial) else tool.context_parameter
    signature = _without(inspect.signature(function), parameter)

    @functools.wraps(function)
    async def run(*args: Any, **kwargs: Any) -> Any:
        arguments = signature.bind(*args, **kwargs).arguments

        def body(context: ToolContext) -> Any:
            if parameter is None:
                return function(*args, **kwargs)
            return function(**arguments, **{parameter: context})

        tool_executor = await executor_for(executor)
        call = _call(tool, arguments, scope=scope)
        called_tool = tool if tool.isolation is Isolation.PROCESS else with_body(tool, body)
        live = tool_executor.prepare(call, token=token, tool=called_tool)
        outcome = await execute_to_end(tool_executor, live, host=host)
        if failures == "text" and outcome.error is not None:
            return outcome.result
        return _value(outcome)

    run.__signature__ = signature  # type: ignore[attr-defined]
    return run


def _tool(function: Callable[..., Any], declared: dict[str, Any]) -> Tool:
    is_plain = inspect.isroutine(function) or isinstance(function, functools.partial)
    name = declared.pop("name", None) or getattr(function, "__name__", type(function).__name__)
    # Only arguments that are sent to a worker process are validated; others are passed unchanged.
    is_process = declared.get("isolation") == Isolation.PROCESS
    tool = make_tool(
        function if is_plain else function.__call__,  # type: ignore[operator]
        **{"name": name, "render": _render, "raw_schema": None if is_process else {}, **declared},
    )
    tool = replace(tool, takes_meta=False)
    if is_process:
        tool.build()
    return tool


def _without(signature: inspect.Signature, parameter: str | None) -> inspect.Signature:
    parameters = [
        candidate for candidate in signature.parameters.values() if candidate.name != parameter
    ]
    return signature.replace(parameters=parameters)


def _call(tool: Tool, arguments: dict[str, Any], *, scope: str) -> ToolCall:
    return ToolCall(
        id=f"{tool.name}-{next(_numbers)}",
        tool_name=tool.name,
        # Only the record is sanitized, because a program's own strings, such as file names, may contain characters that
        # a chat model may not send.
        input=sanitize_json(
            pydantic_core.to_jsonable_python(arguments, fallback=str, bytes_mode="base64")
        ),
        scope=scope,
    )


def _render(value: Any) -> str:
    """Return the value's text for the record.

    If the value cannot be serialised, return the name of its type: this is not a failure, because the caller gets the
    object itself.
    """
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
