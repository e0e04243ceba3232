"""What stands between a process and its database: it keeps all connections open and may pass nothing on."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from tests.support import PATIENCE
from tests.tcp_server import TcpServer


class SilentProxy(TcpServer):
    """Passes bytes on to a port of the loopback address. While it `is_silent` it takes them and forgets them."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self.is_silent = False
        self._port = port

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_server, to_server = await asyncio.open_connection("127.0.0.1", self._port)
        ways = [
            asyncio.create_task(self._pass_on(reader, to_server), name="to the server"),
            asyncio.create_task(self._pass_on(from_server, writer), name="from the server"),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.wait(ways)
            to_server.close()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while taken := await reader.read(65_536):
            if not self.is_silent:
                writer.write(taken)
                await writer.drain()


@contextmanager
def silent_proxy(port: int) -> Iterator[SilentProxy]:
    """Run a proxy in a thread of its own."""
    proxy = SilentProxy(port)
    is_ready = threading.Event()
    ends: list[Callable[[], object]] = []

    async def serve() -> None:
        is_over = asyncio.Event()
        ends.append(partial(asyncio.get_running_loop().call_soon_threadsafe, is_over.set))
        async with proxy:
            is_ready.set()
            await is_over.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), name="silent proxy", daemon=True)
    thread.start()
    assert is_ready.wait(PATIENCE)
    try:
        yield proxy
    finally:
        for end in ends:
            end()
        thread.join(PATIENCE)
