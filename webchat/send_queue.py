"""The bounded queue of frames to a socket. One task sends them, so that nothing else waits for a slow client.

Replies are always queued. Events and streamed text are queued only if there is room. Dropped text leaves a gap, which
the client notices and requests again. Dropped events are read from the log when there is room again.

Not every server applies backpressure. Daphne, for example, buffers everything that a client does not read. A client can
therefore acknowledge what it has received (`ack`), and unacknowledged bytes occupy the queue. A client that sends no
acks gets a limited amount of streamed text between two of its frames.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable

from webchat import open_sockets
from webchat.conf import app_settings

logger = logging.getLogger(__name__)

TRY_AGAIN = 1013
_HARD_LIMIT = 4  # multiple of the limits; a client that reads its replies never reaches it
_ACKS_PER_LIMIT = 4  # acks per limit in bytes, so that a client that reads never blocks the queue


class SendQueue:
    """A bounded queue of frames, and of the close code that may follow them."""

    def __init__(
        self,
        *,
        send: Callable[[str], Awaitable[None]],
        close: Callable[[int], Awaitable[None]],
    ) -> None:
        self._send = send
        self._close = close
        self._most_frames = app_settings.OUTBOX_FRAMES
        self._most_bytes = app_settings.OUTBOX_BYTES
        self._send_timeout = app_settings.SEND_TIMEOUT
        self._frames: deque[tuple[str, int]] = deque()
        self._size = 0
        self._sent = 0
        self._received: int | None = (
            None  # bytes that the client has acknowledged; None if it sends no acks
        )
        self._text = 0  # bytes of streamed text since the client's last frame
        self._wake = asyncio.Event()
        self._closing: int | None = None
        self.is_behind = False

    @property
    def is_closing(self) -> bool:
        """Whether the socket is being closed, so that the queue accepts no more frames."""
        return self._closing is not None

    @property
    def close_code(self) -> int | None:
        """The close code if the server is closing the socket, or None."""
        return self._closing

    @property
    def has_room(self) -> bool:
        """Whether the queue has room for one more event. An empty queue accepts an event of any size."""
        on_its_way = 0 if self._received is None else self._sent - self._received
        size = self._size + on_its_way
        fits = len(self._frames) < self._most_frames and size < self._most_bytes
        return self._closing is None and (fits or not (self._frames or on_its_way))

    def expect_acks(self) -> int:
        """Expect acks from the client. Return the number of bytes between two acks."""
        self._received = 0
        return max(1, self._most_bytes // _ACKS_PER_LIMIT)

    def acknowledge(self, received: int) -> None:
        """Record how many bytes the client has received since the socket was opened."""
        if self._received is not None:
            self._received = max(self._received, min(received, self._sent))
            self._wake.set()

    def note_client_frame(self) -> None:
        """Allow more streamed text, because the client has sent a frame."""
        self._text = 0

    def offer_text(self, frame: str) -> bool:
        """Queue streamed text if there is room and the client sends acks or has recently sent a frame."""
        if self._received is None and self._text >= _HARD_LIMIT * self._most_bytes:
            return False
        if not self.offer(frame):
            return False
        self._text += len(frame)
        return True

    def offer(self, frame: str) -> bool:
        """Queue an event if there is room. Otherwise mark this socket as behind."""
        if not self.has_room:
            self.fall_behind()
            return False
        self.put(frame)
        return True

    def fall_behind(self) -> None:
        """Mark this socket as behind until there is room again."""
        if not self.is_behind:
            open_sockets.note_overflow()
        self.is_behind = True

    def put(self, frame: str) -> None:
        """Queue a frame even if there is no room. Close the socket if far too many frames are waiting."""
        if self.is_closing:
            return
        if len(self._frames) >= _HARD_LIMIT * self._most_frames:
            self._give_up()
            return
        size = len(frame.encode("utf-8", "surrogatepass"))
        self._frames.append((frame, size))
        self._size += size
        self._wake.set()

    def close(self, code: int) -> None:
        """Close the socket after all queued frames are sent."""
        if self._closing is None:
            self._closing = code
            self._wake.set()

    async def run(self, on_room: Callable[[], Awaitable[None]]) -> None:
        """Send the queued frames until the socket is closed.

        Call `on_room` each time a socket that was behind has room again.

        Raise `TimeoutError` if the client does not even read the close frame.
        """
        try:
            while not (self.is_closing and not self._frames):
                await self._wake.wait()
                await self._flush()
                if self.is_behind and self.has_room:
                    self.is_behind = False
                    await on_room()
            async with asyncio.timeout(self._send_timeout):
                await self._close(self._closing or TRY_AGAIN)
        except TimeoutError:  # also a subclass of OSError, which is ignored below
            raise
        except (OSError, RuntimeError):
            # The client has disconnected. Servers raise different exceptions then.
            logger.debug("A frame could not be sent: the socket is closed")

    def _give_up(self) -> None:
        """Close the socket, and drop the queued frames. An earlier close code is kept."""
        self._frames.clear()
        self._size = 0
        self.close(TRY_AGAIN)

    async def _flush(self) -> None:
        self._wake.clear()
        if not self._frames:
            return
        now = asyncio.get_running_loop().time
        try:
            async with asyncio.timeout(self._send_timeout) as patience:  # restarted for each frame
                while self._frames:
                    frame, size = self._frames.popleft()
                    self._size -= size
                    self._sent += size
                    patience.reschedule(now() + self._send_timeout)
                    await self._send(frame)
        except TimeoutError:
            self._give_up()
