"""Sends events to the sockets of other processes through the channel layer.

The sockets of this process get them from `local_feeds`.

A layer loses messages silently. So a message is only a hint: sockets check it against the log.
A failing layer is logged, and never fails a turn (invariant 2).
"""

import asyncio
import json
import logging
import os
import time
from collections.abc import Coroutine, Iterable
from functools import cache
from typing import Any
from uuid import UUID, uuid4

from channels import DEFAULT_CHANNEL_LAYER
from channels.layers import InMemoryChannelLayer, channel_layers, get_channel_layer

from turns.events.sinks import Relay
from webchat.conf import app_settings

logger = logging.getLogger(__name__)

PROBE_GROUP = "webchat.ready"
SEND_TIMEOUT = 0.25  # seconds that a turn waits for the layer
RETRY_INTERVAL = 1.0  # seconds; sockets read the log meanwhile
MAX_SKIPPED = 1_000  # conversations; sockets look into the log every two seconds, told or not


class ChannelLayerSink:
    """Sends small events whole, and of large ones only the number.

    No turn waits longer than `SEND_TIMEOUT` for a broker. While the broker hangs, one event at a time tries it in a task
    of its own. The sink skips the others, and sends their numbers once the broker answers again.
    """

    def __init__(self) -> None:
        self._is_stalled = False
        self._relay = Relay(self._publish)
        self._sending: set[asyncio.Task[None]] = set()
        self._skipped: dict[UUID, int] = {}  # the last number that was not sent, by conversation
        self._retry_at = 0.0
        self._log_again_at = 0.0

    async def publish(self, conversation_id: UUID, event: dict[str, Any]) -> None:
        """Send one event to the conversation's group, after the text before it."""
        if is_layer_shared():
            await self._relay.drain(conversation_id)
            await self._publish(conversation_id, event)

    def push(self, conversation_id: UUID, delta: dict[str, Any]) -> None:
        """Let a piece of streamed text be sent."""
        if is_layer_shared():
            self._relay.push(conversation_id, delta)

    async def _publish(self, conversation_id: UUID, event: dict[str, Any]) -> None:
        message = message_for(event)
        if message is None:
            return
        if self._is_stalled and not self._may_try():
            self._skip(conversation_id, message)
            return
        # Kept here until it is done, which takes no longer than the layer may.
        sending = asyncio.create_task(
            self._send_with_skipped(conversation_id, message), name="sent event"
        )
        self._sending.add(sending)
        sending.add_done_callback(self._sending.discard)
        if not self._is_stalled:
            _done, waiting = await asyncio.wait({sending}, timeout=SEND_TIMEOUT)
            if waiting:
                self._is_stalled = True

    def _may_try(self) -> bool:
        return not self._sending and time.monotonic() >= self._retry_at

    def _skip(self, conversation_id: UUID, message: dict[str, Any]) -> None:
        seq = message.get("event", message).get("seq")
        if seq is not None and (
            conversation_id in self._skipped or len(self._skipped) < MAX_SKIPPED
        ):
            # One that was tried for long fails after later ones were left.
            self._skipped[conversation_id] = max(seq, self._skipped.get(conversation_id, seq))

    async def _send_with_skipped(self, conversation_id: UUID, message: dict[str, Any]) -> None:
        """Send a message. If that works, also send the numbers of the events that were skipped before."""
        while await self._send(conversation_id, message) and self._skipped:
            conversation_id, seq = self._skipped.popitem()
            message = {"type": "conversation.event", "seq": seq, "origin": origin()}

    async def _send(self, conversation_id: UUID, message: dict[str, Any]) -> bool:
        try:
            async with asyncio.timeout(app_settings.LAYER_TIMEOUT):
                await send_to_group(conversation_group(conversation_id), message)
        except Exception as failure:
            if time.monotonic() >= self._log_again_at:  # streamed text would fill the log
                self._log_again_at = time.monotonic() + RETRY_INTERVAL
                facts = {"conversation_id": str(conversation_id), "event": message["type"]}
                logger.exception("An event was not published", extra=facts)
            self._skip(conversation_id, message)
            self._is_stalled = self._is_stalled or isinstance(failure, TimeoutError)
            self._retry_at = time.monotonic() + RETRY_INTERVAL
            return False
        self._is_stalled = False
        return True


def is_layer_shared() -> bool:
    """Return whether the channel layer reaches other processes."""
    layer = channel_layers.backends.get(DEFAULT_CHANNEL_LAYER) or get_channel_layer()
    return layer is not None and not isinstance(layer, InMemoryChannelLayer)


def origin() -> str:
    """Return the name of this process in the messages of the layer."""
    return _origin_of(os.getpid())


@cache
def _origin_of(_process: int) -> str:  # one that was forked has another number
    return uuid4().hex


async def send_to_group(group: str, message: dict[str, Any]) -> None:
    """Send on the event loop of this process's sockets. Raise what the layer raises.

    A layer in memory would keep the message, but would not wake the loop of its receivers.
    """
    loop = _SocketLoop.loop
    if loop is None or loop is asyncio.get_running_loop() or not loop.is_running():
        await _group_send(group, message)
    else:
        sending = asyncio.run_coroutine_threadsafe(_group_send(group, message), loop)
        await asyncio.wrap_future(sending)


async def _group_send(group: str, message: dict[str, Any]) -> None:
    layer = get_channel_layer()
    if layer is not None:
        await layer.group_send(group, message)


class _SocketLoop:
    """The event loop of this process's sockets: the loop of the last one that joined a group."""

    loop: asyncio.AbstractEventLoop | None = None


async def is_layer_available() -> bool:
    """Return whether the channel layer takes a message in time."""
    if get_channel_layer() is None:
        return False
    try:
        async with asyncio.timeout(app_settings.LAYER_TIMEOUT):
            # To a group that nobody joins: it reaches the broker and leaves nothing behind there.
            await send_to_group(PROBE_GROUP, {"type": "ready.ask"})
    except Exception:
        logger.warning("The channel layer does not answer", exc_info=True)
        return False
    return True


def conversation_group(conversation_id: UUID) -> str:
    """Return the name of the group of all sockets that show a conversation."""
    return f"conversation.{conversation_id.hex}"


def user_group(user_id: Any) -> str:
    return f"user.{user_id}"


def message_for(event: dict[str, Any]) -> dict[str, Any] | None:
    """Return the layer's message for an event, or None if the event is too large and has no number."""
    if (
        len(json.dumps(event, ensure_ascii=False).encode("utf-8", "replace"))
        <= app_settings.MAX_INLINE_EVENT_BYTES
    ):
        return {"type": "conversation.event", "event": event, "origin": origin()}
    if "seq" in event:
        return {"type": "conversation.event", "seq": event["seq"], "origin": origin()}
    return None  # streamed text: the client sees the gap in `offset` and asks for all of it


async def join(channel: str, *groups: str) -> None:
    """Add a socket to groups. Repeat it: memberships expire, and a broker may forget them."""
    layer = get_channel_layer()
    _SocketLoop.loop = asyncio.get_running_loop()
    if layer is not None:
        for group in groups:
            await _with_timeout(layer.group_add(group, channel), "A socket did not join its group")


async def leave(channel: str, *groups: str) -> None:
    layer = get_channel_layer()
    if layer is not None:
        for group in groups:
            await _with_timeout(
                layer.group_discard(group, channel), "A socket did not leave its group"
            )


async def send_to_user(user_id: Any, message: dict[str, Any]) -> None:
    await _with_timeout(
        send_to_group(user_group(user_id), message), "The sockets of a user were not told"
    )


async def notify_deleted(conversation_ids: Iterable[UUID]) -> None:
    """Let all sockets that show these conversations look again: there is nothing for them to show."""
    for conversation_id in conversation_ids:
        sent = send_to_group(conversation_group(conversation_id), {"type": "user.changed"})
        await _with_timeout(sent, "The pages of a deleted conversation were not told")


async def _with_timeout(work: Coroutine[Any, Any, Any], error_message: str) -> None:
    try:
        async with asyncio.timeout(app_settings.LAYER_TIMEOUT):
            await work
    except Exception:
        logger.exception(error_message)
