"""A small HTTP server on a free loopback port that answers each path with a coroutine of the test's own."""

import asyncio
import contextlib

from tests.tcp_server import TcpServer


def answer(body=b"", *, status="200 OK", **headers):
    """Return a whole answer as bytes; header names are written with underscores."""
    content = body.encode() if isinstance(body, str) else body
    fields = {"content_length": len(content), "content_type": "text/plain", **headers}
    lines = [
        f"{name.replace('_', '-')}: {value}" for name, value in fields.items() if value is not None
    ]
    return "\r\n".join([f"HTTP/1.1 {status}", *lines, "", ""]).encode() + content


class HttpServer(TcpServer):
    """Answers GET requests; `requests` holds the head of each as text."""

    def __init__(self):
        super().__init__()
        self.pages = {}
        self.requests = []
        self.closed = asyncio.Event()

    def url(self, path="/", host="127.0.0.1"):
        return f"http://{host}:{self.port}{path}"

    @contextlib.asynccontextmanager
    async def serve(self, **options):
        await self.listen(**options)
        try:
            yield self
        finally:
            await self.__aexit__()

    async def _talk(self, reader, writer):
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            self.requests.append(head)
            target = head.split()[1]
            missing = answer("no such page", status="404 Not Found")
            page = self.pages.get(target, self.pages.get(target.partition("?")[0], missing))
            if callable(page):
                await page(writer)
            else:
                writer.write(page)
                await writer.drain()
                return
            await reader.read()  # until the client closes
            self.closed.set()
        except (ConnectionError, asyncio.IncompleteReadError):
            self.closed.set()
