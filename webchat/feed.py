"""The events of one conversation for one socket: in order, none missing, none twice (V3).

The log in the database is the truth. What comes through the channel layer is taken when it is the next event, and is
otherwise only a reason to look into the log.
"""

import asyncio
import json
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from django.contrib.auth.models import AbstractBaseUser

from turns import selectors
from webchat.markdown import with_html, with_report_html
from webchat.protocol.server_frames import Frame
from webchat.send_queue import SendQueue

PAGE_SIZE = 200
MAX_DELTAS = 256  # more than ten seconds of the twenty pieces that come in one


class RecentDeltas:
    """The last pieces of streamed text, which may not be stored yet: the stored text is up to a second old."""

    def __init__(self) -> None:
        self._turn_id = ""
        self._deltas: deque[tuple[int, str]] = deque(maxlen=MAX_DELTAS)

    def add(self, delta: Mapping[str, Any]) -> None:
        """Remember a piece; the first one of a message ends the message before."""
        if delta["offset"] == 0 or delta["turn_id"] != self._turn_id:
            self._deltas.clear()
            self._turn_id = delta["turn_id"]
        self._deltas.append((delta["offset"], delta["text"]))

    def forget(self, turn_id: str) -> None:
        """Drop the pieces of a turn: their message is complete."""
        if turn_id == self._turn_id:
            self._deltas.clear()

    def complete(self, stored: str, *, turn_id: str) -> str:
        """Return the stored text with the pieces that go on where it ends."""
        text = stored
        for offset, piece in self._deltas if turn_id == self._turn_id else ():
            if offset <= len(text):
                text = text[:offset] + piece + text[offset + len(piece) :]
        return text


class Feed:
    """Puts events into a socket's send queue; `sent` is the number of the last one, None before `hello`."""

    def __init__(self, *, conversation_id: UUID, send_queue: SendQueue) -> None:
        self._conversation_id = conversation_id
        self._send_queue = send_queue
        self._lock = asyncio.Lock()
        self._deltas = RecentDeltas()
        self.sent: int | None = None

    def start_after(self, seq: int) -> None:
        """Begin after this event."""
        self.sent = seq

    async def receive(self, message: Mapping[str, Any]) -> None:
        """Take a message of the channel layer: an event, streamed text, or the number of a large event."""
        async with self._lock:
            if self.sent is None or self._send_queue.is_behind:
                return  # the log has it, and will be read
            event = message.get("event")
            if event is not None and "seq" not in event:
                self._deltas.add(event)
                self._send_queue.offer(encode(event))
                return
            seq = message["seq"] if event is None else event["seq"]
            if event is not None and seq == self.sent + 1:
                await self._send([event])
            elif seq > self.sent:
                await self._send_from_log(self.sent)

    async def catch_up(self) -> None:
        """Send what the log has beyond the last event sent."""
        async with self._lock:
            if self.sent is not None:
                await self._send_from_log(self.sent)

    async def send_text(self, turn_id: UUID, *, user: AbstractBaseUser) -> bool:
        """Send the whole text so far of a running turn, in its place among the pieces; return whether there was room."""
        async with self._lock:
            stored = await selectors.partial_text(turn_id=turn_id, user=user)
            text = self._deltas.complete(stored, turn_id=str(turn_id))
            delta = {"type": "text_delta", "turn_id": str(turn_id), "text": text, "offset": 0}
            return self._send_queue.offer(encode(delta))

    async def _send_from_log(self, after: int) -> None:
        while self._send_queue.has_room:
            events = await selectors.conversation_events(
                conversation_id=self._conversation_id, after=after, limit=PAGE_SIZE
            )
            if not events or not await self._send(events):
                return
            after = events[-1]["seq"]
            if len(events) < PAGE_SIZE:
                return
        self._send_queue.fall_behind()

    async def _send(self, events: Sequence[Mapping[str, Any]]) -> bool:
        for event in await complete(events):
            if not self._send_queue.offer(encode(event)):
                return False
            self.sent = event["seq"]
            if event["type"] == "message":
                self._deltas.forget(event["turn_id"])
        return True


async def complete(events: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """Return the events as clients get them: messages, and reports that begin a turn, with their HTML."""
    messages = [event for event in events if event["type"] == "message"]
    carriers = [event for event in events if event["type"] == "turn_start" and event.get("reports")]
    if not messages and not carriers:
        return events
    rendered = [
        *(await with_html(messages) if messages else ()),
        *(await with_report_html(carriers) if carriers else ()),
    ]
    complete = {event["seq"]: event for event in rendered}
    return [complete.get(event["seq"], event) for event in events]


def encode_frame(frame: Frame) -> str:
    """Return an answer of the server as text."""
    return encode(frame.model_dump(mode="json"))


def encode(frame: Mapping[str, Any]) -> str:
    """Return a frame as text."""
    return json.dumps(frame, ensure_ascii=False, separators=(",", ":"))
