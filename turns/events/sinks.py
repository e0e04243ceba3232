"""Sinks: who is told of turn events once they are stored; registered by the apps above before the server starts."""

import logging
from collections.abc import Iterable
from typing import Any, Protocol
from uuid import UUID

logger = logging.getLogger(__name__)


class EventSink(Protocol):
    """Takes events in the form of the wire. Losing one is allowed: the log has it (invariant 2)."""

    async def publish(self, conversation_id: UUID, event: dict[str, Any]) -> None:
        """Pass the event on."""
        ...


_sinks: list[EventSink] = []


def register(sink: EventSink) -> None:
    """Add a sink; the same one twice counts once."""
    if sink not in _sinks:
        _sinks.append(sink)


def unregister(sink: EventSink) -> None:
    """Take a sink out again."""
    if sink in _sinks:
        _sinks.remove(sink)


async def publish(conversation_id: UUID, events: Iterable[dict[str, Any]]) -> None:
    """Tell every sink of every event; one that fails is logged and never fails the turn."""
    for event in events:
        for sink in tuple(_sinks):
            try:
                await sink.publish(conversation_id, event)
            except Exception:
                logger.exception(
                    "An event could not be published",
                    extra={"conversation_id": str(conversation_id)},
                )
