"""Polls the database for new events and the status of conversations, once for all sockets of the process.

The channel layer may lose messages. The next message reveals the gap, but no message follows the last one of a turn.
The heartbeat would find that gap late, because it needs a query for each socket and therefore runs rarely.

An event of this process that changes a status triggers a poll immediately. While the layer is unavailable, the poller
polls twice a second and also reads the stored part of streamed text.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from contextvars import Context
from typing import Any, Protocol
from uuid import UUID

from turns import EVENTS
from turns.selectors import conversation_status
from turns.selectors.conversation_status import Overview, StatusMark, StreamingText
from webchat.broadcast import is_layer_shared, layer_state
from webchat.conf import app_settings
from webchat.protocol import server_frames
from webchat.translation import for_reader

logger = logging.getLogger(__name__)

MIN_INTERVAL = 0.5  # seconds between two polls
# Values that differ in each poll, although clients update them themselves.
_COUNTED = {"expires_in_ms", "elapsed_ms"}


class Subscriber(Protocol):
    """An open socket that subscribes to the results of polls."""

    conversation_id: UUID
    user_id: Any

    @property
    def has_layer(self) -> bool:
        """Whether the socket receives events of other processes through the channel layer."""
        ...

    async def catch_up_to(self, last_seq: int) -> None:
        """Send the events up to `last_seq` that the client does not have yet. This must not raise."""
        ...

    async def catch_up_text(self, part: StreamingText) -> None:
        """Send the stored part of a streamed text that was not sent yet. This must not raise."""
        ...

    def update_overview(self, overview: Overview) -> None:
        """Send the overview if the client does not have it yet. This must not raise."""
        ...


class LogPoller:
    """Polls the database for the sockets of one event loop. Its task runs while there are sockets."""

    def __init__(self) -> None:
        self._subscribers: set[Subscriber] = set()
        self._task: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wakeup = asyncio.Event()

    def subscribe(self, subscriber: Subscriber) -> None:
        """Add a socket and poll immediately."""
        self._subscribers.add(subscriber)
        if self._task is None or self._task.done():
            self._loop, self._wakeup = asyncio.get_running_loop(), asyncio.Event()
            self._task = self._loop.create_task(
                self._run(), name="log poller of the sockets", context=Context()
            )
        self._wakeup.set()

    async def unsubscribe(self, subscriber: Subscriber) -> None:
        self._subscribers.discard(subscriber)
        if not self._subscribers and self._task is not None:
            task, self._task = self._task, None
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def publish(self, _conversation_id: UUID, event: dict[str, Any]) -> None:
        """Poll immediately after an event that changes a status. With this method, the poller is an event sink."""
        declared = EVENTS.get(event["type"])
        may_change = declared is not None and declared.changes_status
        if may_change and self._subscribers and self._loop is not None:
            with suppress(RuntimeError):  # the sockets' event loop is closed
                self._loop.call_soon_threadsafe(self._wakeup.set)

    def push(self, _conversation_id: UUID, _delta: dict[str, Any]) -> None:
        """Do nothing, because streamed text changes no status."""

    async def poll(self) -> None:
        """Query the database once, and pass the results to all sockets."""
        subscribers = tuple(self._subscribers)
        conversation_ids = {subscriber.conversation_id for subscriber in subscribers}
        user_ids = {subscriber.user_id for subscriber in subscribers}
        overview = await conversation_status.look(owners=user_ids, conversations=conversation_ids)
        for subscriber in subscribers:
            await subscriber.catch_up_to(overview.last_seqs.get(subscriber.conversation_id, 0))
        if self._has_no_layer:
            texts = await conversation_status.streaming_texts(conversation_ids)
            for subscriber in subscribers:
                if (part := texts.get(subscriber.conversation_id)) is not None:
                    await subscriber.catch_up_text(part)
        for subscriber in subscribers:
            subscriber.update_overview(overview)
            await asyncio.sleep(0)  # so that streamed text does not wait for all sockets

    @property
    def _has_no_layer(self) -> bool:
        """Whether the layer is unavailable, or was when one of the sockets was opened, so that events of other
        processes are missed.
        """
        return layer_state.is_away or (
            is_layer_shared() and not all(subscriber.has_layer for subscriber in self._subscribers)
        )

    async def _until_due(self) -> None:
        """Wait until the next poll is due, an event triggers it, or the layer fails."""
        now = asyncio.get_running_loop().time
        due = now() + app_settings.LOG_CHECK_INTERVAL
        while (seconds := due - now()) > 0 and not self._has_no_layer and not self._wakeup.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(min(seconds, MIN_INTERVAL)):
                    await self._wakeup.wait()

    async def _run(self) -> None:
        while True:
            await self._until_due()
            self._wakeup.clear()
            try:
                await self.poll()
            except Exception:
                logger.exception("The events that sockets have missed could not be read")
            await asyncio.sleep(MIN_INTERVAL)


log_poller = LogPoller()


class OverviewTracker:
    """Tracks the last overview that a client got, so that only changes are sent. The first one is always sent."""

    def __init__(self, *, user_id: Any, conversation_id: UUID) -> None:
        self._user_id = user_id
        self._conversation_id = conversation_id
        self._known: tuple[Any, ...] | None = None
        # All sockets of a person share this mapping, so the own conversation is left out on each use, not in a copy.
        self._marks: Mapping[UUID, StatusMark] = {}

    def changes(self, overview: Overview) -> server_frames.Overview | None:
        """Return the frame to send, or None if nothing has changed since the last one. The caller must send the frame."""
        marks = overview.marks.get(self._user_id, {})
        others, known_others = self._others_in(marks), self._others_in(self._marks)
        self._marks = marks
        questions = for_reader(overview.questions.get(self._conversation_id, []))
        forms = for_reader(overview.forms.get(self._conversation_id, []))
        background = for_reader(overview.background.get(self._conversation_id, []))
        row = overview.latest.get(self._user_id)
        latest: server_frames.LatestConversation | None = (
            {"conversation_id": str(row.pk), "title": row.title} if row else None
        )
        edited_at = overview.edited.get(self._user_id)
        content = (
            _stable(questions),
            _stable(forms),
            _stable(background),
            latest,
            edited_at,
        )
        if content == self._known and others == known_others:
            return None
        self._known = content
        return server_frames.Overview(
            conversations=[_described(pk, mark) for pk, mark in others.items()],
            questions=questions,
            forms=forms,
            latest=latest,
            edited_at=edited_at.isoformat() if edited_at else None,
            background=background,
        )

    def _others_in(self, marks: Mapping[UUID, StatusMark]) -> dict[UUID, StatusMark]:
        return {pk: mark for pk, mark in marks.items() if pk != self._conversation_id}


def _described(pk: UUID, mark: StatusMark) -> server_frames.BusyConversation:
    return {
        "conversation_id": str(pk),
        "standing": mark.standing.value,
        "asked_in": [str(place) for place in mark.asked_in],
        "tools_running": mark.tools_running,
        "is_queued": mark.is_queued,
    }


def _stable(entries: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [
        {name: value for name, value in entry.items() if name not in _COUNTED} for entry in entries
    ]
