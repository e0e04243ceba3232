"""uvicorn's protocol as the site uses it, with real connections whose clients do not read."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from tests.support import PATIENCE, eventually
from webchat.socket_protocol import WebSocketProtocol

MEGABYTE = 1024 * 1024
HUGE = "x" * (16 * MEGABYTE)  # the kernel takes a part of it
UPGRADE = b"""GET / HTTP/1.1\r
Host: localhost\r
Upgrade: websocket\r
Connection: Upgrade\r
Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r
Sec-WebSocket-Version: 13\r
\r
"""

Application = Callable[[Any, Any, Any], Awaitable[None]]


class QuickProtocol(WebSocketProtocol):
    """Gives a client less time to take what is left."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.close_timeout = 0.01


class Peer:
    """A client that opens a socket and reads nothing, and the server's side of it."""

    def __init__(self, state: ServerState, port: int) -> None:
        self._state = state
        self._port = port
        self._socket = socket.socket()
        self._socket.setblocking(False)

    @property
    def protocol(self) -> WebSocketProtocol:
        """What serves it; an error if it is gone."""
        return next(one for one in self._state.connections if isinstance(one, WebSocketProtocol))

    @property
    def is_gone(self) -> bool:
        """Whether the server holds nothing of it any more."""
        return not self._state.connections

    async def open(self) -> None:
        """Ask for the socket."""
        loop = asyncio.get_running_loop()
        await loop.sock_connect(self._socket, ("127.0.0.1", self._port))
        await self.send(UPGRADE)

    async def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        await asyncio.get_running_loop().sock_sendall(self._socket, data)

    def close(self) -> None:
        """Leave."""
        self._socket.close()


@asynccontextmanager
async def peer_of(application: Application, **options: Any) -> AsyncIterator[Peer]:
    """Serve an application, and open a socket of a client that does not read."""
    config = uvicorn.Config(
        application, ws=QuickProtocol, lifespan="off", log_config=None, **options
    )
    config.load()
    state = ServerState()

    def make_protocol() -> asyncio.Protocol:
        return config.http_protocol_class(config=config, server_state=state, app_state={})  # type: ignore[call-arg]

    loop = asyncio.get_running_loop()
    server = await loop.create_server(make_protocol, "127.0.0.1", 0)
    peer = Peer(state, server.sockets[0].getsockname()[1])
    try:
        await peer.open()
        yield peer
    finally:
        peer.close()
        server.close()
        await eventually(lambda: peer.is_gone and not state.tasks)


class Flooded:
    """An application that sends more than a connection takes, then waits for its end."""

    def __init__(self, *, close_code: int | None = None) -> None:
        self._close_code = close_code
        self.has_ended = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve the socket."""
        await receive()
        await send({"type": "websocket.accept"})
        await send({"type": "websocket.send", "text": HUGE})
        if self._close_code:
            await send({"type": "websocket.close", "code": self._close_code})
        while (await receive())["type"] != "websocket.disconnect":
            pass
        self.has_ended.set()


@pytest.mark.parametrize(
    ("close_code", "options"),
    [(1013, {}), (None, {"ws_ping_interval": 0.01, "ws_ping_timeout": 0.01})],
    ids=["by the application", "by the keepalive"],
)
async def test_a_client_that_never_reads_can_be_closed_and_what_it_leaves_is_thrown_away(
    close_code: int | None, options: dict[str, Any]
):
    application = Flooded(close_code=close_code)
    async with peer_of(application, **options) as peer:
        async with asyncio.timeout(PATIENCE):
            await application.has_ended.wait()
        await eventually(lambda: peer.is_gone)
