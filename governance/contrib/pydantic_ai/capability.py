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
from governance.contrib.pydantic_ai.tool_body import ToolBody, call_of, handed_over, shown_part


def conversation_of(ctx: RunContext[Any]) -> str:
    """Return the scope of a run's calls: its conversation, or the run itself."""
    return ctx.conversation_id or ctx.run_id or ""


@dataclass
class Governance(AbstractCapability[Any]):
    """Runs every tool call of an agent, or of one run, under an executor.

    A call that times out, is cancelled, is refused or raises returns text to the model, and the run continues. A
    cancelled `token` cancels the run too (`RunCancelled`). `host` gives each call its observer; `scope` is the id of
    one conversation. A tool declares limits in its metadata under "governance", with the keywords of `make_tool`.
    `governance.tool` on the same function, under the same name, does it too.
    """

    executor: ExecutorSource = None
    _: KW_ONLY
    token: CancellationToken | None = None
    host: Callable[[RunContext[Any]], Host] | None = None
    scope: Callable[[RunContext[Any]], str] = conversation_of

    @classmethod
    def get_serialization_name(cls) -> str | None:
        """Stay out of agent specs: an executor cannot be written down."""
        return None

    def get_wrapper_toolset(self, toolset: AbstractToolset[Any]) -> AbstractToolset[Any]:
        """Govern at the leaves, so that time spent on approvals, filters and hooks is not the tool's."""
        return toolset.visit_and_replace(lambda leaf: GovernedToolset(leaf, governance=self))

    async def wrap_run(
        self, ctx: RunContext[Any], *, handler: WrapRunHandler
    ) -> AgentRunResult[Any]:
        """Cancel the run with the token."""
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
        """Accept `_meta.timeout_ms` beside the arguments of any tool (A3)."""
        if "_meta" not in args or "_meta" in tool_def.parameters_json_schema.get("properties", {}):
            return args
        given = replace(call, args=args).args_as_dict()
        rest = {name: value for name, value in given.items() if name != "_meta"}
        if len(rest) == len(given):
            return args
        return json.dumps(rest) if isinstance(args, str) else rest

    async def wrap_tool_execute(
        self,
        ctx: RunContext[Any],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: ValidatedToolArgs,
        handler: WrapToolExecuteHandler,
    ) -> Any:
        """Pass the call as the model wrote it to the toolset: its full name and its hint."""
        token = shown_part.set(call)
        try:
            return await handler(args)
        finally:
            shown_part.reset(token)


@dataclass
class GovernedToolset(WrapperToolset[Any]):
    """Runs the calls of one toolset under an executor; `Governance` wraps every toolset of an agent with it."""

    governance: Governance

    @property
    def id(self) -> str | None:
        """The wrapped toolset's."""
        return self.wrapped.id

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        """Run the call. Return the body's value, or raise what tells the model what happened."""
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
        return handed_over(await execute_to_end(executor, live, host=host))
