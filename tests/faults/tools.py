"""Tools that misbehave, for the processes under test; found because `tests.faults` is an installed app there."""

import asyncio
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from django.conf import settings

from governance import ToolContext, tool
from tests.faults.files import EFFECTS, LET_GO
from turns.running import draining


def _note(context: ToolContext, key: str) -> None:
    """Have an effect in the world that cannot be taken back: one line."""
    line = f"{key} {context.metadata.get('turn_id', '')} {context.call_id} {os.getpid()}\n"
    descriptor = os.open(Path(settings.VAR_DIR) / EFFECTS, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        os.write(descriptor, line.encode())
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
    await asyncio.sleep(seconds)
    while held and not _is_let_go():  # noqa: ASYNC110 - another process makes the file
        await asyncio.sleep(0.02)
    return f"affected {key}"


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


@tool
async def leave_later(context: ToolContext, kind: str = "KeyboardInterrupt") -> str:
    """Ask the process to end in each kind of callback that a tool can hand to the event loop."""
    error = {"KeyboardInterrupt": KeyboardInterrupt, "SystemExit": SystemExit}[kind]
    loop = asyncio.get_running_loop()

    def exit_at_once(*_: object) -> None:
        raise error

    loop.call_soon(exit_at_once)
    loop.call_later(0.01, exit_at_once)
    await asyncio.to_thread(loop.call_soon_threadsafe, exit_at_once)
    task = asyncio.create_task(asyncio.sleep(0.02))
    task.add_done_callback(exit_at_once)
    await task
    await asyncio.sleep(0.1)
    return "went on"


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
