"""The `exec` tool: one shell command in the conversation's workspace, ended with its whole process group (G1, C4).

The command runs with the rights of the server's user: the scrubbed environment and the working directory keep
accidents away, they are no sandbox. That is why the tool is off unless a setting switches it on.
"""

import asyncio
import logging
import os
import signal
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from governance.core.exceptions import ToolFailed
from governance.core.processes import Ending, end_group, exited
from governance.core.tools import Concurrency, Tool, ToolContext, make_tool
from governance.toolbox.output import Output
from governance.toolbox.settings import SettingsSource, ToolboxSettings
from governance.toolbox.workspace import explained, find_workspace

logger = logging.getLogger(__name__)

_SHELLS = ("/bin/bash", "/bin/sh")
_SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def make_exec(settings: SettingsSource) -> Tool:
    """Return the tool. It governs itself: its own `timeout_ms` is its limit (T3)."""
    return make_tool(
        Shell(settings).exec,
        timeout=0,
        timeout_argument="timeout_ms",
        concurrency=Concurrency.EXCLUSIVE,
        side_effects=True,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """All that is needed to start a command."""

    arguments: tuple[str, ...]
    directory: Path
    environment: dict[str, str]


class Shell:
    """Runs commands as the settings of the moment allow."""

    def __init__(self, settings: SettingsSource) -> None:
        self._settings = settings

    async def exec(
        self,
        context: ToolContext,
        command: Annotated[str, Field(min_length=1, description="Run by the shell.")],
        timeout_ms: Annotated[
            int, Field(ge=0, description="Limit in ms; 0 asks for the longest.")
        ] = 120_000,
        directory: Annotated[
            str, Field(description="Where to run it, inside the workspace.")
        ] = ".",
    ) -> str:
        """Run a shell command in the workspace and return what it printed (stdout and stderr together).

        Input is empty. A command that is still running at its limit is ended with everything it started;
        put a long-lived server in the background with `setsid … >log 2>&1 &`.
        """
        # `timeout_ms` is obeyed by the executor, as the limit may change while the command runs (T9).
        settings = self._settings()
        if not settings.exec_enabled:
            raise ToolFailed(
                "Running commands is switched off on this server. An administrator can switch it on: "
                "GOVERNANCE_EXEC_ENABLED. It then runs with the rights of the server's user."
            )
        # In a thread, as it looks at the disk.
        launch = await asyncio.to_thread(
            _prepare, context, settings=settings, command=command, directory=directory
        )
        output = Output(
            context, limit=settings.exec_output_limit, interval=settings.exec_report_interval
        )
        status = await _run(launch, output, context=context, settings=settings)
        return _result(status, output.text)


def _prepare(
    context: ToolContext, *, settings: ToolboxSettings, command: str, directory: str
) -> Launch:
    workspace = find_workspace(context, settings)
    parts = workspace.locate(directory)
    with explained(directory), workspace.open_directory(parts):
        pass
    shell = next((shell for shell in _SHELLS if os.access(shell, os.X_OK)), _SHELLS[-1])
    return Launch(
        arguments=(shell, "-c", command),
        directory=workspace.root.joinpath(*parts),
        environment=_scrub(settings.exec_environment, home=workspace.root),
    )


def _scrub(passed: tuple[str, ...], *, home: Path) -> dict[str, str]:
    """Return the command's environment: nothing of the server's but what was named."""
    return {
        "PATH": _SEARCH_PATH,
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "TMPDIR": "/tmp",  # noqa: S108 - only named; the command makes its own files there
    } | {name: os.environ[name] for name in passed if name in os.environ}


async def _run(
    launch: Launch, output: Output, *, context: ToolContext, settings: ToolboxSettings
) -> int:
    """Run the command to its end and return its exit status; when cancelled, end its process group first."""
    process = await _start(launch, output)
    try:
        status = await exited(process)
        # A child in the background may hold the pipe for ever, so its end is not waited for.
        await output.drain(within=settings.exec_drain)
    except asyncio.CancelledError:
        output.flush()
        await _end(process, context=context, grace=settings.kill_grace)
        await output.drain(within=settings.exec_drain)
        raise
    finally:
        output.detach()
    return status


async def _end(process: subprocess.Popen[bytes], *, context: ToolContext, grace: float) -> None:
    try:
        ending = await end_group(process, grace=grace)
    except asyncio.CancelledError:  # once more: SIGKILL is out already, the process is left to reap
        with suppress(TimeoutError):
            async with asyncio.timeout(grace):
                await exited(process)
        raise
    if ending in {Ending.SURVIVED, Ending.NOT_OURS}:
        facts = {"call_id": context.call_id, "ending": ending}
        logger.warning("A command outlived its call", extra=facts)


async def _start(launch: Launch, output: Output) -> subprocess.Popen[bytes]:
    writable = await output.open()
    try:
        return subprocess.Popen(  # noqa: ASYNC220, S603 - takes a millisecond; running commands is the purpose
            launch.arguments,
            stdin=subprocess.DEVNULL,
            stdout=writable,
            stderr=subprocess.STDOUT,
            cwd=launch.directory,
            env=launch.environment,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        output.close()
        reason = getattr(error, "strerror", None) or "it holds a character that is not allowed"
        raise ToolFailed(f"The command could not be started: {reason}.") from error
    finally:
        os.close(writable)


def _result(status: int, text: str) -> str:
    if status == 0:
        return text or "The command ended well and printed nothing."
    how = f"with exit code {status}" if status > 0 else f"by the signal {_name_signal(-status)}"
    raise ToolFailed(f"The command ended {how}.\n{text}".rstrip())


def _name_signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return str(number)
