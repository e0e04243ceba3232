"""What a conversation offers before its first message: samples to begin with, and a placeholder (sync ORM)."""

from dataclasses import dataclass

from django.utils.translation import gettext as _

from turns.agents.lookup import find_agent
from turns.chat_models.catalog import LOCAL
from turns.conf import app_settings
from turns.exceptions import AgentUnavailable


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A message to begin with; `title` says what it shows, where the text alone does not."""

    text: str
    title: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Starters:
    """What the empty page of an agent shows; an empty placeholder = the page's own."""

    samples: tuple[Sample, ...] = ()
    placeholder: str = ""


def starters_of(agent_name: str) -> Starters:
    """Return what an agent offers: its own samples, or those of the local chat model; nothing if it is gone."""
    try:
        agent = find_agent(agent_name)
    except AgentUnavailable:
        return Starters()
    offered = tuple(Sample(text=text) for text in agent.samples)
    if not offered and (agent.chat_model or app_settings.CHAT_MODEL) == LOCAL:
        offered = _commands()
    return Starters(samples=offered, placeholder=agent.placeholder)


def _commands() -> tuple[Sample, ...]:
    """Return what shows the `local` chat model, which understands commands only."""
    return (
        Sample(text="wait 20", title=_("A slow tool")),
        Sample(text="wait 5\nwait 12\nlist", title=_("Three at once")),
        Sample(text="read nowhere.txt", title=_("One that fails")),
        Sample(text="help", title=_("What else there is")),
    )
