"""Runs uvicorn in this process. The turn supervisor starts before the first request and drains at the end."""

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import Any

import uvicorn

from turns.running import runtime
from turns.running.draining import Drain
from webchat.socket_protocol import WebSocketProtocol

logger = logging.getLogger(__name__)

MAX_FRAME = 1024 * 1024  # bytes that a client may send at once
CLOSING_BOUND = 1  # seconds for answers that are still on their way, once everything was drained


class TurnServer(uvicorn.Server):
    """Serves HTTP and WebSocket. The first signal drains, the second cancels what still runs, the third leaves at once.

    `say` gets sentences for whoever started the server.
    """

    def __init__(
        self, application: Any, *, host: str, port: int, say: Callable[[str], None]
    ) -> None:
        config = uvicorn.Config(
            application,
            host=host,
            port=port,
            loop="asyncio",  # others have no place where tools that ask to exit are contained
            ws=WebSocketProtocol,
            ws_max_size=MAX_FRAME,
            ws_per_message_deflate=False,  # it costs more than such short frames save
            lifespan="off",  # a project's application need not know of it
            log_config=None,
            access_log=False,
            proxy_headers=False,  # the site decides whom it believes
            server_header=False,
            headers=[("server", "turnkeeper")],
            timeout_graceful_shutdown=CLOSING_BOUND,
        )
        super().__init__(config)
        self._exit_code = 0
        self._say = say
        self._drain: Drain | None = None
        self._leaving = asyncio.Event()

    @property
    def exit_code(self) -> int:
        """What the process should return."""
        return self._exit_code or (self._drain.exit_code if self._drain else 0)

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until a signal comes. Say why, if the address cannot be had."""
        host, port = self.config.host, self.config.port
        try:
            sockets = sockets or [listen(host, port)]
        except (OSError, OverflowError) as error:
            self._exit_code = 1
            reason = _reason(error)
            self._say(f"Cannot listen on {_address(host, port)}: {reason}. Set PORT to a free one.")
            return
        super().run(sockets)

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Let signals drain; the server itself is told once everything was."""
        self._drain = Drain(asyncio.get_running_loop(), leave=self._leave, say=self._say)
        self._drain.watch_signals()
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the turns, then answer."""
        try:
            await self.start_turns()
        except Exception:
            logger.exception("The turn supervisor could not be started")
            self._exit_code = 1
            self._leave()
            return
        await super().startup(sockets)
        for listening in sockets or ():
            host, port = listening.getsockname()[:2]
            self._say(f"Serving on http://{_address(host, port)} (Ctrl-C to stop)")

    async def main_loop(self) -> None:
        """Keep the date of answers current until the server leaves: a look in a second, where uvicorn's own takes ten."""
        while not await self.on_tick(0):
            with suppress(TimeoutError):
                async with asyncio.timeout(1):
                    await self._leaving.wait()

    async def start_turns(self) -> None:
        """Start the turn supervisor. Tell of processes that this one does not hear."""
        for other in await runtime.unreachable():
            self._say(
                f"Another process uses this database too: {other}. Both work, but pages of one learn only within seconds what"
                " happens in the other. Stop one of them, or set REDIS_URL."
            )

    def _leave(self) -> None:
        self.should_exit = True
        self._leaving.set()


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that takes connections. Raise `OSError` if the address cannot be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    takes_both = host == "::" and socket.has_dualstack_ipv6()
    listening = socket.create_server((host, port), family=family, dualstack_ipv6=takes_both)
    # asyncio lets small answers leave at once (TCP_NODELAY) only where a socket says that it is TCP. This one does not.
    tcp = socket.IPPROTO_TCP
    return socket.socket(listening.family, listening.type, tcp, fileno=listening.detach())


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _reason(error: Exception) -> str:
    number = getattr(error, "errno", None) or 0
    return os.strerror(number) if number > 0 else str(error).rstrip(".")
