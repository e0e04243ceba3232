"""Finds the agent of a conversation, and makes the first one (sync ORM)."""

from dataclasses import dataclass
from typing import Any

from django.apps import apps as installed
from django.db import DEFAULT_DB_ALIAS, router
from django.utils.translation import gettext as _

from turns.chat_models.catalog import public_name
from turns.conf import app_settings
from turns.exceptions import AgentUnavailable
from turns.models import Agent

FIRST_NAME = "assistant"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSummary:
    """An agent that may be chosen; `chat_model` None = its name is known to this site alone."""

    name: str
    description: str
    chat_model: str | None
    is_default: bool


def find_agent(name: str = "") -> Agent:
    """Return the enabled agent of this name, or the default one. Raise `AgentUnavailable`.

    Where no agent is the default one, an unsaved agent without a name answers, as the project's settings say.
    """
    if not name:
        return Agent.objects.filter(is_default=True, is_enabled=True).first() or Agent(name="")
    agent = Agent.objects.filter(name=name, is_enabled=True).first()
    if agent is None:
        raise AgentUnavailable(
            _(
                "There is no agent named “%(name)s”, or it is switched off. Start a new conversation with another "
                "agent; an administrator can switch it on."
            )
            % {"name": name[:64]}
        )
    return agent


def enabled_agents() -> list[AgentSummary]:
    """Return the agents that may be chosen, the default one first."""
    return [
        AgentSummary(
            name=agent.name,
            description=agent.description,
            chat_model=public_name(agent.chat_model or app_settings.CHAT_MODEL),
            is_default=agent.is_default,
        )
        for agent in Agent.objects.filter(is_enabled=True).order_by("-is_default", "name")
    ]


def make_first_agent(
    *, using: str = DEFAULT_DB_ALIAS, apps: Any = installed, **_signal: Any
) -> None:
    """After a migration: if there is no agent at all, make the default one, which may do all that the site allows."""
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
