"""Runs coroutine tools on the event loop."""

from collections.abc import Mapping
from typing import Any

from governance.core.tools import Tool, ToolContext


class CoroutineInvoker:
    """Awaits the tool's coroutine in the task that the executor made for it."""

    async def invoke(self, tool: Tool, arguments: Mapping[str, Any], context: ToolContext) -> Any:
        """Run the body and return what it returns."""
        keywords = dict(arguments)
        if tool.context_parameter is not None:
            keywords[tool.context_parameter] = context
        try:
            return await tool.function(**keywords)
        except SystemExit as error:  # asyncio would let it end the whole process
            raise RuntimeError("the tool raised SystemExit") from error
