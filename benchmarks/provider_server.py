"""A server on loopback that speaks Anthropic's Messages stream. The chat model and the bare SDK ask the same one."""

import asyncio
import json
from types import TracebackType
from typing import Any, Self

CHAT_MODEL = "benchmark"


class ProviderServer:
    """Answers every request with `chunks` pieces of text; with `holds`, it then says no more and keeps the stream open.

    `held` is set while a stream stands open like that. `gone` gets the moment (by the loop's clock) when its reader
    went away.
    """

    def __init__(self, *, chunks: int, holds: bool = False) -> None:
        self.held = asyncio.Event()
        self.gone: asyncio.Queue[float] = asyncio.Queue()
        self._body = _stream(chunks, is_whole=not holds)
        self._holds = holds
        self._server: asyncio.Server | None = None
        self._readers: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        """Where it listens."""
        assert self._server is not None
        host, port = self._server.sockets[0].getsockname()
        return f"http://{host}:{port}"

    async def __aenter__(self) -> Self:
        """Listen on a free port."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close every connection."""
        assert self._server is not None
        self._server.close()
        for writer in self._readers:
            writer.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._readers.add(writer)
        try:
            while await _request(reader):
                writer.write(_HEAD + b"".join(_chunk(event) for event in self._body))
                if self._holds:
                    await writer.drain()
                    self.held.set()
                    await (
                        reader.read()
                    )  # nothing more is said, so this ends when the reader has gone
                    self.gone.put_nowait(asyncio.get_running_loop().time())
                    return
                writer.write(_chunk(b""))
                await writer.drain()
        except ConnectionError:
            return
        finally:
            self._readers.discard(writer)
            writer.close()


_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


async def _request(reader: asyncio.StreamReader) -> bool:
    """Read one request; False where the connection ends instead."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return False
    lengths = (line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    await reader.readexactly(int(next(lengths).partition(b":")[2]))
    return True


def _chunk(content: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(content), content)


def _stream(chunks: int, *, is_whole: bool) -> list[bytes]:
    usage = {"input_tokens": 25, "output_tokens": 1}
    message: dict[str, Any] = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": CHAT_MODEL,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage,
    }
    delta = {"type": "text_delta", "text": "word "}
    events = [
        _event("message_start", message=message),
        _event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
        *[_event("content_block_delta", index=0, delta=delta)] * chunks,
    ]
    if is_whole:
        stop = {"stop_reason": "end_turn", "stop_sequence": None}
        events += [
            _event("content_block_stop", index=0),
            _event("message_delta", delta=stop, usage={"output_tokens": chunks}),
            _event("message_stop"),
        ]
    return events


def _event(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()
