"""Finds the agent of a conversation, finds what its page shows before the first message, and creates the first agent.

The functions here use the synchronous ORM.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from django.apps import apps as installed
from django.contrib.auth import get_user_model
from django.contrib.auth.models import PermissionsMixin
from django.db import router
from django.db.models import Exists, OuterRef, QuerySet
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from governance.durations import limit_ms
from governance.sanitize import sanitize_text
from turns.chat_models.catalog import LOCAL, public_name
from turns.conf import app_settings
from turns.core.chat_model import ChatSettings
from turns.exceptions import AgentUnavailable
from turns.models import Agent, AgentGroup

FIRST_NAME = "assistant"
ASK = "sessions_ask"  # the tool that asks another agent

LONGEST_NAME = 64
NO_SUCH_AGENT = gettext_noop(
    "There is no agent named “%(name)s” that you may use: it does not exist, is disabled, or is restricted to other people. Start a new conversation with another agent, or ask an administrator."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSummary:
    """A selectable agent. `chat_model` is None if it is the path of a factory, which is private."""

    name: str
    description: str
    chat_model: str | None
    is_default: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentConfig:
    """An agent, with the agents that it may ask."""

    agent: Agent
    others: Sequence[AgentSummary]


def read_config(name: str, *, user_id: Any) -> AgentConfig:
    """Return the named or the default agent, with the agents that it may ask for this person.

    Raise `AgentUnavailable`.
    """
    usable = list(_usable_by(user_id))
    agent = _named(name, usable) if name else _default_of(usable[:1])
    may_ask = agent.tools is None or ASK in ToolNames(agent.tools)
    return AgentConfig(agent=agent, others=_summaries(usable) if may_ask else [])


def terms_of(agent: Agent) -> dict[str, Any]:
    """Return the fields that a new turn copies from its agent."""
    return {
        "agent": agent.name,
        "turn_timeout_ms": _turn_timeout_ms(agent),
        "step_limit": agent.step_limit or app_settings.STEP_LIMIT,
        "token_limit": agent.token_limit,
    }


def chat_settings_of(agent: Agent) -> ChatSettings:
    return ChatSettings(
        temperature=agent.temperature,
        top_p=agent.top_p,
        max_tokens=agent.max_tokens,
        effort=agent.effort,
        stop_sequences=tuple(agent.stop_sequences),
        parallel_calls=agent.parallel_calls,
        cache_retention=agent.cache_retention,
        window=agent.window,
    )


def _turn_timeout_ms(agent: Agent) -> int | None:
    """Return the limit of the agent, or else of the project; None if there is no limit. Both can set 0 for no limit."""
    if agent.turn_timeout_ms is not None:
        return agent.turn_timeout_ms or None
    return limit_ms(app_settings.TURN_TIMEOUT) or None


def find_agent(name: str = "", *, user_id: Any = None) -> Agent:
    """Return the enabled agent of this name, or the default, if the person may use it. Raise `AgentUnavailable`.

    Without a person (None), only unrestricted agents can be used. If a person may not use the site's default, the first
    agent they may use is their default. If the site has no agents, an unsaved agent without a name answers according to
    the project's settings.
    """
    usable = _usable_by(user_id)
    return (
        _named(name, usable.filter(name=sanitize_text(name))) if name else _default_of(usable[:1])
    )


def default_name(*, user_id: Any) -> str:
    """Return the name of the person's default agent; empty if it has no name, or if they may use no agent."""
    try:
        return find_agent(user_id=user_id).name
    except AgentUnavailable:
        return ""


def usable_agents(*, user_id: Any) -> list[AgentSummary]:
    """Return the agents that the person may choose, the default first."""
    return _summaries(_usable_by(user_id))


def _enabled() -> "QuerySet[Agent]":
    return Agent.objects.filter(is_enabled=True).order_by("-is_default", "name")


def _usable_by(user_id: Any) -> "QuerySet[Agent]":
    """Return the enabled agents that a person may use: unrestricted ones, those of their groups, and all for
    superusers.
    """
    restrictions = AgentGroup.objects.filter(agent=OuterRef("pk"))
    may_use: Any = ~Exists(restrictions)
    if issubclass(get_user_model(), PermissionsMixin):  # custom user models may lack groups
        person: Any = get_user_model()._default_manager.filter(pk=user_id, is_active=True)
        may_use |= Exists(restrictions.filter(group__in=person.values("groups")))
        may_use |= Exists(person.filter(is_superuser=True))
    return _enabled().filter(may_use)


def _named(name: str, agents: Iterable[Agent]) -> Agent:
    name = sanitize_text(name)  # entered by a person or a model
    for agent in agents:
        if agent.name == name:
            return agent
    raise AgentUnavailable(_(NO_SUCH_AGENT) % {"name": name[:LONGEST_NAME]})


def _default_of(usable: Iterable[Agent]) -> Agent:
    first = next(iter(usable), None)
    if first is not None and first.is_default:
        return first
    site_default = _enabled().filter(is_default=True).first()
    if site_default is None:
        return Agent(name="")
    if first is None:
        raise AgentUnavailable(_(NO_SUCH_AGENT) % {"name": site_default.name})
    return first


def _summaries(agents: Iterable[Agent]) -> list[AgentSummary]:
    return [
        AgentSummary(
            name=agent.name,
            description=agent.description,
            chat_model=public_name(agent.chat_model or app_settings.CHAT_MODEL),
            is_default=agent.is_default,
        )
        for agent in agents
    ]


def make_first_agent(*, using: str, apps: Any = installed, **_signal: Any) -> None:
    """Create the default agent after a migration if there are no agents. It has no restrictions."""
    try:
        model = apps.get_model("turns", "Agent")
    except LookupError:  # the database was migrated back to before agents existed
        return
    if not router.allow_migrate_model(using, model) or model.objects.using(using).exists():
        return
    model.objects.using(using).create(
        name=FIRST_NAME,
        description="Answers where no other agent was chosen, and may use every tool.",
        is_default=True,
    )


class ToolNames:
    """A set of tool names. The tools need not exist yet, and `github_*` matches all names with this prefix."""

    def __init__(self, names: Iterable[str]) -> None:
        names = tuple(names)
        self._exact = frozenset(name for name in names if not name.endswith("*"))
        self._beginnings = tuple(name.removesuffix("*") for name in names if name.endswith("*"))

    def may_begin_with(self, prefix: str) -> bool:
        """Return whether a tool whose name has this prefix may be in the set."""
        return any(name.startswith(prefix) for name in self._exact) or any(
            name.startswith(prefix) or prefix.startswith(name) for name in self._beginnings
        )

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and (name in self._exact or name.startswith(self._beginnings))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A message with which a person can start. `title` explains what the message shows, if its text does not."""

    text: str
    title: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Starters:
    """The content of a page before the first message to its agent. An empty placeholder means the page's default."""

    samples: tuple[Sample, ...] = ()
    placeholder: str = ""


def starters_of(agent_name: str, *, user_id: Any = None) -> Starters:
    """Return the agent's samples, or those of the local chat model; no samples if the agent is unavailable to
    this person.
    """
    try:
        agent = find_agent(agent_name, user_id=user_id)
    except AgentUnavailable:
        return Starters()
    samples = tuple(Sample(text=text) for text in agent.samples)
    if not samples and (agent.chat_model or app_settings.CHAT_MODEL) == LOCAL:
        samples = _commands()
    return Starters(samples=samples, placeholder=agent.placeholder)


def _commands() -> tuple[Sample, ...]:
    """Return samples for the `local` chat model, which only understands commands."""
    return (
        Sample(text="wait 20", title=_("A slow tool")),
        Sample(text="wait 5\nwait 12\nlist", title=_("Three in parallel")),
        Sample(text="read nowhere.txt", title=_("One that fails")),
        Sample(text="help", title=_("Other commands")),
    )
