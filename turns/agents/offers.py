"""Selects the tools of an agent that a request contains.

Their number and size are limited, and people see which tools are left out.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Generic, Protocol, TypeVar

from django.utils.translation import gettext_noop as _

from turns.agents.lookup import ToolNames
from turns.chat_models.catalog import most_tools
from turns.conf import app_settings
from turns.core.chat_model import Notice

TOOLS_LEFT_OUT = "tools_left_out"
TOOLS_STARTING = "tools_starting"
_MOST_NAMED = 5


class Weighed(Protocol):
    """A tool with its approximate size in `tokens` per request."""

    @property
    def name(self) -> str: ...

    @property
    def server(self) -> str:
        """The tool's MCP server; empty for a tool of this site."""

    @property
    def tokens(self) -> int: ...


T = TypeVar("T", bound=Weighed)
_tokens = attrgetter("tokens")
LEFT_OUT = _(
    "This agent has %(all)s tools, but a request can contain at most %(kept)s. Left out: %(names)s. An administrator can select the agent’s tools."
)
STARTING = _(
    "These MCP servers are still starting: %(names)s. Once they have started, the agent can use their tools for your next message."
)
AND_MORE = _("%(names)s and %(more)s more")


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer(Generic[T]):
    """The tools offered to a chat model, and those left out."""

    tools: Sequence[T]
    left_out: Sequence[T]

    @property
    def tokens(self) -> int:
        """Return the approximate number of tokens that the offered tools add to each request."""
        return sum(map(_tokens, self.tools))

    @property
    def problem(self) -> str:
        """Return an untranslated sentence about the tools that are left out, with advice; empty if none are."""
        if not self.left_out:
            return ""
        return LEFT_OUT % {
            "all": len(self.tools) + len(self.left_out),
            "kept": len(self.tools),
            "names": _listed([tool.name for tool in self.left_out]),
        }


def offer(
    tools: Iterable[T], names: Sequence[str] | None, *, chat_models: Iterable[str]
) -> Offer[T]:
    """Return the tools to offer to an agent's chat models. `names` is the agent's list of tools; None means all tools.

    This site's tools come first, then those of MCP servers, by name, so the selection is stable.
    """
    tool_names = None if names is None else ToolNames(names)
    had = [tool for tool in tools if tool_names is None or tool.name in tool_names]
    most, most_tokens = app_settings.MAX_TOOLS, app_settings.MAX_TOOL_TOKENS
    most = min([most, *filter(None, map(most_tools, chat_models))])
    if len(had) <= most and sum(map(_tokens, had)) <= most_tokens:
        return Offer(tools=had, left_out=[])
    kept_names: set[str] = set()
    tokens = 0
    for tool in sorted(had, key=lambda tool: (tool.server != "", tool.name)):
        if len(kept_names) < most and tokens + tool.tokens <= most_tokens:
            kept_names.add(tool.name)
            tokens += tool.tokens
    return Offer(
        tools=[tool for tool in had if tool.name in kept_names],
        left_out=[tool for tool in had if tool.name not in kept_names],
    )


def notices_of(
    tool_offer: Offer[T], names: Sequence[str] | None, *, starting: Mapping[str, str]
) -> tuple[Notice, ...]:
    """Return the notices about an offer: the tools left out, once per conversation, and the servers still starting.

    `starting` contains the MCP servers that are not connected yet, with the prefixes of their tools.
    """
    notices = []
    if problem := tool_offer.problem:
        notices.append(Notice(code=TOOLS_LEFT_OUT, message=problem, lasts=True))
    tool_names = None if names is None else ToolNames(names)
    late = [
        name
        for name, prefix in starting.items()
        if tool_names is None or tool_names.may_begin_with(prefix)
    ]
    if late:
        message = STARTING % {"names": _listed(late)}
        notices.append(Notice(code=TOOLS_STARTING, message=message))
    return tuple(notices)


def _listed(names: Sequence[str]) -> str:
    """Return a list of the first names, with the number of further ones."""
    text = ", ".join(names[:_MOST_NAMED])
    more = len(names) - _MOST_NAMED
    return AND_MORE % {"names": text, "more": more} if more > 0 else text
