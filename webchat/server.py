"""Runs Daphne in this process. The turn supervisor starts before the first request and drains at the end."""

# Daphne installs its reactor when it is imported, so it comes before everything that may import Twisted.
import daphne.server  # isort: skip
import daphne.ws_protocol  # isort: skip

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from turns.running import runtime
from turns.running.draining import Drain

logger = logging.getLogger(__name__)


class FlowControlledProtocol(daphne.ws_protocol.WebSocketProtocol):  # type: ignore[misc]  # Daphne is not typed
    """Closes with any registered code, such as 1012 ("the server restarts"), and lets senders wait for the client.

    Without that wait, unread frames would pile up here, and the socket's send queue would never fill.
    """

    def __init__(self) -> None:
        super().__init__()
        self._writable = asyncio.Event()
        self._writable.set()

    def serverClose(self, code: int | None = None) -> None:  # noqa: N802 - Daphne's name
        """Send the close frame."""
        # `sendClose` raises for all codes between 1000 and 3000, as a browser's own `close()` does; the browser
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

    async def handle_reply(self, protocol: Any, message: Any) -> None:
        """Send what the application says; return when the client has room for more."""
        await super().handle_reply(protocol, message)
        if isinstance(protocol, FlowControlledProtocol) and message["type"] == "websocket.send":
            await protocol.wait_until_writable()

    def listen_success(self, port: Any) -> None:
        """Say where the server listens."""
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
