"""Dispatchers: how the news of a queued turn reaches a process that runs it.

The row is the truth. A dispatch may come twice, and may get lost, since every process sends it again after a while.
"""

import asyncio
from collections.abc import Callable
from functools import cache, partial
from typing import Protocol
from uuid import UUID

from django.db import transaction
from django.utils.module_loading import import_string

from governance.per_loop import PerLoop
from turns.conf import app_settings

Wake = Callable[[UUID], None]

EMBEDDED = "embedded"
PROCRASTINATE = "procrastinate"
_PATHS = {
    EMBEDDED: "turns.queueing.dispatchers.EmbeddedDispatcher",
    PROCRASTINATE: "turns.queueing.jobs.ProcrastinateDispatcher",
}


class TurnHost(Protocol):
    """Where turns run, as a dispatcher sees it: the supervisor of a runner."""

    def wake(self, conversation_id: UUID) -> None:
        """Tell that a turn of a conversation waits; safe to call once too often. Which one begins is not the caller's to say."""

    async def until_room(self) -> None:
        """Wait until another turn may begin here."""


class Dispatcher(Protocol):
    """Carries the news of queued turns. `is_embedded`: each process that serves people also runs their turns."""

    is_embedded: bool

    def dispatch(self, conversation_id: UUID, turn_id: UUID) -> None:
        """Let some process wake the conversation once the transaction that this is called in is committed.

        Nothing may be sent if it is rolled back, and a failure must not break it.
        """

    async def listen(self, host: TurnHost, *, name: str) -> None:
        """In a runner called `name`: wake conversations as they are dispatched, until this is cancelled."""


class EmbeddedDispatcher:
    """Wakes the supervisor of this process: the one that serves people is the one that runs turns."""

    is_embedded = True

    def dispatch(self, conversation_id: UUID, turn_id: UUID) -> None:
        """Wake the supervisors of this process after the commit."""
        transaction.on_commit(partial(_wake_here, conversation_id), robust=True)

    async def listen(self, host: TurnHost, *, name: str) -> None:
        """Wait for ever: nothing comes from elsewhere."""
        await asyncio.Event().wait()


def get_dispatcher() -> Dispatcher:
    return _make(app_settings.DISPATCHER)


def path_of(name: str) -> str:
    return _PATHS.get(name, name)


_wakes: PerLoop[Wake] = PerLoop()


def attach(wake: Wake) -> None:
    """Let the embedded dispatcher wake whoever runs turns on this loop."""
    _wakes.set(wake)


def detach() -> None:
    _wakes.pop()


def _wake_here(conversation_id: UUID) -> None:
    _wakes.call_soon(lambda wake: wake(conversation_id))


@cache
def _make(name: str) -> Dispatcher:
    made: Dispatcher = import_string(path_of(name))()
    return made
