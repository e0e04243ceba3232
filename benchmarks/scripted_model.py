"""The chat model of a whole turn: what it says is the script of the other libraries, too."""

from collections.abc import AsyncIterator

from benchmarks.peers import SHAPE
from turns.core.chat_model import ChatDelta, ChatRequest, TextDelta, ToolCallDelta

FACTORY = f"{__name__}.make"


class ScriptedModel:
    """Asks for all calls at once, then says that it is done."""

    async def stream(self, request: ChatRequest) -> AsyncIterator[ChatDelta]:
        """Answer."""
        if request.messages[-1].tool_results:
            yield TextDelta("done")
            return
        for number in range(SHAPE.calls):
            arguments = f'{{"number": {number}}}'
            yield ToolCallDelta(index=number, id=f"c{number}", name="noop", arguments=arguments)


def make() -> ScriptedModel:
    """Be the factory that `TURNS_CHAT_MODEL` names."""
    return ScriptedModel()
