"""The progress that a running tool reports: signs of life, its share of work, its output (T6, V1)."""

from asyncio.events import _get_running_loop

from governance.core.call_limits import CallLimits
from governance.core.calls import Progress
from governance.core.endings import Ending
from governance.core.excerpts import Excerpt
from governance.core.promises import Promise

OUTPUT_HEAD = 4_000
OUTPUT_TAIL = 12_000


class CallProgress:
    """The progress of one call; its observer gets `last` and `has_pending_progress`, and got them at `last_notified_at`."""

    __slots__ = (
        "_ending",
        "_is_closed",
        "_limits",
        "_output",
        "has_pending_progress",
        "last",
        "last_notified_at",
    )

    def __init__(self, limits: CallLimits, ending: Promise[Ending]) -> None:
        self.last: Progress | None = None
        self.has_pending_progress = False
        self.last_notified_at = 0.0
        self._limits = limits
        self._ending = ending
        self._output: Excerpt | None = None
        self._is_closed = False

    @property
    def output(self) -> str:
        """The output so far, without its middle if it is long."""
        return "" if self._output is None else str(self._output)

    def close(self) -> None:
        """Take nothing more: the call has its outcome."""
        self._is_closed = True

    def report(self, progress: Progress) -> None:
        """Take a sign of life from the tool, from any thread."""
        loop = self._ending.get_loop()
        if _get_running_loop() is not loop:
            loop.call_soon_threadsafe(self.report, progress)
            return
        deadline = self._limits.deadline
        if deadline is None or self._is_closed:
            return
        if progress.output:
            self._output = self._output or Excerpt(head=OUTPUT_HEAD, tail=OUTPUT_TAIL)
            self._output.add(progress.output)
        if not self._ending.done():
            deadline.touch()
            self.last = progress
            self.has_pending_progress = True
