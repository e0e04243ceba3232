"""Runs coroutine tools on the event loop."""

from collections.abc import Mapping
from typing import Any

from governance.core.containment import EXITS, contain_what_follows, contained_failure
from governance.core.tools import Tool, ToolContext


class CoroutineInvoker:
    """Awaits the tool's coroutine in the task that the executor made for it."""

    async def invoke(self, tool: Tool, arguments: Mapping[str, Any], context: ToolContext) -> Any:
        """Run the body and return its value; an exit is raised as a `RuntimeError`."""
        contain_what_follows()
        keywords = dict(arguments)
        if tool.context_parameter is not None:
            keywords[tool.context_parameter] = context
        try:
            return await tool.function(**keywords)
        except EXITS as error:
            raise contained_failure(error) from error
        finally:
            context.returned()
