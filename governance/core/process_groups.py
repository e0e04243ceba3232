"""End a child together with everything it started: SIGTERM to its group, a grace, SIGKILL (T8).

Shared by the worker processes and by the tools that run commands. Nothing here blocks the event loop.
"""

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from typing import Any, TypeVar

from governance.core import procfs

R = TypeVar("R")
Child = int | subprocess.Popen[Any] | asyncio.subprocess.Process

_FIRST_POLL = 0.0005
_SLOWEST_POLL = 0.02
_EXIT_POLL = 0.05
_SCAN_SLICE = 64
_SWEEP_PAUSES = (0.0005, 0.002, 0.01, 0.05, 0.2)  # seconds after each sweep that found something


class GroupEnding(StrEnum):
    """How a process group ended."""

    ALREADY_GONE = "already_gone"
    TERMINATED = "terminated"  # by SIGTERM, within the grace
    KILLED = "killed"
    SURVIVED = (
        "survived"  # still there after SIGKILL: it hangs in the kernel, or belongs to another user
    )
    NOT_OURS = "not_ours"  # the child leads no group of its own: nothing was signalled


async def terminate_group(
    child: Child, *, grace: float, sweep_tag: str | None = None, proof_timeout: float = 1.0
) -> GroupEnding:
    """End the process group that `child` leads, and wait until no member runs any more.

    The child must have been started as the leader of its group (`start_new_session=True`). `sweep_tag` is an
    environment entry ("NAME=value"): processes that left the group but carry it are ended too (Linux). Leave it
    out where a process may be put in the background on purpose. `proof_timeout` bounds the wait after SIGKILL.
    A cancellation of this coroutine cuts the grace short: SIGKILL goes out before it is passed on.
    """
    group = _Group(child)
    if not group.is_ours:
        return GroupEnding.NOT_OURS
    try:
        ending = await group.terminate(grace=grace, proof_timeout=proof_timeout)
        if sweep_tag is not None and await kill_tagged_processes(sweep_tag):
            return GroupEnding.KILLED if ending is not GroupEnding.SURVIVED else ending
    except asyncio.CancelledError:
        group.signal(signal.SIGKILL)
        if sweep_tag is not None:
            procfs.kill_all_tagged(sweep_tag)
        raise
    return ending


async def kill_tagged_processes(tag: str) -> int:
    """Send SIGKILL to every process started with the environment entry `tag`. Return their number.

    It looks a few times, as one of them may fork or be started meanwhile.
    """
    total = 0
    for pause in _SWEEP_PAUSES:
        seen = await _look(lambda pid: procfs.kill_tagged(pid, tag=tag))
        answers = [answer for _, answer in seen]
        total += answers.count(True)
        if answers.count(False) == len(answers):
            break
        await asyncio.sleep(pause)
    return total


async def wait_for_exit(process: subprocess.Popen[Any]) -> int:
    """Wait for the end of the process, reap it, and return its exit status; needs no child watcher."""
    try:
        handle = os.pidfd_open(process.pid)
    except (AttributeError, OSError):  # not Linux, an old kernel, or reaped already
        return await _poll_exit(process)
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(handle, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(handle)
        os.close(handle)
    return await _poll_exit(process)


async def _poll_exit(process: subprocess.Popen[Any]) -> int:
    while (status := process.poll()) is None:  # noqa: ASYNC110 - nothing tells us
        await asyncio.sleep(_EXIT_POLL)
    return status


async def _select(wanted: Callable[[int], bool]) -> list[int]:
    """Return the wanted pids of the process table."""
    return [pid for pid, is_wanted in await _look(wanted) if is_wanted]


async def _look(at: Callable[[int], R]) -> list[tuple[int, R]]:
    """Return what is seen at each pid of the process table, letting the loop breathe in between."""
    seen = []
    for position, pid in enumerate(procfs.pids(), start=1):
        seen.append((pid, at(pid)))
        if position % _SCAN_SLICE == 0:
            await asyncio.sleep(0)
    return seen


class _Group:
    """The process group of one child, while it is being ended."""

    def __init__(self, child: Child) -> None:
        self._child = child
        self._id = child if isinstance(child, int) else child.pid
        self._members: list[int] = []

    @property
    def is_ours(self) -> bool:
        """Whether the child leads a group other than ours.

        `killpg` with 0 would signal our own group, with 1 every process.
        """
        if self._id <= 1 or self._id == os.getpgrp():
            return False
        try:
            return os.getpgid(self._id) == self._id
        except (
            ProcessLookupError
        ):  # reaped; its group may still have members, which keep the number taken
            return True

    async def terminate(self, *, grace: float, proof_timeout: float) -> GroupEnding:
        """Send SIGTERM, wait for the grace, then send SIGKILL if needed."""
        if not await self._runs():
            return GroupEnding.ALREADY_GONE
        self.signal(signal.SIGTERM)
        self.signal(signal.SIGCONT)  # a stopped process handles SIGTERM only after SIGCONT
        if await self._has_ended(within=grace):
            return GroupEnding.TERMINATED
        self.signal(signal.SIGKILL)
        return (
            GroupEnding.KILLED
            if await self._has_ended(within=proof_timeout)
            else GroupEnding.SURVIVED
        )

    def signal(self, number: signal.Signals) -> None:
        """Signal every member that we may."""
        if self.is_ours:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._id, number)

    async def _has_ended(self, *, within: float) -> bool:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + within
        pause = _FIRST_POLL
        while await self._runs():
            left = deadline - loop.time()
            if left <= 0:
                return False
            await asyncio.sleep(min(pause, left))
            pause = min(pause * 2, _SLOWEST_POLL)
        return True

    async def _runs(self) -> bool:
        """Whether any member runs. Zombies keep a group in being, so its mere existence says little."""
        leader_ended = self._reap()
        if isinstance(self._child, subprocess.Popen) and not leader_ended:
            return True
        try:
            os.killpg(self._id, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass
        if not procfs.AVAILABLE:
            return True
        if not any(self._has(pid) for pid in self._members):
            self._members = await _select(self._has)
        return bool(self._members)

    def _has(self, pid: int) -> bool:
        return procfs.is_member(pid, group=self._id)

    def _reap(self) -> bool:
        """Collect the leader, then orphans of its group that were handed to us (as PID 1 of a container is)."""
        if isinstance(self._child, int):
            return False
        ended = (
            self._child.poll()
            if isinstance(self._child, subprocess.Popen)
            else self._child.returncode
        )
        if ended is None:
            return False
        with suppress(ChildProcessError):
            while os.waitpid(-self._id, os.WNOHANG)[0]:
                pass
        return True
