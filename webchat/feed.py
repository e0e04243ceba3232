"""The events of one conversation for one socket: in order, none missing, none twice (V3).

The log in the database is the truth. A published event is taken if it is the next one. Otherwise it is only a reason
to read the log. Events of this process come directly, those of others through the channel layer.
"""

import asyncio
import json
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any
from uuid import UUID

import pydantic_core
from django.contrib.auth.models import AbstractBaseUser

from turns import selectors
from webchat.live_blocks import BlockReader
from webchat.markdown import with_html, with_html_at_once, with_report_html
from webchat.protocol.server_frames import Frame
from webchat.send_queue import SendQueue
from webchat.translation import for_reader

PAGE_SIZE = 200
MAX_WAITING = 1_000  # events and pieces of text, while the database stands still
MAX_DELTAS = 256  # more than ten seconds of the twenty pieces that come in one


class RecentDeltas:
    """The last pieces of streamed text. They may not be stored yet: the stored text is up to a second old."""

    def __init__(self) -> None:
        self._turn_id = ""
        self._step = 0
        self._finished: tuple[str, int] = ("", 0)
        self._deltas: deque[tuple[int, str]] = deque(maxlen=MAX_DELTAS)

    def add(self, delta: Mapping[str, Any]) -> bool:
        """Remember a piece; the first one of a message ends the message before. Return False if it is late.

        The channel layer may bring a piece after the log has shown its message.
        """
        turn_id, step = self._finished
        if delta["turn_id"] == turn_id and delta.get("step", step + 1) <= step:
            return False
        if delta["offset"] == 0 or delta["turn_id"] != self._turn_id:
            self._deltas.clear()
            self._turn_id = delta["turn_id"]
        self._step = delta.get("step", 0)
        self._deltas.append((delta["offset"], delta["text"]))
        return True

    def finish(self, turn_id: str, step: int) -> None:
        """Drop the pieces of a turn: the message of this step is complete."""
        self._finished = (turn_id, step)
        if turn_id == self._turn_id:
            self._deltas.clear()

    def complete(self, stored: str, *, turn_id: str) -> str:
        """Return the stored text with the pieces that go on where it ends."""
        text = stored
        for offset, piece in self._deltas if turn_id == self._turn_id else ():
            if offset <= len(text):
                text = text[:offset] + piece + text[offset + len(piece) :]
        return text

    def step_of(self, turn_id: str) -> int:
        """Return the step that the pieces of a turn belong to; 0 = there are none, or they do not say."""
        return self._step if self._deltas and turn_id == self._turn_id else 0


class Published:
    """An event or a piece of text on its way to sockets. It is encoded once for each language."""

    __slots__ = ("_texts", "event")

    def __init__(self, event: Mapping[str, Any]) -> None:
        rendered = with_html_at_once(event) if event["type"] == "message" else None
        self.event = rendered or event
        self._texts: dict[str, str] = {}

    def text_in(self, language: str) -> str:
        """Return the event as it is sent to whoever reads this language."""
        if language not in self._texts:
            self._texts[language] = encode(for_reader(self.event, language))
        return self._texts[language]


class Feed:
    """Puts events into a socket's send queue; `sent` is the number of the last one, None before `hello`.

    An event that needs the database or a thread waits in the inbox, with all that comes after it. `on_waiting`
    is called then: it lets a task read the inbox.
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
        self._inbox: deque[Published] = deque()
        self._is_reading = False
        self._deltas = RecentDeltas()
        self._blocks: BlockReader | None = None

    def ask_for_html(self) -> None:
        """Send finished blocks of streaming answers as HTML, too."""
        self._blocks = BlockReader(self.conversation_id, offer=self._offer)

    def close(self) -> None:
        """Take nothing more."""
        if self._blocks is not None:
            self._blocks.close()

    def start_after(self, seq: int) -> None:
        """Begin after this event."""
        self.sent = seq
        self._let_read()

    def take(self, published: Published) -> None:
        """Take what this process published: at once, unless something is before it. From any event loop."""
        if asyncio.get_running_loop() is not self._loop:
            with suppress(RuntimeError):  # the loop of the socket is closed
                self._loop.call_soon_threadsafe(self.take, published)
            return
        has_to_wait = bool(self._inbox) or self._lock.locked()
        if not has_to_wait and self._take_now(published):
            return
        if len(self._inbox) < MAX_WAITING:  # beyond it the client sees the gap and asks
            self._inbox.append(published)
            self._let_read()

    async def read_inbox(self) -> None:
        """Take what waits, in order."""
        try:
            async with self._lock:
                while self._inbox:
                    await self._take(self._inbox.popleft())
        except Exception:
            self._end_reading()
            raise
        self._end_reading()

    async def receive(self, message: Mapping[str, Any]) -> None:
        """Take a message of the channel layer: an event, streamed text, or the number of a large event."""
        async with self._lock:
            if "event" in message:
                await self._take(Published(message["event"]))
            elif self.sent is not None and self._is_open and message["seq"] > self.sent:
                await self._send_from_log(self.sent)

    async def catch_up(self) -> None:
        """Send what the log has beyond the last event sent."""
        async with self._lock:
            if self.sent is not None:
                await self._send_from_log(self.sent)

    async def send_text(
        self, turn_id: UUID, *, user: AbstractBaseUser, is_asked: bool = True
    ) -> bool:
        """Send the whole text so far of a running turn, in its place among the pieces. Return whether there was room.

        Where nobody has asked, no text is no frame.
        """
        async with self._lock:
            stored, step = await selectors.partial_text(turn_id=turn_id, user=user)
            text = self._deltas.complete(stored, turn_id=str(turn_id))
            step = self._deltas.step_of(str(turn_id)) or step
            if self._blocks is not None:
                text, step = self._blocks.complete(text, turn_id=str(turn_id), step=step)
            delta = {"type": "text_delta", "turn_id": str(turn_id), "text": text, "offset": 0}
            delta |= {"step": step} if step else {}
            return not (text or is_asked) or self._send_text(delta, encode(delta))

    @property
    def _is_open(self) -> bool:
        """Whether events are sent as they come; else the log has them, and will be read."""
        return not (self._send_queue.is_behind or self._send_queue.is_closing)

    def _offer(self, frame: str) -> bool:
        return self._is_open and self._send_queue.offer(frame)

    def _send_text(self, delta: Mapping[str, Any], frame: str) -> bool:
        is_sent = self._send_queue.offer(frame)
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

    async def _take(self, published: Published) -> None:
        if self.sent is None or self._take_now(published):
            return
        if published.event["seq"] == self.sent + 1:
            await self._send([published.event])
        else:
            await self._send_from_log(self.sent)

    def _take_now(self, published: Published) -> bool:
        """Take it if that needs nobody else. Return False if it does, or if the client has not said hello."""
        event = published.event
        if self.sent is None:
            return False
        if not self._is_open:
            return True
        if "seq" not in event:
            if self._deltas.add(event):
                self._send_text(event, published.text_in(self._language))
        elif event["seq"] > self.sent:
            if event["seq"] != self.sent + 1 or _needs_html(event):
                return False
            self._send_event(event, published.text_in(self._language))
        return True

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
            if not self._send_event(event, encode(for_reader(event, self._language))):
                return False
        return True

    def _send_event(self, event: Mapping[str, Any], text: str) -> bool:
        if not self._send_queue.offer(text):
            return False
        self.sent = event["seq"]
        if event["type"] == "message":
            self._deltas.finish(event["turn_id"], event["step"])
            if self._blocks is not None:
                self._blocks.finish(event["turn_id"], event["step"])
        return True


async def complete(events: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """Return the events as clients get them: messages, and reports that begin a turn, with their HTML."""
    if not any(map(_needs_html, events)):
        return events
    messages = [event for event in events if event["type"] == "message"]
    carriers = [event for event in events if event["type"] == "turn_start" and event.get("reports")]
    rendered = [
        *(await with_html(messages) if messages else ()),
        *(await with_report_html(carriers) if carriers else ()),
    ]
    complete = {event["seq"]: event for event in rendered}
    return [complete.get(event["seq"], event) for event in events]


def _needs_html(event: Mapping[str, Any]) -> bool:
    kind = event["type"]
    if kind == "message":
        return "html" not in event
    return bool(kind == "turn_start" and event.get("reports"))


def encode_frame(frame: Frame) -> str:
    return encode(frame.model_dump(mode="json"))


def encode(frame: Mapping[str, Any]) -> str:
    try:
        return pydantic_core.to_json(frame).decode()  # in a seventh of the time
    except ValueError:  # half a character: nobody but the other one takes it
        return json.dumps(frame, ensure_ascii=False, separators=(",", ":"))
