"""The bounded queue of frames to one socket. One task sends them, so nothing else waits for a slow client.

Our own protocol can write at once (`SEND_NOW`). There, a frame wakes no task as long as the client keeps up.

Answers are always queued. Events and streamed text are queued only where there is room. Lost text leaves a gap that the
client sees and asks for. Lost events are read from the log once there is room again.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable

from webchat import open_sockets
from webchat.conf import app_settings

logger = logging.getLogger(__name__)

TRY_AGAIN = 1013
SEND_NOW = "webchat.send_now"  # an extension of the ASGI scope
_HARD_LIMIT = 4  # times the limit: a client that reads its answers stays below


class SendQueue:
    """A bounded queue of frames and, last, of a close code."""

    def __init__(
        self,
        *,
        send: Callable[[str], Awaitable[None]],
        close: Callable[[int], Awaitable[None]],
        send_now: Callable[[str], bool] | None = None,
    ) -> None:
        self._send = send
        self._close = close
        self._send_now = send_now
        self._is_sending = False
        self._most_frames = app_settings.OUTBOX_FRAMES
        self._most_bytes = app_settings.OUTBOX_BYTES
        self._send_timeout = app_settings.SEND_TIMEOUT
        self._frames: deque[tuple[str, int]] = deque()
        self._size = 0
        self._wake = asyncio.Event()
        self._closing: int | None = None
        self.is_behind = False

    @property
    def is_closing(self) -> bool:
        """Whether the socket is being closed: the queue takes nothing more."""
        return self._closing is not None

    @property
    def close_code(self) -> int | None:
        """The close code of the server, if it closes the socket."""
        return self._closing

    @property
    def has_room(self) -> bool:
        """Whether the queue takes one more event. An empty queue takes a frame of any size."""
        fits = len(self._frames) < self._most_frames and self._size < self._most_bytes
        return self._closing is None and (fits or not self._frames)

    def offer(self, frame: str) -> bool:
        """Queue an event if there is room; otherwise mark this socket as behind."""
        if not self.has_room:
            self.fall_behind()
            return False
        self.put(frame)
        return True

    def fall_behind(self) -> None:
        """Remember that the client reads more slowly than it is written to, until there is room again."""
        if not self.is_behind:
            open_sockets.note_overflow()
        self.is_behind = True

    def put(self, frame: str) -> None:
        """Queue an answer. Close the socket of a client that never reads."""
        if self.is_closing or self._leaves_now(frame):
            return
        if len(self._frames) >= _HARD_LIMIT * self._most_frames:
            self._give_up()
            return
        size = len(frame.encode("utf-8", "surrogatepass"))
        self._frames.append((frame, size))
        self._size += size
        self._wake.set()

    def close(self, code: int) -> None:
        """Close the socket once all queued frames are sent."""
        if self._closing is None:
            self._closing = code
            self._wake.set()

    async def run(self, on_room: Callable[[], Awaitable[None]]) -> None:
        """Send until closed. Call `on_room` when a socket that was behind has room again.

        Raise TimeoutError if the client leaves no room even for the close.
        """
        try:
            while not (self.is_closing and not self._frames):
                await self._wake.wait()
                await self._flush()
                if self.is_behind and not self.is_closing:
                    self.is_behind = False
                    await on_room()
            async with asyncio.timeout(self._send_timeout):
                await self._close(self._closing or TRY_AGAIN)
        except TimeoutError:  # which is an OSError, too
            raise
        except (OSError, RuntimeError):  # the client has gone; servers say so in different words
            logger.debug("A frame could not be sent: the socket is closed")

    def _leaves_now(self, frame: str) -> bool:
        """Send it at once if nothing is before it and the client has room. Return whether it was so."""
        if self._send_now is None or self._frames or self._is_sending:
            return False
        return self._send_now(frame)

    def _give_up(self) -> None:
        """Close the socket without what is queued; a code that it has already stays."""
        self._frames.clear()
        self._size = 0
        self.close(TRY_AGAIN)

    async def _flush(self) -> None:
        self._wake.clear()
        if not self._frames:
            return
        now = asyncio.get_running_loop().time
        self._is_sending = True
        try:
            async with asyncio.timeout(self._send_timeout) as patience:  # with each frame
                while self._frames:
                    frame, size = self._frames.popleft()
                    self._size -= size
                    patience.reschedule(now() + self._send_timeout)
                    await self._send(frame)
        except TimeoutError:
            self._give_up()
        finally:
            self._is_sending = False
