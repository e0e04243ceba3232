"""How a process that hosts turns goes down when it is told to. It does so in order if it can, and in time whatever hangs.

The first signal drains: nothing starts, what runs may end for `TURNS_DRAIN_GRACE` seconds, the rest is cancelled as
`shutdown`. The second takes the grace away, the third leaves at once. Signals are taken where Python takes them, not by
the event loop, and a thread keeps the time. So nothing can keep the process: no blocked loop, no coroutine that
swallows its cancellation, no database that hangs.
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

ABANDON_AFTER = 7.0  # seconds beyond the grace, in which what was cancelled has to end
HURRY_BOUND = 8.0  # the same after the second signal; what works needs far less
LAST_BOUND = 5.0  # seconds for the server itself, after everything was drained
WRITE_BOUND = 2.0  # seconds for the last writes of a process that is left by force
GOODBYE_BOUND = 2.0
EXIT_UNCLEAN = 70
SIGNALS = (signal.SIGINT, signal.SIGTERM)
INTERRUPT_SIGNAL = signal.SIGURG  # ignored wherever nobody asks for it
INTERRUPTS = 5
INTERRUPT_INTERVAL = 0.1  # seconds

Goodbye = Callable[[], Awaitable[None]]
SignalFunction = Callable[[int, FrameType | None], Any]

_goodbyes: list[Goodbye] = []


def at_the_end(goodbye: Goodbye) -> None:
    """Await `goodbye` when everything was drained, before the server closes; the same one twice counts once."""
    if goodbye not in _goodbyes:
        _goodbyes.append(goodbye)


class Drain:
    """Takes one process down. `leave` is called on `loop` when everything was drained; `say` gets sentences.

    `exit_code` is what the process should return then.
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
        """Take SIGINT and SIGTERM from now on; to be called in the main thread."""
        for number in SIGNALS:
            signal.signal(number, self._on_signal)
        MainThreadInterrupter().start()
        self._guard.start()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        """Runs between any two steps of the main thread: nothing here may wait for a lock."""
        self._signals += 1
        if self._signals == 1:
            self._guard.limit(app_settings.DRAIN_GRACE + ABANDON_AFTER)
        elif self._signals == 2:
            self._guard.limit(HURRY_BOUND)
        else:
            os._exit(EXIT_UNCLEAN)
        with suppress(RuntimeError):  # the loop is closed: the end is near anyway
            self._loop.call_soon_threadsafe(self._drain_on_signal, self._signals)

    def _drain_on_signal(self, signals: int) -> None:
        if self._draining is None:
            self._draining = self._loop.create_task(self._drain(), name="drain of the process")
        if signals > 1:
            self._say("Cancelling what still runs.")
            runtime.cut_grace()

    async def _drain(self) -> None:
        live = await runtime.live_turns()
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
    """Interrupts the main thread after each signal. So a signal at the start of a blocking call is taken, too.

    Python takes signals between two steps of the main thread, or where they interrupt a call. One that comes in between
    interrupts nothing, and would be taken when the call ends.
    """

    def __init__(self) -> None:
        super().__init__(name="main-thread-interrupter", daemon=True)
        self._reader, self._writer = socket.socketpair()
        self._writer.settimeout(0)  # Python writes to it in the midst of anything
        self._next = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        signal.signal(INTERRUPT_SIGNAL, lambda *_: None)

    def run(self) -> None:
        """Interrupt the main thread a few times after each signal."""
        main = threading.main_thread().ident
        while numbers := self._reader.recv(64):
            if self._next >= 0:  # whoever has listened before goes on hearing of them
                with suppress(OSError):
                    os.write(self._next, numbers)
            if main is None or not any(number in SIGNALS for number in numbers):
                continue
            for _ in range(INTERRUPTS):
                time.sleep(INTERRUPT_INTERVAL)
                signal.pthread_kill(main, INTERRUPT_SIGNAL)


class ExitGuard(threading.Thread):
    """Ends the process when a limit is over. `abandon` writes down, in another thread, what is left behind then."""

    def __init__(self, abandon: Callable[[], None]) -> None:
        super().__init__(name="exit guard", daemon=True)
        self._abandon = abandon
        self._limits: SimpleQueue[float] = SimpleQueue()

    def limit(self, seconds: float) -> None:
        """Leave in so many seconds, unless it was to be sooner. May be called by a signal's function."""
        self._limits.put(time.monotonic() + seconds)

    def run(self) -> None:
        """Keep the time."""
        deadline = self._limits.get()
        while (left := deadline - time.monotonic()) > 0:
            with suppress(Empty):
                deadline = min(deadline, self._limits.get(timeout=left))
        # Whatever is done now is done elsewhere: it may wait for a lock that the thread which hangs holds.
        last = threading.Thread(target=self._leave_behind, name="last words", daemon=True)
        with suppress(RuntimeError):
            last.start()
            last.join(WRITE_BOUND)
        os._exit(EXIT_UNCLEAN)

    def _leave_behind(self) -> None:
        logger.error("The process did not go down in time and is ended")
        self._abandon()


def drain_before(loop: asyncio.AbstractEventLoop) -> Drain | None:
    """Drain before the server of this process hears of a signal: it goes on answering meanwhile.

    For servers that take signals as Python functions, such as uvicorn; None where this one does not.
    """
    before = {number: signal.getsignal(number) for number in SIGNALS}
    if threading.current_thread() is not threading.main_thread():
        return None
    theirs = before[signal.SIGTERM]
    if not callable(theirs) or getattr(theirs, "__name__", "") == "_sighandler_noop":
        return None  # asyncio's own: it is called by the loop
    server: SignalFunction = theirs

    def leave() -> None:
        server(signal.SIGTERM, None)

    drain = Drain(loop, leave=leave)
    drain.watch_signals()
    return drain
