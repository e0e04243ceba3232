"""The capability that runs every tool call of an agent through an executor."""

import json
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

from pydantic_ai import AgentRunResult, RunContext
from pydantic_ai.capabilities import (
    AbstractCapability,
    RawToolArgs,
    ValidatedToolArgs,
    WrapRunHandler,
    WrapToolExecuteHandler,
)
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool, WrapperToolset

from governance import CancellationToken, Host
from governance.contrib.execution import ExecutorSource, execute_to_end, executor_for
from governance.contrib.pydantic_ai.tool_body import ToolBody, call_of, shown_part, value_or_raise
from governance.sanitize import clean_arguments


def conversation_of(ctx: RunContext[Any]) -> str:
    """Return the id of a run's conversation, or else of the run itself, as the scope of its calls."""
    return ctx.conversation_id or ctx.run_id or ""


@dataclass
class Governance(AbstractCapability[Any]):
    """A capability that runs every tool call of an agent, or of a single run, through an executor.

    If a call times out, is cancelled, is refused or raises an exception, the model gets a message that says so, and the
    run continues. If `token` is cancelled, the run is cancelled too (`RunCancelled`). `host` returns the host of each
    call, and `scope` the id of its conversation. A tool declares limits in its metadata under "governance", with the
    keyword arguments of `make_tool`. Alternatively, decorate its function with `governance.tool`, under the same name.
    """

    executor: ExecutorSource = None
    _: KW_ONLY
    token: CancellationToken | None = None
    host: Callable[[RunContext[Any]], Host] | None = None
    scope: Callable[[RunContext[Any]], str] = conversation_of

    @classmethod
    def get_serialization_name(cls) -> str | None:
        """Return None to stay out of agent specs, because an executor cannot be serialised."""
        return None

    def get_wrapper_toolset(self, toolset: AbstractToolset[Any]) -> AbstractToolset[Any]:
        """Govern the innermost toolsets, so that a tool's time excludes approvals, filters and hooks."""
        return toolset.visit_and_replace(lambda leaf: GovernedToolset(leaf, governance=self))

    async def wrap_run(
        self, ctx: RunContext[Any], *, handler: WrapRunHandler
    ) -> AgentRunResult[Any]:
        """Run the agent, and cancel the run if the token is cancelled."""
        if self.token is None:
            return await handler()
        forget = self.token.on_cancel(lambda _: ctx.cancel())
        try:
            return await handler()
        finally:
            forget()

    async def before_tool_validate(
        self,
        ctx: RunContext[Any],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: RawToolArgs,
    ) -> RawToolArgs:
        """Clean the arguments, so that the tool gets them as they are stored, and accept `_meta.timeout_ms` (A3)."""
        has_meta = "_meta" in args and "_meta" not in tool_def.parameters_json_schema.get(
            "properties", {}
        )
        if not has_meta and isinstance(args, str) and "\\u0000" not in args:
            return args
        raw_args = replace(call, args=args).args_as_dict()
        clean, problem = clean_arguments(raw_args)
        # If there is a problem, the executor refuses the call.
        checked_args = raw_args if problem else clean
        if has_meta:
            checked_args = {name: value for name, value in checked_args.items() if name != "_meta"}
        if checked_args == raw_args:
            return args
        return json.dumps(checked_args) if isinstance(args, str) else checked_args

    async def wrap_tool_execute(
        self,
        ctx: RunContext[Any],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: ValidatedToolArgs,
        handler: WrapToolExecuteHandler,
    ) -> Any:
        """Pass the full name and the hint of the call to the toolset, as the model wrote them."""
        token = shown_part.set(call)
        try:
            return await handler(args)
        finally:
            shown_part.reset(token)


@dataclass
class GovernedToolset(WrapperToolset[Any]):
    """A toolset whose calls run through an executor. `Governance` wraps every toolset of an agent in one."""

    governance: Governance

    @property
    def id(self) -> str | None:
        """The id of the wrapped toolset."""
        return self.wrapped.id

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        """Run the call. Return the body's value, or raise an exception that explains to the model what happened."""
        if isinstance(self.wrapped, GovernedToolset):
            return await self.wrapped.call_tool(name, tool_args, ctx, tool)
        executor = await executor_for(self.governance.executor)
        call = call_of(name, tool_args, ctx, scope=self.governance.scope(ctx))
        body = ToolBody(name, tool_args, ctx, tool, toolset=self.wrapped)
        live = executor.prepare(
            call,
            token=self.governance.token,
            tool=body.as_tool(call.tool_name, registry=executor.registry),
        )
        host = self.governance.host(ctx) if self.governance.host else None
        return value_or_raise(await execute_to_end(executor, live, host=host))
