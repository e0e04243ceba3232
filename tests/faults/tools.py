"""Tools that misbehave, for the processes under test; found because `tests.faults` is an installed app there."""

import asyncio
import contextvars
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from asgiref.sync import sync_to_async
from django.conf import settings

from governance import ToolContext, tool
from governance.db import atomic, database_connection
from tests.faults.files import EFFECTS, ENDED, LET_GO
from turns.running import draining


def _note(context: ToolContext, key: str) -> None:
    """Have an effect in the world that cannot be taken back: one line."""
    _append(EFFECTS, f"{key} {context.metadata.get('turn_id', '')} {context.call_id} {os.getpid()}")


def _append(name: str, line: str) -> None:
    descriptor = os.open(Path(settings.VAR_DIR) / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        os.write(descriptor, f"{line}\n".encode())
    finally:
        os.close(descriptor)


def _is_let_go() -> bool:
    return (Path(settings.VAR_DIR) / LET_GO).exists()


def _block_until_let_go() -> None:
    while not _is_let_go():
        time.sleep(0.02)


@tool(side_effects=True, loop_exempt=True)
async def affect(
    context: ToolContext, key: str = "", seconds: float = 0.0, held: bool = False
) -> str:
    """Have an effect, then wait (`held`: until the test lets it go), obeying a cancel."""
    _note(context, key)
    try:
        await asyncio.sleep(seconds)
        while held and not _is_let_go():  # noqa: ASYNC110 - another process makes the file
            await asyncio.sleep(0.02)
    finally:
        _append(ENDED, context.call_id)
    return f"affected {key}"


@tool(side_effects=True, loop_exempt=True)
async def ask_first(context: ToolContext, key: str = "") -> str:
    """Have an effect when the test lets it go, if the turn still belongs to this process then."""
    while not _is_let_go():  # noqa: ASYNC110 - another process makes the file
        await asyncio.sleep(0.02)
    if await context.still_mine():
        _note(context, key)
        return f"affected {key}"
    return "lost"


@tool(isolation="process", side_effects=True, loop_exempt=True)
def ask_first_elsewhere(context: ToolContext, key: str = "") -> str:
    """Do the same in a worker process, which does not stand still with its runner."""
    _block_until_let_go()
    if context.still_mine_blocking():
        _note(context, key)
        return f"affected {key}"
    return "lost"


@tool(side_effects=True, loop_exempt=True)
def ask_first_in_a_thread(context: ToolContext, key: str = "") -> str:
    """Do the same in a thread."""
    return ask_first_elsewhere(context, key)


@tool(loop_exempt=True)
def lock_file(seconds: float) -> str:
    """Hold the write lock of the database, as a tool does that waits in the middle of a transaction."""
    with atomic():
        time.sleep(seconds)
    return "let go"


@tool(loop_exempt=True)
async def ask_database() -> str:
    """Hold a connection of this call for a moment."""
    await sync_to_async(_sleep_in_database)()
    return "asked"


def _sleep_in_database() -> None:
    with database_connection().cursor() as cursor:
        cursor.execute("SELECT pg_sleep(0.05)")


@tool
async def swallow(context: ToolContext, key: str = "", seconds: float = 60.0) -> str:
    """Have an effect, then wait, swallowing every cancel."""
    _note(context, key)
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(left)
    return "never mind the cancel"


@tool
async def block(
    context: ToolContext, key: str = "", seconds: float = 60.0, held: bool = False
) -> str:
    """Have an effect, then block the event loop, `held` until the test lets it go."""
    _note(context, key)
    if held:
        _block_until_let_go()
    else:
        time.sleep(seconds)  # noqa: ASYNC251 - that is the fault
    return "the loop goes on"


@tool
def hang(context: ToolContext, key: str = "", seconds: float = 60.0, held: bool = False) -> str:
    """Have an effect, then block a thread, `held` until the test lets it go."""
    _note(context, key)
    if held:
        _block_until_let_go()
    else:
        time.sleep(seconds)
    return "the thread goes on"


@tool
async def fill_host_threads() -> str:
    """Hang in Django's thread and in every thread of the loop's executor until let go, as code of a host may."""
    loop = asyncio.get_running_loop()

    async def fill() -> None:
        of_loop = [loop.run_in_executor(None, _block_until_let_go) for _ in range(64)]
        await asyncio.gather(sync_to_async(_block_until_let_go)(), *of_loop)

    _filling.append(asyncio.create_task(fill(), context=contextvars.Context()))
    await asyncio.sleep(0.5)
    return "filled"


_filling: list[asyncio.Task[None]] = []


@tool(isolation="process")
def ignore(context: ToolContext, key: str = "", seconds: float = 60.0) -> str:
    """Run in a worker process that ignores SIGTERM."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    context.progress(f"deaf {key}")
    time.sleep(seconds)
    return "the process goes on"


@tool
async def leave(context: ToolContext, kind: str = "KeyboardInterrupt", nested: bool = False) -> str:
    """Ask the process to end: in the call's own coroutine, or in one that it starts."""
    error = {"KeyboardInterrupt": KeyboardInterrupt, "SystemExit": SystemExit}[kind]

    async def exit_at_once() -> None:
        raise error

    await (asyncio.gather(exit_at_once()) if nested else exit_at_once())
    return "never"


@tool(loop_exempt=True)
async def chatter(context: ToolContext, kilobytes: int = 16, times: int = 100) -> str:
    """Report `times` pieces of output of this size, quickly."""
    for number in range(times):
        context.progress(f"{number} " + "x" * (kilobytes * 1024), progress=number, total=times)
        await asyncio.sleep(0.01)
    return "x" * (kilobytes * 1024)


if bound := os.environ.get("FAULTS_EXIT_BOUND"):  # see PATIENT_EXIT
    draining.HURRY_BOUND = draining.LAST_BOUND = float(bound)

if name := os.environ.get("FAULTS_TOOL"):  # a process that has a tool which the others have not

    @tool(name=name, title="Here and nowhere else", timeout=45)
    async def only_here(seconds: float = 60.0) -> str:
        """Wait, obeying a cancel."""
        await asyncio.sleep(seconds)
        return "here"
