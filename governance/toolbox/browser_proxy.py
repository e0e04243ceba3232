"""The proxy of a browser page, which checks every host that the page requests.

The proxy is the page's only connection to the network, because Chromium resolves no names itself and sends nothing
around its proxy. Therefore the rules of `web_fetch` apply to every request of a page, including redirects, images,
scripts and WebSockets. The proxy connects only to addresses that it has checked. The protocol is SOCKS 5 (RFC 1928), of
which Chromium needs only the CONNECT command.
"""

import asyncio
import ipaddress
from contextlib import suppress

import httpx

from governance.core.exceptions import ToolFailed
from governance.toolbox.addresses import resolve
from governance.toolbox.known_hosts import canonical, host_of, refuse_unknown
from governance.toolbox.settings import SettingsSource
from governance.toolbox.workspace import shown

_VERSION = 5
_NO_AUTHENTICATION = b"\x05\x00"
_CONNECT = 1
_IPV4, _NAME, _IPV6 = 1, 3, 4
_GRANTED, _REFUSED, _UNREACHABLE = 0, 2, 5
_NOWHERE = b"\x00\x01" + b"\x00" * 6  # every reply must contain an address, but Chromium ignores it
_PIECE = 65_536
_REMEMBERED = 20
_LOOKUPS = 4  # concurrent lookups for one page, because all calls share the threads for lookups
# Hosts that Chromium contacts by itself, for example to fill in the forms of a page.
_NOT_THE_PAGES = frozenset(
    {
        "clientservices.googleapis.com",
        "content-autofill.googleapis.com",
        "optimizationguide-pa.googleapis.com",
        "safebrowsing.googleapis.com",
        "update.googleapis.com",
    }
)


class BrowserProxy:
    """A proxy on the loopback interface. `problems` maps each host that was not reached to a sentence that says why."""

    def __init__(self, settings: SettingsSource) -> None:
        self.problems: dict[str, str] = {}
        self._settings = settings
        self._opened: set[str] = set()
        self._server: asyncio.Server | None = None
        self._visits: set[asyncio.Task[None]] = set()
        self._is_closing = False
        self._lookups = asyncio.Semaphore(_LOOKUPS)

    def allow(self, address: str) -> None:
        """Allow the page to reach the host of a URL that a call may open."""
        self._opened.add(canonical(host_of(httpx.URL(address))))

    async def open(self) -> str:
        """Start the proxy and return its URL."""
        self._server = await asyncio.start_server(self._receive, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        return f"socks5://127.0.0.1:{port}"

    async def aclose(self) -> None:
        """Stop the proxy and close every connection."""
        self._is_closing = True
        if self._server is not None:
            await stop_listening(self._server)
        for visit in self._visits:
            visit.cancel()
        if self._visits:
            await asyncio.wait(self._visits)

    def _receive(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_closing:  # the connection was accepted just before the server closed
            writer.close()
            return
        # Create the task here, because asyncio would log an error if its own task were cancelled (Python 3.11).
        visit = asyncio.create_task(self._serve(reader, writer), name="connection of a web page")
        self._visits.add(visit)
        visit.add_done_callback(self._visits.discard)
        # A task that is cancelled before its first step runs no `finally`.
        visit.add_done_callback(lambda _: writer.close())

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._connect(reader, writer)
        except (OSError, EOFError, ValueError):  # the client disconnected, or uses another protocol
            pass
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(self._settings().web_connect_timeout):
            host, port = await _read_request(reader, writer)
        if host in _NOT_THE_PAGES:
            await _reply(writer, _REFUSED)
            return
        try:
            far_reader, far_writer = await self._reach(host, port)
        except ToolFailed as problem:
            self._remember(host, str(problem))
            await _reply(writer, _REFUSED)
            return
        except OSError:
            self._remember(host, f"No connection to the host {shown(host)!r} could be made.")
            await _reply(writer, _UNREACHABLE)
            return
        try:
            await _reply(writer, _GRANTED)
            await asyncio.gather(_pump(reader, far_writer), _pump(far_reader, writer))
        finally:
            far_writer.close()
            with suppress(OSError):
                await far_writer.wait_closed()

    async def _reach(
        self, host: str, port: int
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Check every address of the host, and connect to the first one that accepts the connection."""
        settings = self._settings()
        if canonical(host) not in self._opened:
            refuse_unknown(host, settings)
        failure: OSError = ConnectionRefusedError()
        async with self._lookups:
            addresses = await resolve(host, port, settings=settings)
        for address in addresses:
            try:
                async with asyncio.timeout(settings.web_connect_timeout):
                    return await asyncio.open_connection(address, port)
            except OSError as error:  # TimeoutError is an OSError
                failure = error
        raise failure

    def _remember(self, host: str, sentence: str) -> None:
        self.problems.pop(host, None)
        self.problems[host] = sentence  # the newest problem comes last
        if len(self.problems) > _REMEMBERED:
            del self.problems[next(iter(self.problems))]


async def stop_listening(server: asyncio.Server) -> None:
    """Close a server so that each connection that it has already accepted still reaches its callback.

    asyncio starts a connection one step of the event loop after it has accepted it, and would lose the connection, still
    open, if the server were closed in between (seen in Python 3.11 to 3.13).
    """
    loop = asyncio.get_running_loop()
    try:
        for listener in server.sockets:
            loop.remove_reader(listener.fileno())
        await asyncio.sleep(0)
    finally:
        server.close()


async def _read_request(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> tuple[str, int]:
    version, methods = await reader.readexactly(2)
    if version != _VERSION:
        raise ValueError("not SOCKS 5")
    await reader.readexactly(methods)
    writer.write(_NO_AUTHENTICATION)
    await writer.drain()
    version, command, _, kind = await reader.readexactly(4)
    if version != _VERSION or command != _CONNECT:
        raise ValueError("not a request to connect")
    host = await _read_host(reader, kind)
    return host, int.from_bytes(await reader.readexactly(2), "big")


async def _read_host(reader: asyncio.StreamReader, kind: int) -> str:
    if kind == _NAME:
        length = (await reader.readexactly(1))[0]
        return (await reader.readexactly(length)).decode("ascii")
    if kind == _IPV4:
        return str(ipaddress.IPv4Address(await reader.readexactly(4)))
    if kind == _IPV6:
        return str(ipaddress.IPv6Address(await reader.readexactly(16)))
    raise ValueError("an unknown kind of address")


async def _reply(writer: asyncio.StreamWriter, code: int) -> None:
    writer.write(bytes((_VERSION, code)) + _NOWHERE)
    await writer.drain()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Relay data in one direction until either side closes the connection."""
    with suppress(OSError):
        while piece := await reader.read(_PIECE):
            writer.write(piece)
            await writer.drain()
    with suppress(OSError, RuntimeError):
        if writer.can_write_eof():
            writer.write_eof()
