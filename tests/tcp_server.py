"""A server on loopback for tests. It serves each connection in a task, and its end is that of all of them."""

import asyncio
from contextlib import suppress
from typing import Any, Self

from governance.toolbox.browser_proxy import stop_listening


class TcpServer:
    """Listens while it is entered. A subclass says in `_talk` what a connection is told."""

    def __init__(self) -> None:
        self._server: asyncio.Server | None = None
        self._open: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    @property
    def port(self) -> int:
        """Return the port."""
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    @property
    def address(self) -> str:
        """Return host and port."""
        return f"127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        await self.listen()
        return self

    async def listen(self, **options: Any) -> None:
        """Listen on a free port, with options of `asyncio.start_server`."""
        self._server = await asyncio.start_server(self._receive, "127.0.0.1", 0, **options)

    async def __aexit__(self, *exc_info: object) -> None:
        assert self._server is not None
        await stop_listening(self._server)
        await asyncio.sleep(0)  # by then, a connection that was just accepted is among those below
        for writer in self._open.values():
            writer.transport.abort()
        if self._open:
            await asyncio.wait(self._open)

    def _receive(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A task that is cancelled before its first step runs no `finally`, so a callback closes the connection.
        task = asyncio.create_task(self._serve(reader, writer), name="connection of a test server")
        self._open[task] = writer
        task.add_done_callback(lambda _: self._open.pop(task).close())

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            await self._talk(reader, writer)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        raise NotImplementedError
