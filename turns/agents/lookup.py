"""Finds the agent of a conversation, and makes the first one (sync ORM)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from django.apps import apps as installed
from django.db import DEFAULT_DB_ALIAS, router
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from governance.durations import limit_ms
from governance.prepared_statements import Select, fields_of
from governance.rows import NewRow
from governance.sanitize import sanitize_text
from turns.chat_models.catalog import public_name
from turns.conf import app_settings
from turns.core.tool_names import ToolNames
from turns.exceptions import AgentUnavailable
from turns.models import Agent

FIRST_NAME = "assistant"
ASK = "sessions_ask"  # the tool that asks another agent

DEFAULT = Select(lambda: Agent.objects.filter(is_default=True, is_enabled=True).order_by("pk")[:1])
NAMED = Select(
    lambda name: Agent.objects.filter(name=name, is_enabled=True), **fields_of(Agent, "name")
)
ENABLED = Select(lambda: Agent.objects.filter(is_enabled=True).order_by("-is_default", "name"))
_new_agent = NewRow(Agent)
LONGEST_NAME = 64
NO_SUCH_AGENT = gettext_noop(
    "There is no agent named “%(name)s”, or it is switched off. Start a new conversation with another agent; an "
    "administrator can switch it on."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSummary:
    """An agent that may be chosen; `chat_model` None = its name is known to this site alone."""

    name: str
    description: str
    chat_model: str | None
    is_default: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentConfig:
    """An agent, and those that it may ask."""

    agent: Agent
    others: Sequence[AgentSummary]


def read_config(name: str) -> AgentConfig:
    """Return the agent of this name, or the default one, with those that it may ask. Raise `AgentUnavailable`."""
    enabled = ENABLED.all()
    agent = _named(name, enabled) if name else _default_of(enabled)
    may_ask = agent.tools is None or ASK in ToolNames(agent.tools)
    return AgentConfig(agent=agent, others=[_summary(one) for one in enabled] if may_ask else [])


def terms_of(agent: Agent) -> dict[str, Any]:
    """Return the fields of a turn that its agent decides, as it is now."""
    return {
        "agent": agent.name,
        "turn_timeout_ms": _turn_timeout_ms(agent),
        "step_limit": agent.step_limit or app_settings.STEP_LIMIT,
        "token_limit": agent.token_limit,
    }


def _turn_timeout_ms(agent: Agent) -> int | None:
    """The agent's limit, else the project's; None = no limit, which both may write as 0."""
    if agent.turn_timeout_ms is not None:
        return agent.turn_timeout_ms or None
    return limit_ms(app_settings.TURN_TIMEOUT) or None


def find_agent(name: str = "") -> Agent:
    """Return the enabled agent of this name, or the default one. Raise `AgentUnavailable`.

    Where no agent is the default one, an unsaved agent without a name answers, as the project's settings say.
    """
    if not name:
        return DEFAULT.first() or Agent(name="")
    return _named(name, NAMED.all(name=sanitize_text(name)))


def enabled_agents() -> list[AgentSummary]:
    """Return the agents that may be chosen, the default one first."""
    return [_summary(agent) for agent in ENABLED.all()]


def _named(name: str, agents: Iterable[Agent]) -> Agent:
    name = sanitize_text(name)  # a person or a model has typed it
    for agent in agents:
        if agent.name == name:
            return agent
    raise AgentUnavailable(_(NO_SUCH_AGENT) % {"name": name[:LONGEST_NAME]})


def _default_of(agents: Iterable[Agent]) -> Agent:
    return next((agent for agent in agents if agent.is_default), None) or _new_agent(name="")


def _summary(agent: Agent) -> AgentSummary:
    return AgentSummary(
        name=agent.name,
        description=agent.description,
        chat_model=public_name(agent.chat_model or app_settings.CHAT_MODEL),
        is_default=agent.is_default,
    )


def make_first_agent(
    *, using: str = DEFAULT_DB_ALIAS, apps: Any = installed, **_signal: Any
) -> None:
    """After a migration: if there is no agent at all, make the default one. It may do all that the site allows."""
    try:
        model = apps.get_model("turns", "Agent")
    except LookupError:  # the database was taken back to before there were agents
        return
    if not router.allow_migrate_model(using, model) or model.objects.using(using).exists():
        return
    model.objects.using(using).create(
        name=FIRST_NAME,
        description="Answers where no other agent was chosen, and may use every tool.",
        is_default=True,
    )
