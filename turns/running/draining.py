"""The shutdown of a process that runs turns: orderly if possible, and on time even if something hangs.

The first signal starts the drain: no turn starts, running turns have `TURNS_DRAIN_GRACE` seconds to end, and those that
have not ended by then are cancelled with the reason `shutdown`. The second signal skips the grace period, and the third
exits immediately. Signal handlers are Python functions instead of callbacks of the event loop, and a thread enforces
the deadlines. The process therefore exits even if the loop is blocked, a coroutine ignores its cancellation or the
database hangs.
"""

import asyncio
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Any

from turns.conf import app_settings
from turns.running import runtime

logger = logging.getLogger(__name__)

ABANDON_AFTER = 7.0  # seconds after the grace period in which cancelled turns must end
HURRY_BOUND = 8.0  # seconds after the second signal in which cancelled turns must end
LAST_BOUND = 5.0  # seconds for the server to stop after the drain
WRITE_BOUND = 2.0  # seconds for the last writes of a forced exit
GOODBYE_BOUND = 2.0  # seconds for each function passed to `at_the_end`
EXIT_UNCLEAN = 70
SIGNALS = (signal.SIGINT, signal.SIGTERM)
INTERRUPT_SIGNAL = signal.SIGURG  # ignored by default
INTERRUPTS = 5
INTERRUPT_INTERVAL = 0.1  # seconds

Goodbye = Callable[[], Awaitable[None]]
SignalFunction = Callable[[int, FrameType | None], Any]

_goodbyes: list[Goodbye] = []


def at_the_end(goodbye: Goodbye) -> None:
    """Await `goodbye` after the drain, before the server closes. A callback that is added twice runs once."""
    if goodbye not in _goodbyes:
        _goodbyes.append(goodbye)


class Drain:
    """Shuts one process down. `leave` is called on `loop` after the drain; `say` prints messages on the terminal.

    `exit_code` is the exit code of the process.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        leave: Callable[[], None],
        say: Callable[[str], None] = logger.info,
    ) -> None:
        self.exit_code = 0
        self._loop = loop
        self._leave = leave
        self._say = say
        self._signals = 0
        self._guard = ExitGuard(lambda: runtime.abandon(loop))
        self._draining: asyncio.Task[None] | None = None

    def watch_signals(self) -> None:
        """Handle SIGINT and SIGTERM from now on. Call this in the main thread."""
        for number in SIGNALS:
            signal.signal(number, self._on_signal)
        MainThreadInterrupter().start()
        self._guard.start()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        """Start or shorten the drain. Python calls this between any two instructions of the main thread, so it must not
        acquire a lock.
        """
        self._signals += 1
        if self._signals == 1:
            self._guard.limit(app_settings.DRAIN_GRACE + ABANDON_AFTER)
        elif self._signals == 2:
            self._guard.limit(HURRY_BOUND)
        else:
            os._exit(EXIT_UNCLEAN)
        with suppress(RuntimeError):  # the loop is closed, so the process is about to end
            self._loop.call_soon_threadsafe(self._drain_on_signal, self._signals)

    def _drain_on_signal(self, signals: int) -> None:
        if self._draining is None:
            self._draining = self._loop.create_task(self._drain(), name="drain of the process")
        if signals > 1:
            self._say("Cancelling what still runs.")
            runtime.cut_grace()

    async def _drain(self) -> None:
        live = runtime.live_count()
        if live and self._signals == 1:
            self._say(
                f"Waiting up to {app_settings.DRAIN_GRACE:g} s for {live} running turn(s). "
                "Ctrl-C again cancels them."
            )
        try:
            await runtime.stop(for_good=True)
        except Exception:
            logger.exception("The turn supervisor could not be drained")
            self.exit_code = 1
        for goodbye in _goodbyes:
            try:
                async with asyncio.timeout(GOODBYE_BOUND):
                    await goodbye()
            except Exception:
                logger.exception("A goodbye failed")
        self._guard.limit(LAST_BOUND)
        self._leave()


class MainThreadInterrupter(threading.Thread):
    """Interrupts the main thread after each signal, so that blocking calls do not delay the handler.

    Python runs signal handlers between two instructions or when a signal interrupts a call. A signal that arrives just
    before a blocking call would otherwise be handled only after it.
    """

    def __init__(self) -> None:
        super().__init__(name="main-thread-interrupter", daemon=True)
        self._reader, self._writer = socket.socketpair()
        self._writer.settimeout(0)  # Python writes to it at any point, so it must not block
        self._next = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        signal.signal(INTERRUPT_SIGNAL, lambda *_: None)

    def run(self) -> None:
        main = threading.main_thread().ident
        while numbers := self._reader.recv(64):
            if self._next >= 0:  # keep notifying the previous reader
                with suppress(OSError):
                    os.write(self._next, numbers)
            if main is None or not any(number in SIGNALS for number in numbers):
                continue
            for _ in range(INTERRUPTS):
                time.sleep(INTERRUPT_INTERVAL)
                signal.pthread_kill(main, INTERRUPT_SIGNAL)


class ExitGuard(threading.Thread):
    """Exits the process when a deadline has passed.

    Before that, `abandon` records the unfinished turns in another thread.
    """

    def __init__(self, abandon: Callable[[], None]) -> None:
        super().__init__(name="exit guard", daemon=True)
        self._abandon = abandon
        self._limits: SimpleQueue[float] = SimpleQueue()

    def limit(self, seconds: float) -> None:
        """Set the deadline unless an earlier one is set. Safe in a signal handler."""
        self._limits.put(time.monotonic() + seconds)

    def run(self) -> None:
        """Wait for the deadline, then exit the process."""
        deadline = self._limits.get()
        while (seconds := deadline - time.monotonic()) > 0:
            with suppress(Empty):
                deadline = min(deadline, self._limits.get(timeout=seconds))
        # A separate thread, because the last writes may wait for a lock that the hanging thread holds.
        last = threading.Thread(target=self._leave_behind, name="last words", daemon=True)
        with suppress(RuntimeError):
            last.start()
            last.join(WRITE_BOUND)
        os._exit(EXIT_UNCLEAN)

    def _leave_behind(self) -> None:
        logger.error("The process did not go down in time and is ended")
        self._abandon()


def drain_before(loop: asyncio.AbstractEventLoop) -> Drain | None:
    """Drain before this process's server handles the signal, so that it keeps serving requests during the drain.

    This works for servers whose signal handlers are Python functions, such as Daphne and uvicorn. Return None for other
    servers, or if a drain is already installed.
    """
    before = {number: signal.getsignal(number) for number in SIGNALS}
    if threading.current_thread() is not threading.main_thread():
        return None
    theirs = before[signal.SIGTERM]
    if not callable(theirs) or getattr(theirs, "__name__", "") == "_sighandler_noop":
        return None  # asyncio's own handler, which the loop calls
    if isinstance(getattr(theirs, "__self__", None), Drain):
        return None
    server: SignalFunction = theirs

    def leave() -> None:
        server(signal.SIGTERM, None)

    drain = Drain(loop, leave=leave)
    drain.watch_signals()
    return drain
