"""Dispatchers notify a process that a turn is queued.

The turn's row is authoritative. A notification may arrive twice or get lost, so processes with free slots also poll the
queue.
"""

import asyncio
from collections.abc import Callable
from functools import cache, partial
from typing import Protocol
from uuid import UUID

from django.utils.module_loading import import_string

from governance.db import on_commit
from governance.per_loop import PerLoop
from turns.conf import app_settings

Wake = Callable[[UUID], None]
"""Notifies the supervisor of this process that a conversation has a queued turn. Repeated calls have no further effect.

The scheduler decides which turn starts.
"""

EMBEDDED = "embedded"
RUNNERS = "runners"
_PATHS = {
    EMBEDDED: "turns.queueing.dispatchers.EmbeddedDispatcher",
    RUNNERS: "turns.queueing.notifications.NotifyDispatcher",
}


class Dispatcher(Protocol):
    """Notifies processes of queued turns. `is_embedded` is true if the processes that serve users also run turns."""

    is_embedded: bool

    def dispatch(self, conversation_id: UUID, turn_id: UUID) -> None:
        """Notify a process after the current transaction is committed.

        Send nothing if the transaction is rolled back. A failure must not affect the transaction.
        """

    async def listen(self, wake: Wake, *, name: str) -> None:
        """Call `wake` for each turn dispatched to the runner `name`, until cancelled."""


class EmbeddedDispatcher:
    """Wakes the supervisor of this process, which both serves users and runs turns."""

    is_embedded = True

    def dispatch(self, conversation_id: UUID, turn_id: UUID) -> None:
        on_commit(partial(_wake_here, conversation_id), robust=True)

    async def listen(self, wake: Wake, *, name: str) -> None:
        """Wait forever, because no other process sends notifications."""
        await asyncio.Event().wait()


def get_dispatcher() -> Dispatcher:
    return _make(app_settings.DISPATCHER)


def path_of(name: str) -> str:
    return _PATHS.get(name, name)


_wakes: PerLoop[Wake] = PerLoop()


def attach(wake: Wake) -> None:
    """Make the embedded dispatcher call `wake` for turns queued on this loop."""
    _wakes.set(wake)


def detach() -> None:
    _wakes.pop()


def _wake_here(conversation_id: UUID) -> None:
    _wakes.call_soon(lambda wake: wake(conversation_id))


@cache
def _make(name: str) -> Dispatcher:
    dispatcher: Dispatcher = import_string(path_of(name))()
    return dispatcher
