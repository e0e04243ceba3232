"""A process that only runs turns: it fetches what others have queued, and goes down in an orderly way."""

import asyncio
from collections.abc import Callable

from turns.queueing.dispatchers import get_dispatcher
from turns.running import runtime
from turns.running.draining import Drain

LISTENER_GRACE = 2.0


class RunnerProcess:
    """Runs up to `max_live` turns at once. The first signal drains, the second cancels, the third leaves at once.

    `say` gets sentences for whoever started it.
    """

    def __init__(self, *, max_live: int, name: str, say: Callable[[str], None]) -> None:
        runtime.become_runner(max_live, name=name)
        self._max_live = max_live
        self._name = name
        self._say = say

    async def run(self) -> int:
        """Run turns until a signal comes; return what the process should."""
        drained = asyncio.Event()
        drain = Drain(asyncio.get_running_loop(), leave=drained.set, say=self._say)
        drain.watch_signals()
        running = await runtime.ensure_started()
        listening = asyncio.create_task(
            get_dispatcher().listen(running.supervisor, name=self._name), name="fetching of turns"
        )
        running.on_draining(listening.cancel)
        self._say(f"{self._name} runs up to {self._max_live} turns at once (Ctrl-C to stop)")
        await drained.wait()
        await asyncio.wait({listening}, timeout=LISTENER_GRACE)
        return drain.exit_code
