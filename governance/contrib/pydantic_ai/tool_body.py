"""The bodies of an agent's calls, and the values that pydantic-ai receives for their outcomes."""

import asyncio
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pydantic_core
from pydantic_ai import RunContext, exceptions
from pydantic_ai.messages import ToolCallPart, ToolReturn, ToolReturnPart
from pydantic_ai.toolsets import AbstractToolset, FunctionToolset, ToolsetTool
from pydantic_ai.toolsets.function import FunctionToolsetTool

from governance import (
    CallStatus,
    Isolation,
    Tool,
    ToolCall,
    ToolContext,
    ToolFailed,
    ToolOutcome,
    ToolRegistry,
    make_tool,
)
from governance.contrib.execution import with_body

# Exceptions that pydantic-ai itself handles: a retry, a deferral, the end of the run.
_OWN_EXCEPTIONS = (
    exceptions.AgentRunError,
    exceptions.ApprovalRequired,
    exceptions.CallDeferred,
    exceptions.ModelRetry,
    exceptions.ToolFailed,
    exceptions.ToolFailedError,
    exceptions.ToolRetryError,
    exceptions.UserError,
)
shown_part: ContextVar[ToolCallPart | None] = ContextVar(
    "the call as the model wrote it", default=None
)


class ToolBody:
    """The body of one call. Functions of a `FunctionToolset` are called directly, other tools through their toolset."""

    def __init__(
        self,
        name: str,
        tool_args: dict[str, Any],
        ctx: RunContext[Any],
        tool: ToolsetTool[Any],
        *,
        toolset: AbstractToolset[Any],
    ) -> None:
        self._name, self._arguments, self._ctx, self._tool = name, tool_args, ctx, tool
        self._toolset = toolset
        self._timeout = tool.tool_def.timeout
        self._schema: Any = None
        self._run: Callable[..., Any] = self._call_toolset
        if type(toolset).call_tool is FunctionToolset.call_tool:
            assert isinstance(toolset, FunctionToolset)  # noqa: S101 - the method belongs to it
            assert isinstance(tool, FunctionToolsetTool)  # noqa: S101 - the toolset creates it
            self._schema = toolset.tools[tool.original_name or name].function_schema
            self._run = self._call_function if tool.is_async else self._call_in_thread
            self._timeout = toolset.timeout if self._timeout is None else self._timeout
        self._loop = asyncio.get_running_loop()

    def as_tool(self, name: str, *, registry: ToolRegistry) -> Tool:
        """Return a tool for this call, with this body and the declarations of the registered tool or the metadata."""
        tool = self._declared(name, registry=registry)
        if tool.timeout is None and self._timeout is not None:
            tool = replace(tool, timeout=self._timeout)
        if tool.isolation is not Isolation.PROCESS:
            return with_body(replace(tool, render=_render), self._run)
        if self._schema.takes_ctx:
            raise exceptions.UserError(
                f"The tool {name!r} cannot run in a process: a RunContext does not cross into it."
            )
        return tool

    def _declared(self, name: str, *, registry: ToolRegistry) -> Tool:
        function = self._schema.function if self._schema else self._call_toolset
        for candidate in (name, self._name):
            if candidate in registry and registry.get(candidate).function is function:
                return registry.get(candidate)
        limits = (self._tool.tool_def.metadata or {}).get("governance", {})
        if self._run is self._call_function and not inspect.iscoroutinefunction(function):
            function = self._call_function  # an object whose `__call__` is a coroutine function
        return make_tool(function, name=name, raw_schema={}, **limits)

    async def _call_toolset(self, _: ToolContext) -> Any:
        with _passing_on():
            return await self._toolset.call_tool(self._name, self._arguments, self._ctx, self._tool)

    async def _call_function(self, _: ToolContext) -> Any:
        """Call the function without its toolset, which would apply its own timeout."""
        with _passing_on():
            return await self._schema.call(self._arguments, self._ctx)

    def _call_in_thread(self, _: ToolContext) -> Any:
        """Call the function in the current thread, which belongs only to this call and to no pool (T7)."""
        keywords = dict(self._arguments)
        positional = [self._ctx] if self._schema.takes_ctx else []
        positional += [keywords.pop(name) for name in self._schema.positional_fields]
        positional += keywords.pop(self._schema.var_positional_field, ())
        with _passing_on():
            value = self._schema.function(*positional, **keywords)
            return self._await_on_loop(value) if inspect.isawaitable(value) else value

    def _await_on_loop(self, value: Any) -> Any:
        """Await the value on the call's loop. If the loop has ended, close the coroutine, which would never be
        awaited.
        """
        waiting = _awaited(value)
        try:
            return asyncio.run_coroutine_threadsafe(waiting, self._loop).result()
        finally:
            for coroutine in filter(inspect.iscoroutine, (waiting, value)):
                coroutine.close()


def call_of(name: str, tool_args: dict[str, Any], ctx: RunContext[Any], *, scope: str) -> ToolCall:
    """Return the `ToolCall` for a call of the agent. A call that runs after its approval gets a separate id."""
    call_id = ctx.tool_call_id or uuid4().hex
    part = shown_part.get()
    meta = None
    if part is not None and part.tool_call_id == call_id:
        name, meta = part.tool_name, part.args_as_dict().get("_meta")
    json_args = pydantic_core.to_jsonable_python(tool_args, fallback=str, bytes_mode="base64")
    return ToolCall(
        id=f"{call_id}-approved" if ctx.tool_call_approved else call_id,
        tool_name=name,
        input=json_args if meta is None else {**json_args, "_meta": meta},
        scope=scope,
    )


@contextmanager
def _passing_on() -> Iterator[None]:
    """Pass exceptions of pydantic-ai through the executor, which records them as failures."""
    try:
        yield
    except _OWN_EXCEPTIONS as error:
        raise ToolFailed(getattr(error, "message", "") or type(error).__name__) from error


def value_or_raise(outcome: ToolOutcome) -> Any:
    if outcome.status is CallStatus.SUCCEEDED:
        return outcome.result if isinstance(outcome.value, str) else outcome.value
    cause = outcome.error.__cause__ if isinstance(outcome.error, ToolFailed) else None
    if isinstance(cause, _OWN_EXCEPTIONS):
        raise cause
    raise exceptions.ToolFailed(outcome.result)


def _render(value: Any) -> str:
    """Return the value as the text that pydantic-ai sends to the model."""
    content = value.return_value if isinstance(value, ToolReturn) else value
    return ToolReturnPart(tool_name="", content=content, tool_call_id="").model_response_str()


async def _awaited(value: Any) -> Any:
    return await value
