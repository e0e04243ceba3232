"""uvicorn's protocol as the site uses it, with real connections whose clients do not read."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import uvicorn
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState

from tests.support import PATIENCE, eventually
from webchat.send_queue import SEND_NOW
from webchat.server import listen
from webchat.socket_protocol import MAX_FRAGMENTS, MAX_UNWRITTEN, WebSocketProtocol

MEGABYTE = 1024 * 1024
FLOOD = 48 * MEGABYTE
PING = bytes((0x89, 0x80 | 125)) + bytes(4 + 125)
FRAGMENT = bytes((0x00, 0x80)) + bytes(4)  # one more to come, and nothing in it
LONG = "y" * MAX_UNWRITTEN
ALL = ("one", "two", "three", "four", LONG)
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
    def connections(self) -> list[Any]:
        """The server's side of all connections, whatever their protocol."""
        return list(self._state.connections)

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

    async def flood(self, frame: bytes) -> None:
        """Send very many frames, unless the server has enough of it."""
        block = frame * (MEGABYTE // len(frame))
        with suppress(ConnectionError):
            for _ in range(FLOOD // MEGABYTE):
                await self.send(block)

    async def read(self) -> None:
        """Begin to read."""
        with suppress(ConnectionError):
            while await asyncio.get_running_loop().sock_recv(self._socket, MEGABYTE):
                pass

    def close(self) -> None:
        """Leave."""
        self._socket.close()


@asynccontextmanager
async def peer_of(
    application: Application,
    *,
    ws: Any = WebSocketProtocol,
    listening: socket.socket | None = None,
    **options: Any,
) -> AsyncIterator[Peer]:
    """Serve an application, and open a socket of a client that does not read."""
    config = uvicorn.Config(application, ws=ws, lifespan="off", log_config=None, **options)
    config.load()
    state = ServerState()

    def make_protocol() -> asyncio.Protocol:
        return config.http_protocol_class(config=config, server_state=state, app_state={})  # type: ignore[call-arg]

    loop = asyncio.get_running_loop()
    listening = listening or socket.create_server(("127.0.0.1", 0))
    server = await loop.create_server(make_protocol, sock=listening)
    peer = Peer(state, server.sockets[0].getsockname()[1])
    try:
        await peer.open()
        yield peer
    finally:
        peer.close()
        server.close()
        await eventually(lambda: peer.is_gone and not state.tasks)


class Sender:
    """An application that accepts a socket, sends one text, and waits for the end."""

    def __init__(self, text: str, *, close_code: int | None = None) -> None:
        self._text = text
        self._close_code = close_code
        self.is_open = asyncio.Event()
        self.has_ended = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve the socket."""
        await receive()
        await send({"type": "websocket.accept"})
        await send({"type": "websocket.send", "text": self._text})
        if self._close_code:
            await send({"type": "websocket.close", "code": self._close_code})
        self.is_open.set()
        while (await receive())["type"] != "websocket.disconnect":
            pass
        self.has_ended.set()


async def test_frames_leave_at_once_however_the_listening_socket_was_made():
    application = Sender("short")
    async with peer_of(application) as peer:
        await until_open(application)
        assert is_without_delay(peer.protocol.transport)


async def test_all_answers_of_the_server_leave_at_once():
    application = Sender("short")
    async with peer_of(
        application, ws=WebSocketsSansIOProtocol, listening=listen("127.0.0.1", 0)
    ) as peer:
        await until_open(application)
        [connection] = peer.connections
        assert is_without_delay(connection.transport)


async def test_frames_of_one_round_leave_together_and_in_order():
    packets: list[bytes] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        send_now = scope["extensions"][SEND_NOW]["send"]
        transport = send_now.__self__.transport
        send_now.__self__.transport = Tap(transport, packets)
        assert send_now("one")
        assert send_now("two")
        assert packets == []
        await send({"type": "websocket.send", "text": "three"})
        assert send_now("four")
        assert send_now(LONG)
        await asyncio.sleep(0)
        send_now.__self__.transport = transport
        while (await receive())["type"] != "websocket.disconnect":
            pass

    async with peer_of(application):
        await eventually(lambda: len(packets) == 2)
    assert [[frame for frame in ALL if frame.encode() in packet] for packet in packets] == [
        ["one", "two", "three"],
        ["four", LONG],
    ]
    assert packets[0].index(b"one") < packets[0].index(b"two") < packets[0].index(b"three")


class Tap:
    """A transport that keeps what is written to it, too."""

    def __init__(self, transport: Any, packets: list[bytes]) -> None:
        self._transport = transport
        self._packets = packets

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Write, unless there is nothing."""
        if data:
            self._packets.append(data)
            self._transport.write(data)


def is_without_delay(transport: Any) -> bool:
    """Whether what is written goes out although the client has not acknowledged what was before."""
    connection = transport.get_extra_info("socket")
    return bool(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))


@pytest.mark.parametrize(
    ("close_code", "options"),
    [(1013, {}), (None, {"ws_ping_interval": 0.01, "ws_ping_timeout": 0.01})],
    ids=["by the application", "by the keepalive"],
)
async def test_a_client_that_never_reads_can_be_closed_and_what_it_leaves_is_thrown_away(
    close_code: int | None, options: dict[str, Any]
):
    application = Sender(HUGE, close_code=close_code)
    async with peer_of(application, ws=QuickProtocol, **options) as peer:
        async with asyncio.timeout(PATIENCE):
            await application.has_ended.wait()
        await eventually(lambda: peer.is_gone)


async def until_open(application: Sender) -> None:
    async with asyncio.timeout(PATIENCE):
        await application.is_open.wait()


async def test_pings_of_a_client_that_does_not_read_wait_until_it_does():
    application = Sender("hello")
    async with peer_of(application) as peer:
        await until_open(application)
        transport = peer.protocol.transport
        pinging = asyncio.create_task(peer.flood(PING))
        await eventually(lambda: pinging.done() or not transport.is_reading())
        assert transport.get_write_buffer_size() < MEGABYTE
        reading = asyncio.create_task(peer.read())
        await eventually(pinging.done)  # nothing was refused
        assert not peer.is_gone
        peer.protocol.transport.abort()
        await reading


async def test_pings_after_the_close_are_not_answered():
    application = Sender("hello", close_code=4401)
    async with peer_of(application) as peer:
        await until_open(application)
        transport = peer.protocol.transport
        pinging = asyncio.create_task(peer.flood(PING))
        sizes = []
        await eventually(lambda: sizes.append(transport.get_write_buffer_size()) or pinging.done())
        assert max(sizes) < MEGABYTE


@pytest.mark.parametrize("close_code", [None, 4401], ids=["open", "closed"])
async def test_a_message_in_very_many_pieces_is_not_collected(close_code: int | None):
    application = Sender("hello", close_code=close_code)
    async with peer_of(application) as peer:
        await until_open(application)
        protocol = peer.protocol
        await peer.send(bytes((0x01, 0x80)) + bytes(4))
        await peer.flood(FRAGMENT)
        await eventually(lambda: peer.is_gone)
        assert len(protocol.frames) <= MAX_FRAGMENTS
