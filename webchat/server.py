"""Runs Daphne in this process. The turn supervisor starts before the first request and drains at the end."""

# Daphne installs its reactor when it is imported, so it comes before everything that may import Twisted.
import daphne.server  # isort: skip
import daphne.http_protocol  # isort: skip
import daphne.ws_protocol  # isort: skip

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from turns.running import runtime
from turns.running.draining import Drain
from webchat.body_limit import STATUS, limit_of, refusal
from webchat.send_queue import SEND_NOW

logger = logging.getLogger(__name__)


class BoundedRequest(daphne.http_protocol.WebRequest):  # type: ignore[misc]  # Daphne is not typed
    """Refuses a body that is larger than the application takes; Daphne reads every body whole before it asks."""

    _received = 0
    _is_refused = False

    def gotLength(self, length: int | None) -> None:  # noqa: N802 - Twisted's name
        """Refuse by the length that the client declares."""
        super().gotLength(length)
        self._check(length or 0)

    def handleContentChunk(self, data: bytes) -> None:  # noqa: N802 - Twisted's name
        """Refuse by what has come: a client need not say how much that will be."""
        self._received += len(data)
        self._check(self._received)
        if not self._is_refused:
            super().handleContentChunk(data)

    def _check(self, size: int) -> None:
        limit = limit_of(self.server.application)
        if self._is_refused or limit is None or size <= limit:
            return
        self._is_refused = True
        body = refusal()
        head = f"HTTP/1.1 {STATUS} Content Too Large\r\nContent-Type: application/json\r\n"
        head += f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        self.channel.transport.write(head.encode() + body)
        self.channel.loseConnection()


def _do_nothing() -> None:
    pass


class FlowControlledProtocol(daphne.ws_protocol.WebSocketProtocol):  # type: ignore[misc]  # Daphne is not typed
    """Closes with any registered code, such as 1012 ("the server restarts"), and lets senders wait for the client.

    Without that wait, unread frames would pile up here, and the socket's send queue would never fill.
    """

    def __init__(self) -> None:
        super().__init__()
        self._writable = asyncio.Event()
        self._writable.set()

    def serverClose(self, code: int | None = None) -> None:  # noqa: N802 - Daphne's name
        # `sendClose` raises for all codes between 1000 and 3000, as a browser's own `close()` does. The browser
        # would be told 1006, which says nothing.
        self.sendCloseFrame(code=1000 if code is None else code)

    def onOpen(self) -> None:  # noqa: N802 - Autobahn's name
        """Ask the transport to report when its buffer is full."""
        super().onOpen()
        self.transport.unregisterProducer()  # the HTTP channel's, which would stop reading from the client
        self.transport.registerProducer(self, True)  # noqa: FBT003 - Twisted's signature

    def pauseProducing(self) -> None:  # noqa: N802 - Twisted's name
        """The transport's buffer is full (64 KiB)."""
        self._writable.clear()

    def resumeProducing(self) -> None:  # noqa: N802 - Twisted's name
        """The buffer is empty again."""
        self._writable.set()

    def stopProducing(self) -> None:  # noqa: N802 - Twisted's name
        """The connection is gone: release the senders."""
        self._writable.set()

    def send_now(self, text: str) -> bool:
        """Write a frame if the socket is open and its buffer has room. Return whether it was so."""
        if not self._writable.is_set() or self.state != self.STATE_OPEN:
            return False
        transport = self.transport
        if not (hasattr(transport, "doWrite") and transport.connected):  # TLS has a layer between
            self.serverSend(text)
            return True
        # Twisted would ask the event loop to call it back as soon as the socket takes something. It does, nearly always.
        transport.startWriting = _do_nothing
        try:
            self.serverSend(text)
        finally:
            del transport.startWriting
        if transport.doWrite() is not None or transport.dataBuffer:
            transport.startWriting()  # the rest, or what has gone wrong, is the loop's
        return True

    async def wait_until_writable(self) -> None:
        """Wait until the client has read what was written."""
        await self._writable.wait()


class TurnServer(daphne.server.Server):  # type: ignore[misc]  # Daphne is not typed
    """Serves HTTP and WebSocket. The first signal drains, the second cancels what still runs, the third leaves at once.

    `say` gets sentences for whoever started the server.
    """

    def __init__(
        self, application: Any, *, host: str, port: int, say: Callable[[str], None]
    ) -> None:
        address = host.replace(":", r"\:")
        super().__init__(
            application=application,
            endpoints=[f"tcp:port={port}:interface={address}"],
            signal_handlers=False,
            ready_callable=self._ready,
            websocket_max_message_size=1024 * 1024,
            server_name="turnkeeper",
        )
        self._exit_code = 0
        self._address = f"{host}:{port}"
        self._say = say
        self._drain: Drain | None = None

    @property
    def exit_code(self) -> int:
        """What the process should return."""
        return self._exit_code or (self._drain.exit_code if self._drain else 0)

    def create_application(self, protocol: Any, scope: dict[str, Any]) -> Any:
        """Tell the application of a socket how to write at once."""
        if isinstance(protocol, FlowControlledProtocol):
            scope["extensions"] = {SEND_NOW: {"send": protocol.send_now}}
        return super().create_application(protocol, scope)

    async def handle_reply(self, protocol: Any, message: Any) -> None:
        """Send what the application says; return when the client has room for more."""
        await super().handle_reply(protocol, message)
        if isinstance(protocol, FlowControlledProtocol) and message["type"] == "websocket.send":
            await protocol.wait_until_writable()

    def listen_success(self, port: Any) -> None:
        super().listen_success(port)
        self._say(f"Serving on http://{self._address} (Ctrl-C to stop)")

    def listen_error(self, failure: Any) -> None:
        """Say why the server cannot listen, and end."""
        self._exit_code = 1
        self._say(
            f"Cannot listen on {self._address}: {failure.getErrorMessage()} Set PORT to a free one."
        )
        self.stop()

    def _ready(self) -> None:
        self.ws_factory.protocol = FlowControlledProtocol
        build = self.http_factory.buildProtocol

        def build_bounded(address: Any) -> Any:
            protocol = build(address)
            protocol.requestFactory = BoundedRequest
            return protocol

        self.http_factory.buildProtocol = build_bounded
        loop = asyncio.get_event_loop()
        self._drain = Drain(loop, leave=self.stop, say=self._say)
        self._drain.watch_signals()
        self._starting = loop.create_task(self._start(), name="start of the server")

    async def _start(self) -> None:
        try:
            for other in await runtime.unreachable():
                self._say(
                    f"Another process uses this database too: {other}. Both work, but pages of one learn only within seconds what"
                    " happens in the other. Stop one of them, or set REDIS_URL."
                )
        except Exception:
            logger.exception("The turn supervisor could not be started")
            self._exit_code = 1
            self.stop()
