"""Which of an agent's tools a request carries. Their number and weight are bounded, and it is told where some are left out."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Generic, Protocol, TypeVar

from django.utils.translation import gettext_noop as _

from turns.chat_models.catalog import most_tools
from turns.conf import app_settings
from turns.core.chat_model import Notice
from turns.core.tool_names import ToolNames

TOOLS_LEFT_OUT = "tools_left_out"
_MOST_NAMED = 5


class Weighed(Protocol):
    """A tool as far as it counts here: `tokens` is about what it takes of each request."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def server(self) -> str:
        """The MCP server that it comes from; empty for a tool of this site."""

    @property
    def tokens(self) -> int:
        """Its weight."""


T = TypeVar("T", bound=Weighed)
_tokens = attrgetter("tokens")
LEFT_OUT = _(
    "This agent has %(all)s tools, and its chat model is offered %(kept)s of them, the most that a request may carry. "
    "Left out: %(names)s. An administrator can choose the agent's tools."
)
AND_MORE = _("%(names)s and %(more)s more")


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer(Generic[T]):
    """The tools that a chat model is offered, and those that are left out."""

    tools: Sequence[T]
    left_out: Sequence[T]

    @property
    def tokens(self) -> int:
        """About how many tokens the offered ones take of each request."""
        return sum(map(_tokens, self.tools))

    @property
    def problem(self) -> str:
        """What is left out, in a sentence of the source, and what to do; empty if nothing is."""
        if not self.left_out:
            return ""
        names = ", ".join(tool.name for tool in self.left_out[:_MOST_NAMED])
        if (more := len(self.left_out) - _MOST_NAMED) > 0:
            names = AND_MORE % {"names": names, "more": more}
        return LEFT_OUT % {
            "all": len(self.tools) + len(self.left_out),
            "kept": len(self.tools),
            "names": names,
        }


def offer(tools: Iterable[T], names: Sequence[str] | None, *, chat_model: str) -> Offer[T]:
    """Return what of the tools an agent's chat model is offered; `names` = its list of tools, None = all of them.

    The tools of this site come first, then those of MCP servers, by name. So the same ones are left out every time.
    """
    meant = None if names is None else ToolNames(names)
    had = [tool for tool in tools if meant is None or tool.name in meant]
    most, most_tokens = app_settings.MAX_TOOLS, app_settings.MAX_TOOL_TOKENS
    most = min(most, most_tools(chat_model) or most)
    if len(had) <= most and sum(map(_tokens, had)) <= most_tokens:
        return Offer(tools=had, left_out=[])
    kept: set[str] = set()
    tokens = 0
    for tool in sorted(had, key=lambda tool: (tool.server != "", tool.name)):
        if len(kept) < most and tokens + tool.tokens <= most_tokens:
            kept.add(tool.name)
            tokens += tool.tokens
    return Offer(
        tools=[tool for tool in had if tool.name in kept],
        left_out=[tool for tool in had if tool.name not in kept],
    )


def notices_of(offered: Offer[T]) -> tuple[Notice, ...]:
    """Return what a person is told of an offer, once in a conversation."""
    problem = offered.problem
    return (Notice(code=TOOLS_LEFT_OUT, message=problem, lasts=True),) if problem else ()
