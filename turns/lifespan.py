"""Starts the turn supervisor with its server and drains it at the end, through the ASGI lifespan.

A server that waits for its connections before the end of the lifespan would answer no requests during the drain. Where
possible, a signal therefore drains first and reaches the server afterwards. Daphne sends no lifespan, so its reactor
starts the turns.
"""

import asyncio
import importlib
import logging
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from governance.threads import run_in_thread
from turns.running import draining, runtime
from turns.storage import database_state

logger = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_starting: set[asyncio.Task[str]] = set()  # the event loop keeps only weak references to tasks


class LifespanApplication:
    """The ASGI application for `lifespan`. Under Daphne, it starts the turns as soon as the server runs."""

    def __init__(self) -> None:
        if (
            "daphne.server" in sys.modules
        ):  # Daphne imports the application before it runs its reactor
            # Importing it under another server would install a reactor.
            reactor: Any = importlib.import_module("twisted.internet.reactor")
            reactor.callLater(0, _start_under_daphne)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await self._answer(send, "startup", _start())
            elif message["type"] == "lifespan.shutdown":
                await self._answer(send, "shutdown", runtime.stop())
                return

    async def _answer(self, send: Send, phase: str, action: Awaitable[object]) -> None:
        if problem := await _problem_of(action, what=f"The {phase} of the turn supervisor"):
            await send({"type": f"lifespan.{phase}.failed", "message": problem})
        else:
            await send({"type": f"lifespan.{phase}.complete"})


class _Unusable(Exception):
    """The database cannot be used; the text explains why."""


def _start_under_daphne() -> None:
    starting = _problem_of(_start(), what="The startup of the turn supervisor")
    task = asyncio.get_running_loop().create_task(starting, name="start of the turns")
    _starting.add(task)
    task.add_done_callback(_starting.discard)


async def _problem_of(action: Awaitable[object], *, what: str) -> str:
    """Await an action. If it fails, log the reason and return it for the server; return an empty string if it succeeds."""
    try:
        await action
    except _Unusable as problem:
        logger.error("%s", problem)  # noqa: TRY400 - the message replaces the traceback
        return str(problem)
    except Exception:
        logger.exception("%s failed", what)
        return "see the log"
    return ""


async def _start() -> None:
    if problem := await run_in_thread(database_state.problem):
        raise _Unusable(problem)
    draining.drain_before(asyncio.get_running_loop())
    await runtime.ensure_started()
