"""A chat model that says what time it is, by a clock that all processes of a machine share."""

import asyncio
import time
from collections.abc import AsyncIterator

from turns.core.chat_model import ChatDelta, ChatRequest, TextDelta, ToolCallDelta

END = ";"
NOW, CALL, HOLD = "now", "call", "hold"
PAUSE = 0.04  # seconds between two chunks of `stream`: twenty-five in a second


def stream(chunks: int) -> str:
    """Return what makes the model say the time so often."""
    return f"stream {chunks}"


def moments(text: str) -> list[float]:
    """Return the moments that a piece of an answer names."""
    return [float(moment) for moment in text.split(END) if moment]


class ClockModel:
    """Obeys the last words of the user: tells the moment of its request, again and again, or calls a tool first."""

    async def stream(self, request: ChatRequest) -> AsyncIterator[ChatDelta]:
        """Answer."""
        asked_at = time.monotonic()
        last = request.messages[-1]
        said = "".join(block.text for block in last.texts).split()
        if last.role == "user" and said and said[0] in (CALL, HOLD):
            seconds = 0 if said[0] == CALL else 600
            arguments = f'{{"seconds": {seconds}}}'
            yield ToolCallDelta(index=0, id="c1", name="affect", arguments=arguments)
            return
        yield TextDelta(f"{asked_at}{END}")
        for _ in range(int(said[1]) - 1 if len(said) > 1 else 0):
            await asyncio.sleep(PAUSE)
            yield TextDelta(f"{time.monotonic()}{END}")


def make() -> ClockModel:
    """Be the factory that `TURNS_CHAT_MODEL` names."""
    return ClockModel()
