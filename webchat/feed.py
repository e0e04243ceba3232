"""Sends the events of a conversation to a socket, in order, without gaps or duplicates (V3).

The log in the database is authoritative. A published event is sent directly if it is the next one; otherwise it only
triggers a read of the log. Events of this process arrive directly, and events of other processes through the channel
layer.
"""

import asyncio
import json
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any
from uuid import UUID

from django.contrib.auth.models import AbstractBaseUser

from turns import selectors, wire
from turns.selectors.conversation_status import StreamingText
from webchat.live_blocks import BlockReader
from webchat.markdown import with_html, with_report_html
from webchat.protocol.server_frames import Frame
from webchat.send_queue import SendQueue
from webchat.translation import for_reader

PAGE_SIZE = 200
MAX_WAITING = 1_000  # events and pieces of text that wait while the database does not respond
MAX_DELTAS = 256  # more than ten seconds of text at twenty pieces per second


class RecentDeltas:
    """The latest pieces of streamed text. They may be missing in the stored text, which lags by up to a second."""

    def __init__(self) -> None:
        self._turn_id = ""
        self._step = 0
        self._finished: tuple[str, int] = ("", 0)
        self._deltas: deque[tuple[int, str]] = deque(maxlen=MAX_DELTAS)

    def add(self, delta: Mapping[str, Any]) -> bool:
        """Add a piece, and return whether it was added.

        The first piece of a message replaces the pieces of the previous one. A late piece, whose message is already
        complete, is not added. The channel layer may deliver one after the whole message was read from the log.
        """
        if self.is_late(delta):
            return False
        if delta["offset"] == 0 or delta["turn_id"] != self._turn_id:
            self._deltas.clear()
            self._turn_id = delta["turn_id"]
        self._step = delta.get("step", 0)
        self._deltas.append((delta["offset"], delta["text"]))
        return True

    def is_late(self, delta: Mapping[str, Any]) -> bool:
        """Return whether the message that a piece belongs to is already complete."""
        turn_id, step = self._finished
        return bool(delta["turn_id"] == turn_id and delta.get("step", step + 1) <= step)

    def finish(self, turn_id: str, step: int) -> None:
        """Drop the pieces of a turn, because the message of this step is complete."""
        self._finished = (turn_id, step)
        if turn_id == self._turn_id:
            self._deltas.clear()

    def complete(self, beginning: str, *, turn_id: str) -> str:
        """Return the stored text, extended by the pieces that follow it."""
        text = beginning
        for offset, piece in self._deltas if turn_id == self._turn_id else ():
            if offset <= len(text):
                text = text[:offset] + piece + text[offset + len(piece) :]
        return text

    def length_of(self, turn_id: str, step: int) -> int:
        """Return the position in the message at which its last piece ends, or 0 if no piece is known."""
        if not self._deltas or (turn_id, step) != (self._turn_id, self._step):
            return 0
        offset, piece = self._deltas[-1]
        return offset + len(piece)

    def step_of(self, turn_id: str) -> int:
        """Return the step that a turn's pieces belong to, or 0 if there are no pieces or they have no step."""
        return self._step if self._deltas and turn_id == self._turn_id else 0


class Feed:
    """Puts a conversation's events into a socket's send queue.

    `sent` is the number of the last event sent, or None before `hello`. Events that this process publishes wait in the
    inbox, and `on_waiting` is called so that a task reads the inbox.
    """

    def __init__(
        self,
        *,
        conversation_id: UUID,
        language: str,
        send_queue: SendQueue,
        on_waiting: Callable[[], None],
    ) -> None:
        self.conversation_id = conversation_id
        self._language = language
        self.sent: int | None = None
        self._send_queue = send_queue
        self._on_waiting = on_waiting
        self._lock = asyncio.Lock()
        self._loop = asyncio.get_running_loop()
        self._inbox: deque[Mapping[str, Any]] = deque()
        self._is_reading = False
        self._deltas = RecentDeltas()
        self._blocks: BlockReader | None = None

    def ask_for_html(self) -> None:
        """From now on, also send the finished blocks of streaming answers as HTML."""
        self._blocks = BlockReader(self.conversation_id, offer=self._offer)

    def close(self) -> None:
        """Stop reading the blocks of streaming answers."""
        if self._blocks is not None:
            self._blocks.close()

    def start_after(self, seq: int) -> None:
        """Begin to send events, starting after the one with this number."""
        self.sent = seq
        self._let_read()

    def take(self, event: Mapping[str, Any]) -> None:
        """Put an event or a piece of text of this process into the inbox. This can be called from any event loop."""
        if asyncio.get_running_loop() is not self._loop:
            with suppress(RuntimeError):  # the socket's event loop is closed
                self._loop.call_soon_threadsafe(self.take, event)
        elif (
            len(self._inbox) < MAX_WAITING
        ):  # if the inbox is full, the client notices the gap and requests the text
            self._inbox.append(event)
            self._let_read()

    async def read_inbox(self) -> None:
        """Send the events and pieces of text that wait in the inbox, in order."""
        try:
            async with self._lock:
                while self._inbox:
                    await self._take(self._inbox.popleft())
        except Exception:
            self._end_reading()
            raise
        self._end_reading()

    async def receive(self, message: Mapping[str, Any]) -> None:
        """Handle a message from the channel layer: an event, a piece of streamed text, or the number of a large event."""
        async with self._lock:
            if "event" in message:
                await self._take(message["event"])
            elif self.sent is not None and self._is_open and message["seq"] > self.sent:
                await self._send_from_log(self.sent)

    async def catch_up(self) -> None:
        """Send the events in the log that follow the last one sent."""
        async with self._lock:
            if self.sent is not None:
                await self._send_from_log(self.sent)

    async def catch_up_text(self, part: StreamingText) -> None:
        """Send the stored text of a message that follows its last known piece."""
        async with self._lock:
            turn_id, step = str(part.turn_id), part.step
            offset = self._deltas.length_of(turn_id, step)
            if len(part.text) > offset:
                delta = {"type": "text_delta", "turn_id": turn_id, "step": step, "offset": offset}
                await self._take({**delta, "text": part.text[offset:]})

    async def send_text(
        self, turn_id: UUID, *, user: AbstractBaseUser, is_asked: bool = True
    ) -> bool:
        """Send the text so far of a running turn, in order with its pieces. Return False if the queue had no room.

        An empty text is sent only if the client requested it.
        """
        async with self._lock:
            beginning, step = await selectors.partial_text(turn_id=turn_id, user=user)
            text = self._deltas.complete(beginning, turn_id=str(turn_id))
            step = self._deltas.step_of(str(turn_id)) or step
            if self._blocks is not None:
                text, step = self._blocks.complete(text, turn_id=str(turn_id), step=step)
            delta = {"type": "text_delta", "turn_id": str(turn_id), "text": text, "offset": 0}
            delta |= {"step": step} if step else {}
            return not (text or is_asked) or self._send_text(delta)

    @property
    def _is_open(self) -> bool:
        """Whether events are sent as they arrive. If not, they are read from the log later."""
        return not (self._send_queue.is_behind or self._send_queue.is_closing)

    def _offer(self, frame: str) -> bool:
        return self._is_open and self._send_queue.offer_text(frame)

    def _send_text(self, delta: Mapping[str, Any]) -> bool:
        is_sent = self._send_queue.offer_text(encode(delta))
        if is_sent and self._blocks is not None:
            self._blocks.note(delta)
        return is_sent

    def _let_read(self) -> None:
        if self._inbox and self.sent is not None and not self._is_reading:
            self._is_reading = True
            self._on_waiting()

    def _end_reading(self) -> None:
        self._is_reading = False
        self._let_read()

    async def _take(self, event: Mapping[str, Any]) -> None:
        if self.sent is None or not self._is_open:
            return
        if event["type"] == "thought_delta":  # the message will contain lost thoughts
            if not self._deltas.is_late(event):
                self._send_queue.offer_text(encode(event))
        elif "seq" not in event:
            if self._deltas.add(event):
                self._send_text(event)
        elif event["seq"] == self.sent + 1:
            await self._send([event])
        elif event["seq"] > self.sent:
            await self._send_from_log(self.sent)

    async def _send_from_log(self, after: int) -> None:
        while self._send_queue.has_room:
            events = await selectors.conversation_events(
                conversation_id=self.conversation_id, after=after, limit=PAGE_SIZE
            )
            if not events or not await self._send(events):
                return
            after = events[-1]["seq"]
            if len(events) < PAGE_SIZE:
                return
        self._send_queue.fall_behind()

    async def _send(self, events: Sequence[Mapping[str, Any]]) -> bool:
        for event in await complete(events):
            if not self._send_queue.offer(encode(for_reader(event, self._language))):
                return False
            self.sent = event["seq"]
            if event["type"] == "message":
                self._deltas.finish(event["turn_id"], event["step"])
                if self._blocks is not None:
                    self._blocks.finish(event["turn_id"], event["step"])
        return True


async def complete(events: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """Return the events with the fields that clients get.

    HTML is added to messages and to reports that begin a turn, and readable arguments are added to calls.
    """
    messages = [event for event in events if event["type"] == "message"]
    carriers = [event for event in events if event["type"] == "turn_start" and event.get("reports")]
    rendered = [
        *(await with_html(messages) if messages else ()),
        *(await with_report_html(carriers) if carriers else ()),
    ]
    complete = {event["seq"]: event for event in rendered}
    return [_with_arguments(complete.get(event["seq"], event)) for event in events]


def _with_arguments(event: Mapping[str, Any]) -> Mapping[str, Any]:
    return {**event, "arguments": wire.arguments_of(event["input"])} if "input" in event else event


def encode_frame(frame: Frame) -> str:
    return encode(frame.model_dump(mode="json"))


def encode(frame: Mapping[str, Any]) -> str:
    return json.dumps(frame, separators=(",", ":"))


class LocalFeeds:
    """An event sink that passes each event to the feeds of its conversation in this process."""

    def __init__(self) -> None:
        self._feeds: dict[UUID, set[Feed]] = {}

    def add(self, feed: Feed) -> None:
        """Start passing events to a feed."""
        self._feeds.setdefault(feed.conversation_id, set()).add(feed)

    def remove(self, feed: Feed) -> None:
        """Stop passing events to a feed."""
        if feeds := self._feeds.get(feed.conversation_id):
            feeds.discard(feed)
            if not feeds:
                del self._feeds[feed.conversation_id]

    async def publish(self, conversation_id: UUID, event: dict[str, Any]) -> None:
        self.push(conversation_id, event)

    def push(self, conversation_id: UUID, event: dict[str, Any]) -> None:
        """Pass an event or a piece of text to the feeds. This can be called from any event loop."""
        for feed in tuple(self._feeds.get(conversation_id, ())):
            feed.take(event)


local_feeds = LocalFeeds()
