"""Who takes part in a turn: the chat model, the agent's instructions and tools, the place it works in."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from governance import ApprovalRule, CancellationToken, Tool, registry
from governance.db import run_in_db_thread, run_in_query_thread
from governance.runtime import disabled_reasons, prepare_tools, prepare_workspace, workspace_of
from turns.agents.lookup import (
    ASK,
    LONGEST_NAME,
    NO_SUCH_AGENT,
    AgentConfig,
    AgentSummary,
    read_config,
)
from turns.agents.offers import notices_of, offer
from turns.attachments import file_storage
from turns.chat_models.catalog import get_chat_model
from turns.chat_models.local import COLLEAGUES
from turns.conf import app_settings
from turns.core.chat_model import ToolSpec, media_of
from turns.core.exceptions import TurnRefused
from turns.core.ports import ClaimedTurn
from turns.core.runner import TurnConfig
from turns.core.tool_names import ToolNames
from turns.core.tracing import Traced
from turns.exceptions import AgentUnavailable
from turns.models import Agent
from turns.queueing.turn_tree import line_of, rules_above
from turns.running.attachment_files import with_files
from turns.running.call_images import keep_image

SPAWN = "sessions_spawn"
SUB_AGENTS = "sub-agents"  # the directory of their workspaces


async def turn_config_of(turn: ClaimedTurn, *, token: CancellationToken) -> TurnConfig:
    """Return who takes part in a claimed turn.

    Raises:
        TurnRefused: its agent was deleted or switched off since the message was taken, or has no chat model.
    """
    read = turn.agent_config
    found = read if isinstance(read, AgentConfig) else await _read_agents(turn.agent)
    agent, others = found.agent, found.others
    name = agent.chat_model or app_settings.CHAT_MODEL
    chat_model = get_chat_model(name)
    workspace = await _workspace_of(turn)
    await prepare_tools(token=token)
    offered = offer(registry, agent.tools, chat_model=name)
    return TurnConfig(
        chat_model=chat_model,
        traced=Traced(chat_model=name, shows_content=app_settings.TRACE_CONTENT),
        tools=_specs(offered.tools),
        notices=notices_of(offered),
        with_files=partial(with_files, media=media_of(chat_model), workspace=workspace),
        keep_image=partial(keep_image, turn) if file_storage.is_configured() else None,
        instructions=_instructions(agent, others),
        workspace=workspace,
        make_workspace=None if workspace is None else _maker_of(workspace),
        metadata=_metadata(turn),
        allowed=_allowed(agent),
        max_parallel=agent.max_parallel_calls,
        approval=await _approval_of(agent, turn),
        report_grace=app_settings.REPORT_GRACE if turn.parent_id else 0.0,
    )


def _metadata(turn: ClaimedTurn) -> dict[str, Any]:
    """What tools find in the `metadata` of their context."""
    return {
        "turn_id": str(turn.id),
        "turn_epoch": turn.epoch,
        "conversation_id": str(turn.conversation_id),
        "agent": turn.agent,
    }


async def _workspace_of(turn: ClaimedTurn) -> Path | None:
    """A sub-agent works in a directory of its own within the workspace of the conversation that it works for."""
    if turn.parent_id is None:
        return workspace_of(str(turn.conversation_id))
    top, *below = await run_in_db_thread(line_of)(turn.conversation_id)
    workspace = workspace_of(str(top))
    return workspace and workspace.joinpath(*(f"{SUB_AGENTS}/{pk.hex[:12]}" for pk in below))


def _maker_of(workspace: Path) -> Callable[[], Awaitable[None]]:
    """Return what makes the directory of a turn once; many turns call no tool that works there."""
    making: asyncio.Task[None] | None = None

    async def make() -> None:
        nonlocal making
        if making is None or (making.done() and making.exception()):
            making = asyncio.create_task(prepare_workspace(workspace), name="a turn's workspace")
        await asyncio.shield(making)  # calls side by side wait for it together

    return make


async def _approval_of(agent: Agent, turn: ClaimedTurn) -> ApprovalRule:
    """What the agent asks for at least; a sub-agent is bound by those that it works for, too (D1)."""
    rules = [agent.approval]
    if turn.parent_id is not None:
        rules += await run_in_db_thread(rules_above)(turn.parent_id)
    said = [ApprovalRule(rule) for rule in rules if rule]
    return max(said, key=lambda rule: rule.strictness, default=ApprovalRule.NEVER)


async def _read_agents(name: str) -> AgentConfig:
    try:
        return await run_in_query_thread(read_config)(name)
    except AgentUnavailable as gone:
        sentence = NO_SUCH_AGENT % {"name": name[:LONGEST_NAME]}  # rows keep it in English
        raise TurnRefused(gone.code, sentence) from gone


def _allowed(agent: Agent) -> ToolNames | None:
    return None if agent.tools is None else ToolNames(agent.tools)


def _instructions(agent: Agent, others: Iterable[AgentSummary]) -> str:
    """The project's word to every agent, the agent's own, and who may be asked to work for it."""
    listed = "\n".join(
        f"- {other.name}: {other.description}" if other.description else f"- {other.name}"
        for other in others
        if other.name != agent.name
    )
    colleagues = f"{COLLEAGUES} ({ASK}, {SPAWN}):\n{listed}" if listed else ""
    parts = (app_settings.INSTRUCTIONS, agent.instructions.strip(), colleagues)
    return "\n\n".join(filter(None, parts))


def _specs(tools: Sequence[Tool]) -> tuple[ToolSpec, ...]:
    """What the chat model is told of tools. One that is switched off stays in the list, so that it can say why."""
    specs = [
        ToolSpec(
            name=tool.name,
            description=f"Do not use it now. {off} {tool.description}" if off else tool.description,
            input_schema=tool.input_schema,
        )
        for tool, off in zip(tools, disabled_reasons(tools), strict=True)
    ]
    return tuple(specs)
