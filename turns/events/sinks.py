"""Sends the stored events of turns to sinks, which other apps register before the server starts."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Protocol
from uuid import UUID

logger = logging.getLogger(__name__)

_FAILED = "An event could not be published"


class EventSink(Protocol):
    """A receiver of events in wire format. It may lose some of them, because the log contains all (invariant 2).

    A sink may have a function `push(conversation_id, delta)`, which receives streamed text immediately and must not
    block. Other sinks receive the text through `publish`, from a separate task.
    """

    async def publish(self, conversation_id: UUID, event: dict[str, Any]) -> None: ...


Push = Callable[[UUID, dict[str, Any]], None]


class Relay:
    """Forwards streamed text in the background, in order, and merges waiting pieces of the same answer."""

    def __init__(self, publish: Callable[[UUID, dict[str, Any]], Awaitable[None]]) -> None:
        self._publish = publish
        self._waiting: dict[UUID, list[dict[str, Any]]] = {}
        self._tasks: dict[UUID, asyncio.Task[None]] = {}

    def push(self, conversation_id: UUID, delta: dict[str, Any]) -> None:
        waiting = self._waiting.get(conversation_id)
        if waiting is None:
            self._waiting[conversation_id] = [delta]
            self._tasks[conversation_id] = asyncio.get_running_loop().create_task(
                self._pass_on(conversation_id), name="relay of streamed text"
            )
        elif waiting and _continues(waiting[-1], delta):
            waiting[-1] = {**waiting[-1], "text": waiting[-1]["text"] + delta["text"]}
        else:
            waiting.append(delta)

    async def drain(self, conversation_id: UUID) -> None:
        """Wait until the pieces of a conversation have been forwarded, because an event must follow the text before it."""
        task = self._tasks.get(conversation_id)
        if task is not None and task.get_loop() is asyncio.get_running_loop():
            await asyncio.wait({task})

    async def _pass_on(self, conversation_id: UUID) -> None:
        waiting = self._waiting[conversation_id]
        try:
            while waiting:
                try:
                    await self._publish(conversation_id, waiting.pop(0))
                except Exception:
                    logger.exception(_FAILED, extra={"conversation_id": str(conversation_id)})
        finally:
            del self._waiting[conversation_id], self._tasks[conversation_id]


class _Registered:
    """A registered sink with the function that passes streamed text to it."""

    def __init__(self, sink: EventSink) -> None:
        self.sink = sink
        relay = Relay(sink.publish)
        own: Push | None = getattr(sink, "push", None)
        self.push: Push = own or relay.push
        self._relay = relay
        self.publish = sink.publish if own else self._publish_after_text

    async def _publish_after_text(self, conversation_id: UUID, event: dict[str, Any]) -> None:
        await self._relay.drain(conversation_id)
        await self.sink.publish(conversation_id, event)


_registered: list[_Registered] = []


def register(sink: EventSink) -> None:
    """Add a sink. A second registration of the same sink has no effect."""
    if all(registration.sink != sink for registration in _registered):
        _registered.append(_Registered(sink))


def unregister(sink: EventSink) -> None:
    _registered[:] = [registration for registration in _registered if registration.sink != sink]


async def publish(conversation_id: UUID, events: Iterable[dict[str, Any]]) -> None:
    """Send every event to every sink; failures are logged and do not affect the turn."""
    for event in events:
        for registration in tuple(_registered):
            try:
                await registration.publish(conversation_id, event)
            except Exception:
                logger.exception(_FAILED, extra={"conversation_id": str(conversation_id)})


def push(conversation_id: UUID, delta: dict[str, Any]) -> None:
    """Send a piece of streamed text to every sink without waiting."""
    for registration in tuple(_registered):
        try:
            registration.push(conversation_id, delta)
        except Exception:
            logger.exception(_FAILED, extra={"conversation_id": str(conversation_id)})


def _continues(before: dict[str, Any], delta: dict[str, Any]) -> bool:
    ends_at = before["offset"] + len(before["text"])
    is_of_it = (delta["type"], delta["turn_id"]) == (before["type"], before["turn_id"])
    return bool(is_of_it and delta["offset"] == ends_at)
