"""The supervisor of this process: one for each event loop, started at its first use or with the server."""

import asyncio
import contextvars
import logging
import time
from dataclasses import dataclass
from uuid import UUID
from weakref import WeakKeyDictionary

from governance import CancellationToken, LiveCall, LoopDetector, registry
from governance.doors import database_door
from governance.runtime import (
    close_executor,
    get_executor,
    prepare_tools,
    refresh_policies,
    workspace_of,
)
from turns import processes, recovery, sinks
from turns.chat_models import close_connections, get_chat_model
from turns.conf import app_settings
from turns.core.chat_model import ToolSpec
from turns.core.ports import ClaimedTurn
from turns.core.runner import Cast, TurnRunner
from turns.core.supervisor import TurnSupervisor
from turns.dispatch import DatabaseStore
from turns.journal import DatabaseJournal
from turns.models import Process

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """What runs turns on one event loop."""

    supervisor: TurnSupervisor
    process: Process


_starting: "WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Task[Runtime]]" = (
    WeakKeyDictionary()
)


async def ensure_started() -> Runtime:
    """Return the runtime of this loop. The first time, end what a dead process left behind, then begin (H4)."""
    loop = asyncio.get_running_loop()
    starting = _starting.get(loop)
    if starting is None or (starting.done() and (starting.cancelled() or starting.exception())):
        # an empty context: what lives as long as the process must not hang on the request that came first
        starting = _starting[loop] = loop.create_task(
            _start(), name="start of the turn supervisor", context=contextvars.Context()
        )
    return await asyncio.shield(starting)


async def wake(conversation_id: UUID) -> None:
    """Let the next queued turn of a conversation begin in this process."""
    (await ensure_started()).supervisor.wake(conversation_id)


async def nudge() -> None:
    """Obey stored cancel requests now, if this loop runs turns; another process reads them within a second (C12)."""
    runtime = _running()
    if runtime is not None:
        await runtime.supervisor.nudge()


async def live_turns() -> int:
    """Return how many turns this loop runs now."""
    runtime = _running()
    return len(tuple(runtime.supervisor.live_turns)) if runtime else 0


async def find_call(turn_id: UUID, tool_id: str) -> LiveCall | None:
    """Return a call that waits or runs in this process."""
    runtime = _running()
    return runtime.supervisor.find_call(turn_id, tool_id) if runtime else None


async def set_deadline(call: LiveCall, timeout: float, *, by: str) -> bool:
    """Move the limit of a running call (T9); False if it does not run any more."""
    return (await get_executor()).set_deadline(call, timeout, by=by)


async def stop(*, grace: float | None = None) -> None:
    """Drain: start nothing more, let live turns end within `grace`, cancel the rest, close every worker process."""
    starting = _starting.get(asyncio.get_running_loop())
    if starting is None:
        return
    runtime = await asyncio.shield(starting)
    await runtime.supervisor.drain(grace=app_settings.DRAIN_GRACE if grace is None else grace)
    await close_executor()
    await close_connections()
    await database_door(processes.retire)(runtime.process)
    _starting.pop(asyncio.get_running_loop(), None)


def _running() -> Runtime | None:
    starting = _starting.get(asyncio.get_running_loop())
    if starting is None or not starting.done() or starting.cancelled() or starting.exception():
        return None
    return starting.result()


async def _start() -> Runtime:
    await get_executor()
    process = await database_door(processes.register)()
    supervisor = TurnSupervisor(
        store=DatabaseStore(process),
        make_runner=_make_runner,
        poll_interval=app_settings.POLL_INTERVAL,
        cancel_bound=app_settings.CANCEL_BOUND,
        also_poll=refresh_policies,
    )
    recovered, waiting = await database_door(recovery.recover)()
    for conversation_id, events in recovered:
        await sinks.publish(conversation_id, events)
    supervisor.start()
    for conversation_id in waiting:
        supervisor.wake(conversation_id)
    return Runtime(supervisor=supervisor, process=process)


async def _make_runner(turn: ClaimedTurn, token: CancellationToken) -> TurnRunner:
    scope = str(turn.conversation_id)
    ends_at = None if turn.turn_timeout is None else time.time() + turn.turn_timeout
    workspace = workspace_of(scope)
    if workspace is not None:
        await asyncio.to_thread(workspace.mkdir, parents=True, exist_ok=True)
    await prepare_tools(token=token)
    cast = Cast(
        chat_model=get_chat_model(app_settings.CHAT_MODEL),
        tools=tuple(
            ToolSpec(name=tool.name, description=tool.description, input_schema=tool.input_schema)
            for tool in registry
        ),
        instructions=app_settings.INSTRUCTIONS,
        workspace=workspace,
        metadata={
            "turn_id": str(turn.id),
            "conversation_id": scope,
            "turn_ends_at": ends_at,
        },
    )
    return TurnRunner(
        turn,
        cast=cast,
        executor=await get_executor(),
        journal=DatabaseJournal(turn, token=token),
        loops=_loop_detector(),
        token=token,
    )


def _loop_detector() -> LoopDetector:
    if app_settings.LOOP_WARN_AFTER is None:
        return LoopDetector.off()
    return LoopDetector(
        window=app_settings.LOOP_WINDOW,
        warn_after=app_settings.LOOP_WARN_AFTER,
        halt_after=app_settings.LOOP_HALT_AFTER,
    )
