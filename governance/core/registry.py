"""The registry of tools by name, and the decorator that registers a function as a tool (G3)."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from operator import attrgetter
from typing import Any, TypeVar, overload

from governance.core.exceptions import UnknownTool
from governance.core.excerpts import shortened
from governance.core.policy import ApprovalRule
from governance.core.tools import Concurrency, Isolation, Tool, ToolFunction

LONGEST_TITLE = 80
F = TypeVar("F", bound=ToolFunction)


class ToolRegistry:
    """The tools of a process by name. The tools of MCP servers are added and removed while the process is running."""

    def __init__(self, tools: Mapping[str, Tool] | None = None) -> None:
        self._tools: dict[str, Tool] = dict(tools or {})

    def register(self, tool: Tool) -> None:
        """Add a tool. Raise `ValueError` if the name is taken by another function."""
        registered = self._tools.get(tool.name)
        if registered is not None and registered.function is not tool.function:
            raise ValueError(f"Two tools are named {tool.name!r}.")
        tool.build()
        self._tools[tool.name] = tool

    def unregister(self, name: str) -> None:
        """Remove a tool, for example because its server was removed or a test ends."""
        self._tools.pop(name, None)

    def get(self, name: str) -> Tool:
        """Return the tool. Raise `UnknownTool` if the name is not registered."""
        try:
            return self._tools[name]
        except KeyError:
            raise UnknownTool(name) from None

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def __iter__(self) -> Iterator[Tool]:
        return iter(sorted(self._tools.values(), key=attrgetter("name")))

    def __len__(self) -> int:
        return len(self._tools)


registry = ToolRegistry()


@overload
def tool(function: F) -> F: ...
@overload
def tool(
    *,
    name: str | None = None,
    title: str = "",
    question: str = "",
    description: str | None = None,
    isolation: Isolation | str | None = None,
    timeout: float | None = None,
    idle_timeout: float | None = None,
    timeout_argument: str | None = None,
    expected_duration: float | None = None,
    concurrency: Concurrency | str = Concurrency.PARALLEL,
    max_running: int | None = None,
    side_effects: bool = False,
    loop_exempt: bool = False,
    only_waits: bool = False,
    approval: ApprovalRule | str | None = None,
    asks_for: Callable[[Mapping[str, Any]], bool] | None = None,
    off: Callable[[], str] | None = None,
    permission: str = "",
    register: ToolRegistry | None = None,
) -> Callable[[F], F]: ...
def tool(function: F | None = None, **declared: Any) -> F | Callable[[F], F]:
    """Register a function as a tool, and return the function (G3).

    The model reads the function's name and docstring, and a schema that is derived from its type hints. A coroutine
    function runs on the event loop, and a plain function in a thread, or with `isolation="process"` in a worker
    process. The function's attribute `tool` is set to its `Tool`.

    Args:
        function: the function, or `None` if the decorator is called with keywords.
        declared: the keywords of the second signature, which `Tool` describes. `register` is the registry to which the
        tool is added, by default the global one.
    """

    def decorate(decorated: F) -> F:
        target = declared.pop("register", None)
        new_tool = make_tool(decorated, **declared)
        (registry if target is None else target).register(new_tool)
        decorated.tool = new_tool  # type: ignore[attr-defined]
        return decorated

    return decorate if function is None else decorate(function)


def make_tool(function: ToolFunction, **declared: Any) -> Tool:
    """Return the `Tool` of a function without registering it. It accepts the keywords of `tool`, except `register`."""
    name = declared.pop("name", None) or getattr(function, "__name__", "tool")
    title = shortened(" ".join(str(declared.pop("title", "")).split()), limit=LONGEST_TITLE)
    description = declared.pop("description", None) or inspect.getdoc(function) or ""
    isolation = _isolation_of(function, name, declared.pop("isolation", None))
    if declared.get("raw_schema") is None and any(
        p.kind in _UNNAMED for p in _parameters(function)
    ):
        raise ValueError(
            f"The tool {name!r} has parameters without names: a model fills them by name."
        )
    if (most := declared.get("max_running")) is not None and most < 1:
        raise ValueError(f"The tool {name!r} could never run: max_running is {most}.")
    concurrency = Concurrency(declared.pop("concurrency", Concurrency.PARALLEL))
    approval = declared.pop("approval", None)
    return Tool(
        name=name,
        title=title,
        description=description.strip(),
        function=function,
        isolation=isolation,
        concurrency=concurrency,
        approval=None if approval is None else ApprovalRule(approval),
        **declared,
    )


def _isolation_of(function: ToolFunction, name: str, declared: str | None) -> Isolation:
    is_async = inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)
    natural = Isolation.ASYNC if is_async else Isolation.THREAD
    isolation = Isolation(declared or natural)
    if isolation is Isolation.PROCESS and inspect.isasyncgenfunction(function):
        return isolation  # its values are collected in the worker
    if (isolation is Isolation.ASYNC) != (natural is Isolation.ASYNC):
        raise ValueError(
            f"The tool {name!r} cannot run as {isolation.value!r}: see its definition."
        )
    return isolation


_UNNAMED = frozenset(
    {
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.VAR_POSITIONAL,
        inspect.Parameter.VAR_KEYWORD,
    }
)


def _parameters(function: ToolFunction) -> Iterator[inspect.Parameter]:
    return iter(inspect.signature(function).parameters.values())
