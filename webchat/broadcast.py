"""Sends events to the sockets of other processes, and wake-ups to other processes, through the channel layer.

The sockets of this process get their events from `webchat.feed`.

The channel layer can lose messages silently, so a message is only a hint, which sockets check against the log. A
failure of the layer is logged, but never makes a turn fail (invariant 2).
"""

import asyncio
import json
import logging
import os
import time
from collections.abc import AsyncIterator, Coroutine, Iterable
from contextlib import asynccontextmanager, suppress
from functools import cache
from typing import Any
from uuid import UUID, uuid4

from channels.layers import InMemoryChannelLayer, get_channel_layer

from turns.events.sinks import Relay
from turns.processes.wakeups import OnWakeup
from webchat.conf import app_settings

logger = logging.getLogger(__name__)

PROBE_GROUP = "webchat.ready"
SEND_TIMEOUT = 0.25  # seconds that a turn waits until the layer accepts an event
RETRY_INTERVAL = 1.0  # seconds until the next attempt; until then sockets read the log
MAX_SKIPPED = 1_000  # conversations to note; beyond that, sockets find their events when they next check the log
PROBE_INTERVAL = 1.0  # seconds
MAX_LISTEN_TIME = 3_600.0  # seconds; layers drop group members after a day


class ChannelLayerSink:
    """An event sink that sends small events in full, and only the numbers of large ones.

    A turn waits at most `SEND_TIMEOUT` for the broker. While the broker hangs, a separate task tries to send one
    event at a time. The sink skips the other events, and sends their numbers when the broker responds again.
    """

    def __init__(self) -> None:
        self._is_stalled = False
        self._relay = Relay(self._publish)
        self._sending: set[asyncio.Task[None]] = set()
        self._skipped: dict[UUID, int] = {}  # the number of the last skipped event, by conversation
        self._retry_at = 0.0

    async def publish(self, conversation_id: UUID, event: dict[str, Any]) -> None:
        """Send one event to the conversation's group, after any streamed text before it."""
        if is_layer_shared():
            await self._relay.drain(conversation_id)
            await self._publish(conversation_id, event)

    def push(self, conversation_id: UUID, delta: dict[str, Any]) -> None:
        """Queue a piece of streamed text for sending."""
        if is_layer_shared():
            self._relay.push(conversation_id, delta)

    async def _publish(self, conversation_id: UUID, event: dict[str, Any]) -> None:
        message = message_for(event)
        if message is None:
            return
        if self._is_stalled and not self._may_try():
            self._skip(conversation_id, message)
            return
        # The reference keeps the task alive. The task ends within `WEBCHAT_LAYER_TIMEOUT`.
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
            # A slow attempt may fail after later events were skipped.
            self._skipped[conversation_id] = max(seq, self._skipped.get(conversation_id, seq))

    async def _send_with_skipped(self, conversation_id: UUID, message: dict[str, Any]) -> None:
        """Send a message. If that works, also send the numbers of the skipped events."""
        while await self._send(conversation_id, message) and self._skipped:
            conversation_id, seq = self._skipped.popitem()
            message = {"type": "conversation.event", "seq": seq, "origin": origin()}

    async def _send(self, conversation_id: UUID, message: dict[str, Any]) -> bool:
        try:
            async with in_time():
                await send_to_group(conversation_group(conversation_id), message)
        except Exception as failure:  # noqa: BLE001 - logged once for the whole outage
            self._skip(conversation_id, message)
            self._is_stalled = self._is_stalled or isinstance(failure, TimeoutError)
            self._retry_at = time.monotonic() + RETRY_INTERVAL
            return False
        self._is_stalled = False
        return True


def is_layer_shared() -> bool:
    """Return whether the channel layer reaches other processes."""
    layer = get_channel_layer()
    return layer is not None and not isinstance(layer, InMemoryChannelLayer)


def origin() -> str:
    """Return the id of this process in messages of the layer, so that it can recognise its own."""
    return _origin_of(os.getpid())


@cache
def _origin_of(_process: int) -> str:  # a forked process gets another id
    return uuid4().hex


@asynccontextmanager
async def in_time() -> AsyncIterator[None]:
    """Run an operation of the channel layer with a time limit, and record a failure. Raises the layer's exceptions."""
    try:
        async with asyncio.timeout(app_settings.LAYER_TIMEOUT):
            yield
    except Exception as failure:
        layer_state.note_failure(failure)
        raise


async def send_to_group(group: str, message: dict[str, Any]) -> None:
    """Send a message to a group, on the event loop of this process's sockets. Raises the layer's exceptions.

    From another event loop, the in-memory layer would store the message but not wake the receivers.
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
        layer_state.note_success()


class _SocketLoop:
    """The event loop of this process's sockets, which is the loop of the last socket that joined a group."""

    loop: asyncio.AbstractEventLoop | None = None


async def is_layer_available() -> bool:
    """Return whether there is a channel layer that accepts a message in time."""
    if get_channel_layer() is None:
        return False
    try:
        async with in_time():
            await probe()
    except Exception:  # noqa: BLE001 - logged once for the whole outage
        return False
    return True


async def probe() -> None:
    """Send a message to an empty group. It reaches the broker, but nothing is stored there."""
    await send_to_group(PROBE_GROUP, {"type": "ready.ask"})


def conversation_group(conversation_id: UUID) -> str:
    """Return the name of the group of all sockets of a conversation."""
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
    return None  # streamed text: the client notices the gap in `offset` and requests the whole text again


async def join(channel: str, *groups: str) -> None:
    """Add a socket to groups. Repeat this regularly, because memberships expire and a broker may lose them."""
    layer = get_channel_layer()
    _SocketLoop.loop = asyncio.get_running_loop()
    if layer is not None:
        for group in groups:
            await _try(layer.group_add(group, channel))


async def leave(channel: str, *groups: str) -> None:
    layer = get_channel_layer()
    if layer is not None:
        for group in groups:
            await _try(layer.group_discard(group, channel))


async def send_to_user(user_id: Any, message: dict[str, Any]) -> None:
    await _try(send_to_group(user_group(user_id), message))


async def notify_deleted(conversation_ids: Iterable[UUID]) -> None:
    """Tell all sockets of these conversations that the conversations were deleted."""
    for conversation_id in conversation_ids:
        await _try(send_to_group(conversation_group(conversation_id), {"type": "user.changed"}))


async def _try(work: Coroutine[Any, Any, Any]) -> None:
    """Await an operation of the layer.

    Failures are logged once per outage, and sockets read what they missed from the log.
    """
    with suppress(Exception):
        async with in_time():
            await work


class LayerState:
    """The state of the channel layer: whether it accepts messages.

    Each process that listens for wake-ups checks it every second. During an outage, processes with open sockets query
    the database more often. One line is logged for the start of an outage and one for its end.
    """

    def __init__(self) -> None:
        self.is_away = False
        self._since = 0.0

    def note_failure(self, failure: BaseException) -> None:
        """Record that the layer did not accept a message in time."""
        if not self.is_away:
            self.is_away, self._since = True, time.monotonic()
            reason = str(failure) or type(failure).__name__
            logger.warning("The channel layer does not answer: %s", reason)

    def note_success(self) -> None:
        """Record that the layer accepted a message."""
        if self.is_away:
            self.is_away = False
            logger.warning(
                "The channel layer answers again, after %.0f s", time.monotonic() - self._since
            )

    def is_news(self, record: logging.LogRecord) -> bool:
        """Return whether to keep a log record of `channels_redis`.

        During an outage, `channels_redis` logs a traceback every second.
        """
        if record.exc_info and isinstance(failure := record.exc_info[1], Exception):
            self.note_failure(failure)
        return not self.is_away


layer_state = LayerState()


def watch_log() -> None:
    """Filter the logger of the Redis layer, so that an outage is logged only once."""
    logging.getLogger("channels_redis.pubsub").addFilter(layer_state.is_news)


class ChannelLayerWakeups:
    """Sends wake-ups to other processes and receives those for this process. Each process has a group of its own."""

    @property
    def is_shared(self) -> bool:
        """Whether the channel layer reaches other processes."""
        return is_layer_shared()

    async def send(self, process_id: UUID) -> None:
        """Wake a process, so that it reads the database."""
        await send_to_group(process_group(process_id), {"type": "process.hint"})

    async def listen(self, process_id: UUID, callback: OnWakeup) -> None:
        """Await `callback` for each wake-up of this process, for at most an hour. Raises the layer's exceptions."""
        layer = get_channel_layer()
        if layer is None:
            await asyncio.Event().wait()
            return
        group = process_group(process_id)
        async with in_time():
            # This detects an unreachable broker before a channel is opened. A failed attempt would leave the channel
            # behind.
            await send_to_group(group, {"type": "process.hint"})
            channel = await layer.new_channel()
        probing = asyncio.create_task(_probe(), name="probe of the channel layer")
        try:
            async with in_time():
                await layer.group_add(group, channel)
            with suppress(TimeoutError):
                async with asyncio.timeout(MAX_LISTEN_TIME):
                    while True:
                        await layer.receive(channel)
                        await callback()
        finally:
            probing.cancel()
            await leave(channel, group)


async def _probe() -> None:
    """Check every second whether the channel layer works, so that an outage is noticed before an event is lost."""
    while is_layer_shared():
        await asyncio.sleep(PROBE_INTERVAL)
        await is_layer_available()


def process_group(process_id: UUID) -> str:
    return f"p.{process_id.hex}"
