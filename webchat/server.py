"""Runs Daphne in this process. The turn supervisor starts before the first request is served, and drains at the end."""

import asyncio
import logging
import os
import socket
from collections.abc import Callable
from typing import Any

from daphne.endpoints import build_endpoint_description_strings
from daphne.server import Server
from daphne.ws_protocol import WebSocketProtocol

from turns.running import runtime
from turns.running.draining import Drain
from webchat.slow_requests import TimedChannel

logger = logging.getLogger(__name__)

MAX_MESSAGE = 1024 * 1024  # maximum bytes of one message from a client
CLOSING_BOUND = 1.0  # seconds to wait for outstanding responses after the drain


class TurnServer:
    """Serves HTTP and WebSockets.

    The first signal starts a drain, the second cancels running turns, and the third exits immediately.

    `say` prints sentences for the person who started the server.
    """

    def __init__(
        self, application: Any, *, host: str, port: int, say: Callable[[str], None]
    ) -> None:
        self._application = application
        self._host, self._port = host, port
        self._say = say
        self._exit_code = 0
        self._drain: Drain | None = None
        self._has_started = asyncio.Event()
        self._answers: set[asyncio.Task[None]] = set()
        self._server = _Daphne(
            application=self._serve,
            endpoints=build_endpoint_description_strings(host=host, port=port),
            signal_handlers=False,
            ready_callable=self._begin,
            websocket_timeout=-1,  # sockets may stay open for longer than a day
            websocket_max_message_size=MAX_MESSAGE,
            websocket_max_frame_size=MAX_MESSAGE,
            server_name="",
        )

    @property
    def exit_code(self) -> int:
        return self._exit_code or (self._drain.exit_code if self._drain else 0)

    def run(self) -> None:
        """Serve until a signal arrives. If the address is unavailable, print why."""
        try:
            listen(self._host, self._port).close()
        except (OSError, OverflowError) as error:
            self._fail(_reason(error))
            return
        self._server.run()
        if not self._server.listening_addresses:
            self._fail("another process was faster")

    async def start_turns(self) -> None:
        """Start the turn supervisor, and print a warning about processes that this one cannot communicate with."""
        for other in await runtime.unreachable():
            self._say(
                f"Another process uses this database too: {other}. Both work, but pages of one learn only within seconds what"
                " happens in the other. Stop one of them, or let CHANNEL_LAYERS name a layer that they share."
            )

    def _begin(self) -> None:
        """Prepare the event loop that Daphne is about to run. Daphne calls this when it already listens."""
        self._server.http_factory.protocol = TimedChannel
        loop = asyncio.get_event_loop()  # Daphne has set it
        self._drain = Drain(loop, leave=self._leave, say=self._say)
        self._drain.watch_signals()
        self._starting = loop.create_task(self._start(), name="start of the server")

    async def _start(self) -> None:
        try:
            await self.start_turns()
        except Exception:
            logger.exception("The turn supervisor could not be started")
            self._exit_code = 1
            self._server.stop()
            return
        self._has_started.set()
        for host, port in self._server.listening_addresses:
            self._say(f"Serving on http://{_address(host, port)} (Ctrl-C to stop)")

    async def _serve(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve a request or socket, but not before turns can run."""
        await self._has_started.wait()
        task = asyncio.current_task()
        if task is not None and scope["type"] == "http":
            self._answers.add(task)
            task.add_done_callback(self._answers.discard)
        await self._application(scope, receive, send)

    def _leave(self) -> None:
        """Stop the server. This is called after turns are drained and sockets are closed."""
        self._leaving = asyncio.get_running_loop().create_task(
            self._finish(), name="end of the server"
        )

    async def _finish(self) -> None:
        if self._answers:
            await asyncio.wait(self._answers, timeout=CLOSING_BOUND)
        self._server.stop()

    def _fail(self, reason: str) -> None:
        self._exit_code = 1
        address = _address(self._host, self._port)
        self._say(f"Cannot listen on {address}: {reason}. Set PORT to a free one.")


class _Daphne(Server):  # type: ignore[misc]
    """A Daphne server that can send the close code 1012, which tells clients that the server restarts."""

    async def handle_reply(self, protocol: Any, message: Any) -> None:
        """Send a message of the application.

        Unlike Daphne's own method, also send close codes that Autobahn's `sendClose` refuses.
        """
        if (
            message["type"] == "websocket.close"
            and 1001 <= message.get("code", 1000) < 3000
            and isinstance(protocol, WebSocketProtocol)
            and protocol.state == WebSocketProtocol.STATE_OPEN
        ):
            # This method is documented as internal, but there is no other way, and Daphne itself closes with 1011 like
            # this.
            protocol.sendCloseFrame(code=int(message["code"]))
            return
        await super().handle_reply(protocol, message)


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raise `OSError` if the address is unavailable."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family)


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _reason(error: Exception) -> str:
    number = getattr(error, "errno", None) or 0
    return os.strerror(number) if number > 0 else str(error).rstrip(".")
