"""A chat model that says what time it is, by a clock that all processes of a machine share."""

import asyncio
import time
from collections.abc import AsyncIterator

from benchmarks.bare import noop
from governance import make_tool, registry
from turns.core.chat_model import ChatDelta, ChatRequest, TextDelta, ToolCallDelta

END = ";"
NOW, CALL, THREE, HOLD, WRITE = "now", "call", "three", "hold", "write"
_CALLS = {CALL: 1, THREE: 3, HOLD: 1, WRITE: 1}  # how many each word asks for at first
_HELD = ("affect", '{"seconds": 600}')
# What WRITE says at last: an answer as pages have to show them.
ANSWER = (
    "Some **bold** words and `code`.\n\n- one\n- two\n\n" + "A paragraph of several words. " * 6
)


def stream(chunks: int, *, per_second: int) -> str:
    """Return what makes the model say the time so often, so many times a second."""
    return f"stream {chunks} {per_second}"


def moments(text: str) -> list[float]:
    """Return the moments that a piece of an answer names."""
    return [float(moment) for moment in text.split(END) if moment]


class ClockModel:
    """Obeys the last words of the user: tells the moment of its request, again and again, or calls tools first."""

    async def stream(self, request: ChatRequest) -> AsyncIterator[ChatDelta]:
        """Answer."""
        asked_at = time.monotonic()
        word, *how = _last_words(request)
        has_called = bool(request.messages[-1].tool_results)
        if word in _CALLS and not has_called:
            for number in range(_CALLS[word]):
                name, arguments = (
                    _HELD if word == HOLD else (noop.__name__, f'{{"number": {number}}}')
                )
                yield ToolCallDelta(index=number, id=f"c{number}", name=name, arguments=arguments)
            return
        yield TextDelta(ANSWER if word == WRITE else f"{asked_at}{END}")
        if word == "stream":
            chunks, per_second = map(int, how)
            for _ in range(chunks - 1):
                await asyncio.sleep(1 / per_second)
                yield TextDelta(f"{time.monotonic()}{END}")


def _last_words(request: ChatRequest) -> list[str]:
    """What the user has said last, in words."""
    for message in reversed(request.messages):
        if message.role == "user" and (said := "".join(block.text for block in message.texts)):
            return said.split()
    return [NOW]


def make() -> ClockModel:
    """Be the factory that `TURNS_CHAT_MODEL` names. Its process gets the tool of the other libraries' turns."""
    if noop.__name__ not in registry:
        registry.register(make_tool(noop))
    return ClockModel()
