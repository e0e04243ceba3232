"""Scripts: a chat model that says what a test tells it to, and waits where the test wants it to."""

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from turns.core.chat_model import ChatDelta, ChatRequest, TextDelta, ToolCallDelta

_UNNUMBERED = -1


class Gate:
    """A place in a script where the stream waits. `reached` is set as soon as it does.

    With `ignores_cancel` it goes on waiting when it is cancelled, as a bad chat model would.
    """

    def __init__(self, opening: asyncio.Event, *, ignores_cancel: bool = False) -> None:
        self.opening = opening
        self.reached = asyncio.Event()
        self._ignores_cancel = ignores_cancel

    async def pass_through(self) -> None:
        """Wait until the gate is open."""
        self.reached.set()
        while not self.opening.is_set():
            try:
                await self.opening.wait()
            except asyncio.CancelledError:
                if not self._ignores_cancel:
                    raise


@dataclass(frozen=True, slots=True)
class Failure:
    """A place in a script where the stream raises."""

    error: Exception


Item = ChatDelta | Gate | Failure


def text(said: str) -> TextDelta:
    """Say something."""
    return TextDelta(said)


def call(id: str, name: str, /, **input: Any) -> ToolCallDelta:
    """Ask for a tool."""
    return partial_call(id, name, arguments=json.dumps(input))


def partial_call(id: str, name: str = "", *, arguments: str = '{"pa') -> ToolCallDelta:
    """Ask for a tool with a piece of the arguments; more pieces under the same id continue it."""
    return ToolCallDelta(index=_UNNUMBERED, id=id, name=name, arguments=arguments)


def gate(opening: asyncio.Event | None = None, *, ignores_cancel: bool = False) -> Gate:
    """Wait for an event; without one, for ever."""
    return Gate(opening or asyncio.Event(), ignores_cancel=ignores_cancel)


def failure(error: Exception) -> Failure:
    """Raise."""
    return Failure(error)


class ScriptedChatModel:
    """Answers its first request with the first reply, the second with the second, and remembers both.

    `requests` are what it was asked, `cancelled` counts the streams that were cancelled, `closed` all that have ended.
    A request that the script does not have fails with `AssertionError`.
    """

    def __init__(self, *replies: Sequence[Item]) -> None:
        self.requests: list[ChatRequest] = []
        self.cancelled = 0
        self.closed = 0
        self._replies = replies

    async def stream(self, request: ChatRequest) -> AsyncGenerator[ChatDelta, None]:
        """Give the next reply."""
        self.requests.append(request)
        if len(self.requests) > len(self._replies):
            raise AssertionError(f"The script has no reply to request {len(self.requests)}.")
        places: dict[str, int] = {}
        try:
            for item in self._replies[len(self.requests) - 1]:
                await asyncio.sleep(0)
                match item:
                    case Gate():
                        await item.pass_through()
                    case Failure(error=error):
                        raise error
                    case ToolCallDelta(index=index) if index == _UNNUMBERED:
                        yield replace(item, index=places.setdefault(item.id, len(places)))
                    case _:
                        yield item
        except (asyncio.CancelledError, GeneratorExit):
            self.cancelled += 1
            raise
        finally:
            self.closed += 1
