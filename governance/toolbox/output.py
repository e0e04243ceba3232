"""The output of a command: read from a pipe, reported in pieces of limited size, and stored as an excerpt."""

import asyncio
import codecs
import os

from governance.core.excerpts import Excerpt, last_lines
from governance.core.tools import ToolContext

_PIECE = 32_000  # maximum number of characters in one report
# Bytes read per interval; a command that prints faster has to wait for its full pipe.
_BURST = 4_000_000


class Output(asyncio.Protocol):
    """The read end of a command's pipe.

    It collects the output and reports it once per `interval` seconds. After `detach` it discards the output, but reads
    on until the pipe is closed, so that a broken pipe does not kill a background process.
    """

    def __init__(self, context: ToolContext, *, limit: int, interval: float) -> None:
        self._context: ToolContext | None = context
        self._interval = interval
        self._excerpt = Excerpt.within(limit)
        self._piece = Excerpt.within(_PIECE)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._burst = 0
        self._timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.ReadTransport | None = None
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def text(self) -> str:
        """The output, without its middle if it is longer than the limit."""
        return str(self._excerpt).rstrip("\n")

    async def open(self) -> int:
        """Create the pipe and return its write end, which the caller closes once the command has inherited it."""
        readable, writable = os.pipe()
        pipe = os.fdopen(readable, "rb", buffering=0)
        try:
            await asyncio.get_running_loop().connect_read_pipe(lambda: self, pipe)
        except BaseException:
            pipe.close()
            os.close(writable)
            raise
        return writable

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def flush(self) -> None:
        """Report the output that was received since the last report."""
        if self._context is None or not self._piece.total:
            return
        piece, self._piece = str(self._piece), Excerpt.within(_PIECE)
        self._context.progress(last_lines(piece, 1), output=piece)

    async def drain(self, *, within: float) -> None:
        """Read until the pipe is closed, for at most `within` seconds, and then report the output."""
        self._next_interval()
        await asyncio.wait({self._ended}, timeout=within)
        self.flush()

    def detach(self) -> None:
        """Detach from the call. Output that arrives later is neither stored nor reported."""
        self.flush()
        self._context = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport, which can pause reading."""
        assert isinstance(transport, asyncio.ReadTransport)  # noqa: S101 - for the type checker
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Add a piece of output to the next report."""
        self._add(self._decoder.decode(data))
        self._burst += len(data)
        if self._burst >= _BURST and self._transport is not None:
            self._transport.pause_reading()
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._interval, self._next_interval)

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the rest of the output and record its end, because every process has closed the pipe."""
        self._add(self._decoder.decode(b"", final=True))
        if self._timer is not None:
            self._timer.cancel()
        self.flush()
        if not self._ended.done():
            self._ended.set_result(None)

    def _add(self, text: str) -> None:
        if self._context is None:
            return
        text = text.replace("\0", "\ufffd")  # PostgreSQL does not accept NUL characters in text
        self._excerpt.add(text)
        self._piece.add(text)

    def _next_interval(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._burst = 0
        self.flush()
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
