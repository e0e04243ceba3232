"""A server on loopback for tests. It serves each connection in a task, and its end is that of all of them."""

import asyncio
from typing import Any, Self


class TcpServer:
    """Listens while it is entered. A subclass says in `_talk` what a connection is told."""

    def __init__(self) -> None:
        self._server: asyncio.Server | None = None
        self._open: dict[asyncio.Task[Any] | None, asyncio.StreamWriter] = {}

    @property
    def address(self) -> str:
        """Return host and port."""
        assert self._server is not None
        host, port = self._server.sockets[0].getsockname()[:2]
        return f"{host}:{port}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        assert self._server is not None
        self._server.close()
        serving = [task for task in self._open if task is not None]
        for writer in self._open.values():
            writer.transport.abort()
        if serving:
            await asyncio.wait(serving)
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open[asyncio.current_task()] = writer
        try:
            await self._talk(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            del self._open[asyncio.current_task()]
            writer.close()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        raise NotImplementedError
