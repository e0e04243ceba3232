"""An HTTP/1.1 server that answers each request with the next response of a script and sees when the client leaves."""

import asyncio
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.tcp_server import TcpServer


class Hold:
    """A place in a response where nothing is sent until it is released. `reached` is set as soon as it is."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.released = asyncio.Event()


class Break:
    """A place in a response where the connection is reset."""


@dataclass(frozen=True)
class Response:
    """`parts` are sent one by one, each as a chunk. What stands in `before` comes before the status line."""

    parts: Sequence[bytes | Hold | Break] = ()
    status: str = "200 OK"
    headers: dict[str, str] = field(default_factory=dict)
    before: Sequence[Hold] = ()

    def head(self) -> bytes:
        headers = {
            "content-type": "text/event-stream; charset=utf-8",
            **self.headers,
            "transfer-encoding": "chunked",
        }
        lines = [
            f"HTTP/1.1 {self.status}",
            *(f"{name}: {value}" for name, value in headers.items()),
        ]
        return ("\r\n".join(lines) + "\r\n\r\n").encode()


@dataclass(frozen=True)
class Request:
    """What came in: the line, the headers in lower case, the JSON of the body."""

    line: str
    headers: dict[str, str]
    body: dict[str, Any]


def refusal(status: str, body: dict[str, Any], **headers: str) -> Response:
    """An error with a JSON body."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Response(
        [json.dumps(body).encode()],
        status=status,
        headers={"content-type": "application/json", **named},
    )


def sse(data: dict[str, Any] | str, *, event: str = "") -> bytes:
    """One server-sent event, as the providers write it."""
    text = data if isinstance(data, str) else json.dumps(data, separators=(",", ":"))
    return (f"event: {event}\n" if event else "").encode() + f"data: {text}\n\n".encode()


def flat(parts: Sequence[bytes | Sequence[bytes]]) -> Iterator[bytes]:
    """Return the events of an answer one by one."""
    for part in parts:
        if isinstance(part, bytes):
            yield part
        else:
            yield from part


class Server(TcpServer):
    """`requests` is what was asked. `left` is set when the client has closed a connection."""

    def __init__(self, *responses: Response) -> None:
        super().__init__()
        self.requests: list[Request] = []
        self.left = asyncio.Event()
        self.connections = 0
        self._responses = list(responses)

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    def add(self, *responses: Response) -> None:
        """Let the script go on."""
        self._responses += responses

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                request = await _read(reader)
                self.requests.append(request)
                await self._answer(self.respond(request), reader, writer)
        except (asyncio.IncompleteReadError, ConnectionResetError, BrokenPipeError):
            # A read or a write notices it, whichever is first.
            self.left.set()
            raise

    def respond(self, request: Request) -> Response:
        """Return the answer to a request: the next of the script."""
        return self._responses.pop(0)

    async def _answer(
        self, response: Response, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Send a response while watching whether the client is still there: it sends nothing more before the end."""
        sending = asyncio.ensure_future(_send(response, writer))
        watching = asyncio.ensure_future(_until_gone(reader))
        try:
            await asyncio.wait({sending, watching}, return_when=asyncio.FIRST_COMPLETED)
            if not sending.done():
                raise ConnectionResetError
            sending.result()
        finally:
            for task in (sending, watching):
                task.cancel()
            await asyncio.wait({sending, watching})


async def _send(response: Response, writer: asyncio.StreamWriter) -> None:
    for hold in response.before:
        await _pause(hold)
    writer.write(response.head())
    for part in response.parts:
        if isinstance(part, Hold):
            await _pause(part)
        elif isinstance(part, Break):
            writer.transport.abort()
            raise ConnectionAbortedError
        else:
            writer.write(b"%x\r\n%s\r\n" % (len(part), part))
            await writer.drain()
    writer.write(b"0\r\n\r\n")
    await writer.drain()


async def _pause(hold: Hold) -> None:
    hold.reached.set()
    await hold.released.wait()


async def _until_gone(reader: asyncio.StreamReader) -> None:
    """Wait for the end of the connection: a client sends nothing before it has its answer."""
    await reader.read(1)


async def _read(reader: asyncio.StreamReader) -> Request:
    head = await reader.readuntil(b"\r\n\r\n")
    line, *lines = head.decode().strip().split("\r\n")
    headers = {
        name.strip().lower(): value.strip() for name, value in (row.split(":", 1) for row in lines)
    }
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(line=line, headers=headers, body=json.loads(body or b"{}"))
