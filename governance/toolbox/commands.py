"""Run a program in its own process group, read its output, and end it together with its children (C4)."""

import asyncio
import errno
import logging
import os
import shutil
import signal
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from governance.core.exceptions import ToolFailed
from governance.core.parent_guard import ShellGuard
from governance.core.process_groups import GroupEnding, terminate_group, wait_for_exit
from governance.core.tools import ToolContext
from governance.threads import run_in_thread
from governance.toolbox.cgroups import CommandGroup
from governance.toolbox.output import Output
from governance.toolbox.sandbox import Mode, Sandbox, read_child
from governance.toolbox.settings import ToolboxSettings

logger = logging.getLogger(__name__)

SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_INFO_SIZE = 4096
_TAG = "TURNKEEPER_CALL"
# If a signal ends the program, shells and bubblewrap exit with this plus its number.
_SIGNAL_BASE = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A program to start, with its environment and sandbox. `Sandbox.wrap` explains `identities` and `writes`."""

    arguments: tuple[str, ...]
    directory: Path
    environment: dict[str, str]
    workspace: Path
    sandbox: Sandbox
    identities: Mapping[Path, str]
    group: CommandGroup | None = None
    writes: bool = True


class _Running:
    """A program that has been started.

    In a sandbox, bubblewrap reports the leader of the inner session on the pipe `report`, and `tag` marks all processes
    of the program.
    """

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        *,
        report: int | None,
        tag: str | None,
        guard: ShellGuard | None,
    ) -> None:
        self.process = process
        self.tag = tag
        self._report = report
        self._guard = guard

    def find_inner(self) -> int | None:
        """Return the process id of the session leader in the sandbox, or `None` if it is not (yet) known."""
        if self._report is None:
            return None
        try:
            return read_child(os.read(self._report, _INFO_SIZE))
        except BlockingIOError:
            return None

    def close(self) -> None:
        """Release the guard and the pipe. Background processes continue to run."""
        if self._guard is not None:
            self._guard.cut(spare=True)
            self._guard = None
        if self._report is not None:
            os.close(self._report)
            self._report = None


def scrub(*, home: Path, variables: Sequence[str] = ()) -> dict[str, str]:
    """Return an environment for a program that contains only the named variables of the server, and fixed ones."""
    return {
        "PATH": SEARCH_PATH,
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "TMPDIR": "/tmp",  # noqa: S108 - the server itself creates no files there
    } | {name: os.environ[name] for name in variables if name in os.environ}


async def run(
    launch: Launch, output: Output, *, context: ToolContext, settings: ToolboxSettings
) -> int:
    """Run the program to its end and return its exit status. If cancelled, end its process group before raising."""
    running = await _start(launch, output)
    try:
        status = await wait_for_exit(running.process)
        # A background child may keep the pipe open forever, so wait only briefly for the end of the output.
        await output.drain(within=settings.exec_drain)
    except asyncio.CancelledError:
        output.flush()
        await _end(running, context=context, grace=settings.kill_grace)
        await output.drain(within=settings.exec_drain)
        raise
    finally:
        output.detach()
        running.close()
    return status


def name_ending(status: int, *, sandbox: Sandbox) -> str:
    """Return a phrase that says how a failed program ended."""
    if status < 0:
        return f"by the signal {_name_signal(-status)}"
    words = f"with exit code {status}"
    if sandbox.mode is not Mode.NONE and _SIGNAL_BASE < status < _SIGNAL_BASE + signal.NSIG:
        words += f", as after the signal {_name_signal(status - _SIGNAL_BASE)}"
    return words


async def _end(running: _Running, *, context: ToolContext, grace: float) -> None:
    try:
        inner = running.find_inner()
        if inner is not None:
            # End the inner processes first, because the sandbox would kill them without a grace period.
            await terminate_group(inner, grace=grace)
        # If the sandbox is ended during its setup, it may leave a process behind, which the tag finds.
        ending = await terminate_group(running.process, grace=grace, sweep_tag=running.tag)
    except (
        asyncio.CancelledError
    ):  # a second cancel: SIGKILL has been sent, but the process has not been reaped
        with suppress(TimeoutError):
            async with asyncio.timeout(grace):
                await wait_for_exit(running.process)
        raise
    if ending in {GroupEnding.SURVIVED, GroupEnding.NOT_OURS}:
        facts = {"call_id": context.call_id, "ending": ending}
        logger.warning("A command outlived its call", extra=facts)


async def _start(launch: Launch, output: Output) -> _Running:
    if launch.sandbox.mode is Mode.NONE:
        await run_in_thread(_require, launch)
    writable = await output.open()
    info_reader, info_writer = _open_info(launch.sandbox)
    arguments, environment, tag = _wrapped(launch, info_writer)
    guard = ShellGuard() if launch.sandbox.mode is Mode.NONE else None
    try:
        process = subprocess.Popen(  # noqa: ASYNC220, S603 - starting is quick, and running commands is the purpose
            arguments if guard is None else guard.wrap(arguments),
            stdin=subprocess.DEVNULL if guard is None else guard.input,
            stdout=writable,
            stderr=subprocess.STDOUT,
            cwd=launch.directory,
            env=environment,
            start_new_session=True,
            umask=0o077,
            pass_fds=() if info_writer is None else (info_writer,),
        )
    except (OSError, ValueError) as error:
        output.close()
        if info_reader is not None:
            os.close(info_reader)
        if guard is not None:
            guard.cut(spare=False)
        raise _not_started(error) from error
    finally:
        os.close(writable)
        if info_writer is not None:
            os.close(info_writer)
        if guard is not None:
            guard.started()
    return _Running(process, report=info_reader, tag=tag, guard=guard)


def _wrapped(
    launch: Launch, info_writer: int | None
) -> tuple[tuple[str, ...], Mapping[str, str], str | None]:
    """Return the (sandboxed) command line, its environment, and the tag that marks its processes in a sandbox."""
    arguments = launch.sandbox.wrap(
        launch.arguments,
        workspace=launch.workspace,
        directory=launch.directory,
        identities=launch.identities,
        writes=launch.writes,
    )
    if info_writer is None:
        return arguments, launch.environment, None
    arguments = (arguments[0], "--info-fd", str(info_writer), *arguments[1:])
    if launch.group is not None:
        arguments = launch.group.wrap(arguments)
    tag = uuid.uuid4().hex
    return arguments, {**launch.environment, _TAG: tag}, f"{_TAG}={tag}"


def _not_started(error: OSError | ValueError) -> ToolFailed:
    reason = getattr(error, "strerror", None) or "it holds a character that is not allowed"
    return ToolFailed(f"The command could not be started: {reason}.")


def _require(launch: Launch) -> None:
    """Raise `ToolFailed` if there is no such program, which the guard's shell would report in its own words."""
    if shutil.which(launch.arguments[0], path=launch.environment["PATH"]) is None:
        raise ToolFailed(f"The command could not be started: {os.strerror(errno.ENOENT)}.")


def _open_info(sandbox: Sandbox) -> tuple[int | None, int | None]:
    if sandbox.mode is Mode.NONE:
        return None, None
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    return reader, writer


def _name_signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return str(number)
