"""Starts the turn supervisor with the server that hosts it and drains it at its end: the ASGI lifespan.

A server that waits for its connections before it ends the lifespan would answer nobody while turns drain. So where it
can be done, a signal drains first and reaches the server afterwards.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from turns.running import draining, runtime
from turns.storage import database_state

logger = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class LifespanApplication:
    """Answers `lifespan`. Without it, as under `manage.py serve`, the server starts and drains by itself."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await self._answer(send, "startup", _start)
            elif message["type"] == "lifespan.shutdown":
                await self._answer(send, "shutdown", runtime.stop)
                return

    async def _answer(
        self, send: Send, phase: str, action: Callable[[], Awaitable[object]]
    ) -> None:
        try:
            await action()
        except _Unusable as problem:
            logger.error("%s", problem)  # noqa: TRY400 - these words are instead of a traceback
            await send({"type": f"lifespan.{phase}.failed", "message": str(problem)})
        except Exception:
            logger.exception("The %s of the turn supervisor failed", phase)
            await send({"type": f"lifespan.{phase}.failed", "message": "see the log"})
        else:
            await send({"type": f"lifespan.{phase}.complete"})


class _Unusable(Exception):
    """The database cannot be used, in words."""


async def _start() -> None:
    if problem := await asyncio.to_thread(database_state.problem):
        raise _Unusable(problem)
    draining.drain_before(asyncio.get_running_loop())
    await runtime.ensure_started()
