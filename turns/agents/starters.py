"""What a conversation offers before its first message: samples to begin with, and a placeholder (sync ORM)."""

from dataclasses import dataclass

from turns.agents.lookup import find_agent
from turns.chat_models.catalog import LOCAL
from turns.chat_models.guide import samples
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
        offered = tuple(Sample(text=text, title=title) for title, text in samples())
    return Starters(samples=offered, placeholder=agent.placeholder)
