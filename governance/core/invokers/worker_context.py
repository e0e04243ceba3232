"""What a tool in a worker process knows of its call: the same context as elsewhere, fed over the connection."""

import _thread
import math
import signal
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from governance.core.calls import Progress
from governance.core.cancel_reasons import CancelReason
from governance.core.cancellation import Callback, Cancellation, CancellationToken
from governance.core.excerpts import shortened
from governance.core.tools import ToolContext

Send = Callable[[dict[str, Any]], None]

_REPORTS_PER_SECOND = 20.0
_BURST = 10.0
_LONGEST_OUTPUT = 64_000  # characters in one report
_LONGEST_MESSAGE = 2_000


class WorkerToken(CancellationToken):
    """The token of a call in a worker, cancelled by SIGTERM.

    A tool that looks at it, in any way, is cooperative: it gets the grace to finish. One that never looks ends
    on the spot.
    """

    __slots__ = ("is_watched",)

    def __init__(self) -> None:
        super().__init__()
        self.is_watched = False

    @property
    def cancellation(self) -> Cancellation | None:
        """The request; only the server knows its reason."""
        self.is_watched = True
        return super().cancellation

    @property
    def is_cancelled(self) -> bool:
        self.is_watched = True
        return super().is_cancelled

    def raise_if_cancelled(self) -> None:
        self.is_watched = True
        super().raise_if_cancelled()

    def on_cancel(self, callback: Callback) -> Callable[[], None]:
        """Call `callback` at the request, in a thread of its own."""
        self.is_watched = True
        return super().on_cancel(callback)

    def request(self) -> None:
        """Note the SIGTERM: in another thread, as the interrupted one may hold the token's lock."""
        cancellation = Cancellation(reason=CancelReason.PARENT, note="SIGTERM")
        _thread.start_new_thread(self.cancel, (cancellation,))


def make_context(
    call_id: str,
    facts: Mapping[str, Any],
    *,
    token: WorkerToken,
    reports: "Reports",
    show: Callable[[bytes, str], str],
) -> ToolContext:
    """Return the context of a call; `facts` are what the invoker sent."""
    workspace = facts.get("workspace")
    return ToolContext(
        call_id=call_id,
        tool_name=facts.get("tool_name", ""),
        scope=facts.get("scope", ""),
        token=token,
        report=reports.add,
        workspace=Path(workspace) if workspace else None,
        metadata=facts.get("metadata", {}),
        show_blocking=show,
    )


class Reports:
    """Progress on its way out: as many reports a second as a watcher can use.

    What comes faster is put together: the newest message wins, no output is lost.
    """

    def __init__(self, send: Send, *, max_output: int) -> None:
        self._send = send
        self._lock = threading.Lock()
        self._pending: dict[str, Any] = {}
        self._output: list[str] = []
        self._held = 0
        self._output_left = max_output
        self._tokens = _BURST
        self._counted_at = time.monotonic()
        self._timer: threading.Timer | None = None
        self._is_due = False
        self._is_closed = False

    def add(self, report: Progress) -> None:
        """Send the report, now or soon; safe from any thread."""
        with self._lock:
            if self._is_closed:
                return
            self._note(report)
            if self._held >= _LONGEST_OUTPUT or self._take_token():
                self._flush()
            elif self._timer is None:
                self._start_timer()

    def close(self) -> None:
        """Send pending reports; later ones, from threads left behind, are dropped."""
        with self._lock:
            self._is_closed = True
            self._flush()

    def _note(self, report: Progress) -> None:
        if report.message:
            self._pending["message"] = shortened(str(report.message), limit=_LONGEST_MESSAGE)
        for name, number in (("progress", report.progress), ("total", report.total)):
            if number is not None and math.isfinite(number):
                self._pending[name] = float(number)
        output = str(report.output or "")[: self._output_left]
        self._output_left -= len(output)
        self._output.append(output)
        self._held += len(output)
        self._is_due = True

    def _take_token(self) -> bool:
        now = time.monotonic()
        self._tokens = min(_BURST, self._tokens + (now - self._counted_at) * _REPORTS_PER_SECOND)
        self._counted_at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def _start_timer(self) -> None:
        self._timer = threading.Timer(1 / _REPORTS_PER_SECOND, self._flush_late)
        self._timer.daemon = True
        # A SIGTERM that this thread took would not wake the main thread out of a sleep or a read.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            self._timer.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def _flush_late(self) -> None:
        with self._lock:
            self._flush()

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._is_due:
            return
        pending, output = self._pending, "".join(self._output)
        self._pending, self._output, self._held, self._is_due = {}, [], 0, False
        while len(output) > _LONGEST_OUTPUT:
            self._send({"output": output[:_LONGEST_OUTPUT]})
            output = output[_LONGEST_OUTPUT:]
        self._send({**pending, "output": output})
