"""Daphne in this process, with the turn supervisor started before the first request and drained at the end."""

# Daphne installs its reactor when it is imported, so it comes before everything that may import Twisted.
import daphne.server  # isort: skip
import daphne.ws_protocol  # isort: skip

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Callable
from typing import Any

from turns import runtime
from turns.conf import app_settings
from webchat import sockets

logger = logging.getLogger(__name__)

EXIT_BOUND = 10.0  # seconds beyond the drain's grace after which the process ends whatever happens
EXIT_UNCLEAN = 70


class FrankProtocol(daphne.ws_protocol.WebSocketProtocol):  # type: ignore[misc]  # Daphne is not typed
    """Closes with every code of the registry, such as 1012: "the server restarts"."""

    def serverClose(self, code: int | None = None) -> None:  # noqa: N802 - Daphne's name
        """Send the close frame."""
        # `sendClose` raises for all codes between 1000 and 3000, as a browser's own `close()` does; the browser
        # would be told 1006, which says nothing.
        self.sendCloseFrame(code=1000 if code is None else code)


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
        self.exit_code = 0
        self._where = f"{host}:{port}"
        self._say = say
        self._signals = 0
        self._stopping: asyncio.Task[None] | None = None

    def listen_success(self, port: Any) -> None:
        """Tell that the address is ours."""
        super().listen_success(port)
        self._say(f"Serving on http://{self._where} (Ctrl-C to stop)")

    def listen_error(self, failure: Any) -> None:
        """Tell why the address cannot be ours, and end."""
        self.exit_code = 1
        self._say(
            f"Cannot listen on {self._where}: {failure.getErrorMessage()} Set PORT to a free one."
        )
        self.stop()

    def _ready(self) -> None:
        self.ws_factory.protocol = FrankProtocol
        loop = asyncio.get_event_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._interrupted)
        self._starting = loop.create_task(self._start(), name="start of the server")

    async def _start(self) -> None:
        try:
            await runtime.ensure_started()
        except Exception:
            logger.exception("The turn supervisor could not be started")
            self.exit_code = 1
            self.stop()

    def _interrupted(self) -> None:
        self._signals += 1
        loop = asyncio.get_event_loop()
        if self._signals == 1:
            self._limit_exit()
            self._stopping = loop.create_task(
                self._drain(app_settings.DRAIN_GRACE), name="drain of the server"
            )
        elif self._signals == 2 and self._stopping is not None:
            self._say("Cancelling what still runs.")
            self._stopping.cancel()
            self._stopping = loop.create_task(self._drain(0.0), name="drain of the server")
        else:
            os._exit(EXIT_UNCLEAN)

    async def _drain(self, grace: float) -> None:
        live = await runtime.live_turns()
        if live and grace:
            self._say(
                f"Waiting up to {grace:g} s for {live} running turn(s). Ctrl-C again cancels them."
            )
        try:
            await runtime.stop(grace=grace)
        except Exception:
            logger.exception("The turn supervisor could not be drained")
            self.exit_code = 1
        await sockets.close_all()
        self.stop()

    def _limit_exit(self) -> None:
        """End the process even if something blocks the loop; a daemon thread, so it delays nothing."""
        timer = threading.Timer(app_settings.DRAIN_GRACE + EXIT_BOUND, os._exit, (EXIT_UNCLEAN,))
        timer.daemon = True
        timer.start()
