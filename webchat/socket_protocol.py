"""uvicorn's WebSocket protocol for clients that do not read: none of them keeps anything for long.

`manage.py serve` uses it, and uvicorn alone does with `--ws webchat.socket_protocol:WebSocketProtocol`. It is imported
before Django is set up, so it imports nothing that needs models.
"""

import socket
from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame
from websockets.http11 import Request
from websockets.protocol import State

from webchat.send_queue import SEND_NOW

MAX_FRAGMENTS = 1024  # of one message; `--ws-max-size` limits their bytes alone
MAX_UNWRITTEN = 64 * 1024  # bytes of frames that wait for one write


class WebSocketProtocol(WebSocketsSansIOProtocol):
    """Lets the application write at once, while the client keeps up, and close whatever the client does."""

    _unwritten = 0  # bytes

    def connection_made(self, transport: Any) -> None:
        """Let frames leave at once, also where the listening socket does not say that it is TCP.

        A frame would wait until the client has acknowledged the one before it. That takes up to 40 ms.
        """
        super().connection_made(transport)
        connection = transport.get_extra_info("socket")
        if connection is not None and connection.family in (socket.AF_INET, socket.AF_INET6):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def handle_connect(self, event: Request) -> None:
        """Tell the application how to write at once."""
        super().handle_connect(event)
        if not self.close_sent:
            extensions: dict[str, Any] = {SEND_NOW: {"send": self.send_now}}
            self.scope["extensions"].update(extensions)

    def send_now(self, text: str) -> bool:
        """Write a frame if the socket is open and its buffer has room. Return whether it was so.

        It leaves with those that come after it in the same round of the event loop.
        """
        is_open = self.handshake_complete and self.conn.state is State.OPEN
        if not is_open or not self.writable.is_set() or self.transport.is_closing():
            return False
        data = text.encode()
        self.conn.send_text(data)
        self._unwritten += len(data)
        if self._unwritten > MAX_UNWRITTEN:
            self._write()
        elif self._unwritten == len(data):
            self.loop.call_soon(self._write)
        return True

    def _write(self) -> None:
        """Write what has come together: a packet costs both sides more than most frames."""
        self._unwritten = 0
        if not self.transport.is_closing():
            self.transport.write(b"".join(self.conn.data_to_send()))

    def handle_ping(self) -> None:
        """Answer, unless the socket is closed. A client that takes no answers is not read any further."""
        if self.close_sent:
            self.conn.data_to_send()
            return
        super().handle_ping()
        if not self.writable.is_set() and not self.read_paused:
            self.read_paused = True
            self.transport.pause_reading()

    def resume_writing(self) -> None:
        """Read on, unless the application has not taken what came before."""
        super().resume_writing()
        if self.read_paused and self.queue.empty():
            self.read_paused = False
            self.transport.resume_reading()

    def handle_cont(self, event: Frame) -> None:
        """Take one more fragment of a message, or cut the connection: each takes memory, an empty one too."""
        if len(self.frames) < MAX_FRAGMENTS:
            super().handle_cont(event)
        else:
            self.transport.abort()

    async def send(self, message: Any) -> None:
        """Send a message of the application. A close does not wait for room, which a client may never give."""
        if message["type"] == "websocket.close":
            self.writable.set()
        await super().send(message)

    async def run_asgi(self) -> None:
        """Run the application. What the client has not taken some time after its end is thrown away."""
        await super().run_asgi()
        self.loop.call_later(self.close_timeout, self.transport.abort)

    def keepalive_timeout(self) -> None:
        """Close a silent socket. Its application ends at once, not when the client has taken the rest."""
        super().keepalive_timeout()
        self.queue.put_nowait({"type": "websocket.disconnect", "code": 1011})
