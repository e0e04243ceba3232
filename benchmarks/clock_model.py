"""A chat model that reports the time, by the clock that all processes of a machine share, and its tools."""

import asyncio
import time
from collections.abc import AsyncIterator

from governance import tool
from turns.core.chat_model import ChatDelta, ChatRequest, TextDelta, ToolCallDelta

_END = ";"
NOW = "now"


def call(count: int) -> str:
    """Return the message that makes the model call a tool `count` times in one step, then answer."""
    return f"do_nothing {count}"


def hold(count: int) -> str:
    """Return the message that makes the model call a tool that never returns, `count` times in one step."""
    return f"never_return {count}"


def stream(pieces: int, *, per_second: int) -> str:
    """Return the message that makes the model stream this many pieces of text."""
    return f"stream {pieces} {per_second}"


def times(text: str) -> list[float]:
    """Return the times at which the model sent the pieces of this text."""
    return [float(moment) for moment in text.split(_END) if moment]


@tool
async def do_nothing(number: int) -> str:
    """Return immediately."""
    return str(number)


@tool(timeout=600)
async def never_return(number: int) -> str:
    """Never return."""
    await asyncio.Event().wait()
    return str(number)


class ClockModel:
    """Follows the command in the user's last message."""

    async def stream(self, request: ChatRequest) -> AsyncIterator[ChatDelta]:
        """Call tools, or stream the time of the request and of each further piece."""
        requested_at = time.monotonic()
        command, *numbers = _last_words(request)
        if command in ("do_nothing", "never_return") and request.messages[-1].texts:
            for number in range(int(numbers[0])):
                arguments = f'{{"number": {number}}}'
                yield ToolCallDelta(
                    index=number, id=f"c{number}", name=command, arguments=arguments
                )
            return
        yield TextDelta(f"{requested_at}{_END}")
        if command == "stream":
            pieces, per_second = map(int, numbers)
            for _ in range(pieces - 1):
                await asyncio.sleep(1 / per_second)
                yield TextDelta(f"{time.monotonic()}{_END}")


def _last_words(request: ChatRequest) -> list[str]:
    """Return the words of the user's last message. A note on a turn that was cancelled may precede its text."""
    texts = next(
        message.texts
        for message in reversed(request.messages)
        if message.role == "user" and message.texts
    )
    return texts[-1].text.split()


def make() -> ClockModel:
    """Return the model; `TURNS_CHAT_MODEL` names this function."""
    return ClockModel()
