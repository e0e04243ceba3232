"""Frames on their way to one socket: one task sends them, so that nothing else ever waits for a slow client.

What a client asked for is always queued. Events and streamed text are offered: when there is no room, text is lost
(the client sees the gap and asks for it) and events are read from the log once there is room again.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable

from webchat import open_sockets
from webchat.conf import app_settings

logger = logging.getLogger(__name__)

TRY_AGAIN = 1013
_HARD_LIMIT = 4  # times the limits: nobody gets there who reads his answers


class SendQueue:
    """A bounded queue of frames and, last, of a close code."""

    def __init__(
        self, *, send: Callable[[str], Awaitable[None]], close: Callable[[int], Awaitable[None]]
    ) -> None:
        self._send = send
        self._close = close
        self._frames: deque[tuple[str, int]] = deque()
        self._size = 0
        self._wake = asyncio.Event()
        self._closing: int | None = None
        self.is_behind = False

    @property
    def is_closing(self) -> bool:
        """Whether the socket is being closed: nothing is queued any more."""
        return self._closing is not None

    @property
    def close_code(self) -> int | None:
        """The code with which the socket is being closed from here."""
        return self._closing

    @property
    def has_room(self) -> bool:
        """Whether one more frame may be offered; an empty send queue takes a frame of any size."""
        fits = (
            len(self._frames) < app_settings.OUTBOX_FRAMES
            and self._size < app_settings.OUTBOX_BYTES
        )
        return not self.is_closing and (fits or not self._frames)

    def offer(self, frame: str) -> bool:
        """Queue an event if there is room; otherwise remember that this socket is behind."""
        if not self.has_room:
            if not self.is_behind:
                open_sockets.note_overflow()
            self.is_behind = True
            return False
        self.put(frame)
        return True

    def put(self, frame: str) -> None:
        """Queue a frame that cannot be asked for again; a client that never reads is let go."""
        if self.is_closing:
            return
        if len(self._frames) >= _HARD_LIMIT * app_settings.OUTBOX_FRAMES:
            self._frames.clear()
            self.close(TRY_AGAIN)
            return
        size = len(frame.encode("utf-8", "surrogatepass"))
        self._frames.append((frame, size))
        self._size += size
        self._wake.set()

    def close(self, code: int) -> None:
        """Close the socket when everything that is queued has left."""
        if self._closing is None:
            self._closing = code
            self._wake.set()

    async def run(self, on_room: Callable[[], Awaitable[None]]) -> None:
        """Send until closed; call `on_room` when a socket that fell behind has room again."""
        try:
            while not (self.is_closing and not self._frames):
                await self._wake.wait()
                await self._flush()
                if self.is_behind and not self.is_closing:
                    self.is_behind = False
                    await on_room()
            await self._close(self._closing or TRY_AGAIN)
        except TimeoutError:
            self._closing = TRY_AGAIN
            await self._close(TRY_AGAIN)
        except (OSError, RuntimeError):  # the client has gone; servers say so in different words
            logger.debug("A frame could not be sent: the socket is closed")

    async def _flush(self) -> None:
        self._wake.clear()
        while self._frames:
            frame, size = self._frames.popleft()
            self._size -= size
            async with asyncio.timeout(app_settings.SEND_TIMEOUT):
                await self._send(frame)
