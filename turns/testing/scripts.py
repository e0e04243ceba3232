"""Chat models that follow the script of a test."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from turns.core.chat_model import ChatDelta, ChatRequest, TextDelta, ToolCallDelta

_UNNUMBERED = -1


class Gate:
    """A place in a script where the stream waits. `reached` is set when the stream arrives there.

    With `ignores_cancel`, the stream continues to wait when it is cancelled, as a faulty chat model would.
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
    """A place in a script where the stream raises an exception."""

    error: Exception


Item = ChatDelta | Gate | Failure


def text(words: str) -> TextDelta:
    """Return a piece of text for a reply."""
    return TextDelta(words)


def call(id: str, name: str, /, **input: Any) -> ToolCallDelta:
    """Return a tool call, for a reply."""
    return partial_call(id, name, arguments=json.dumps(input))


def partial_call(id: str, name: str = "", *, arguments: str = '{"pa') -> ToolCallDelta:
    """Return a piece of a tool call, with part of its arguments; later pieces with the same id continue it."""
    return ToolCallDelta(index=_UNNUMBERED, id=id, name=name, arguments=arguments)


def gate(opening: asyncio.Event | None = None, *, ignores_cancel: bool = False) -> Gate:
    """Return a place where the reply waits for an event. Without `opening`, it waits forever."""
    return Gate(opening or asyncio.Event(), ignores_cancel=ignores_cancel)


def failure(error: Exception) -> Failure:
    """Return a place where the reply raises an error."""
    return Failure(error)


class FunctionChatModel:
    """Answers each request with the result of a function: a string, or the pieces that an async generator yields."""

    def __init__(self, answer: Callable[[ChatRequest], str | AsyncIterator[ChatDelta]]) -> None:
        self._answer = answer

    async def stream(self, request: ChatRequest) -> AsyncGenerator[ChatDelta, None]:
        answer = self._answer(request)
        if isinstance(answer, str):
            yield TextDelta(answer)
            return
        async for delta in answer:
            yield delta


class ScriptedChatModel:
    """Answers the first request with the first reply, the second request with the second reply, and so on.

    `requests` lists the requests, `cancelled` counts the cancelled streams, and `closed` counts the streams that have
    ended. A request without a reply raises `AssertionError`.
    """

    def __init__(self, *replies: Sequence[Item]) -> None:
        self.requests: list[ChatRequest] = []
        self.cancelled = 0
        self.closed = 0
        self._replies = replies

    @property
    def tool_names(self) -> frozenset[str]:
        """Return the names of the tools that the replies call."""
        items = (item for reply in self._replies for item in reply)
        return frozenset(
            item.name for item in items if isinstance(item, ToolCallDelta) and item.name
        )

    async def stream(self, request: ChatRequest) -> AsyncGenerator[ChatDelta, None]:
        """Stream the next reply."""
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
