"""Ends a child process and everything it started: SIGTERM to its group, a grace period, then SIGKILL (T8).

Worker processes and the tools that run commands share this module. Nothing in it blocks the event loop.
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
_SWEEP_PAUSES = (0.0005, 0.002, 0.01, 0.05, 0.2)  # seconds after each scan that found a process


class GroupEnding(StrEnum):
    """The way in which a process group ended."""

    ALREADY_GONE = "already_gone"
    TERMINATED = "terminated"  # by SIGTERM, within the grace period
    KILLED = "killed"
    SURVIVED = (
        "survived"  # still there after SIGKILL: it hangs in the kernel, or belongs to another user
    )
    NOT_OURS = "not_ours"  # the child does not lead a group of its own, so nothing was signalled


async def terminate_group(
    child: Child, *, grace: float, sweep_tag: str | None = None, proof_timeout: float = 1.0
) -> GroupEnding:
    """End the process group that `child` leads, and wait until no member is running. Return how the group ended.

    The child must have been started as the leader of its group (`start_new_session=True`). `sweep_tag` is an
    environment entry ("NAME=value"): processes that left the group but carry it are ended too (Linux). Omit it if a
    process may be put in the background on purpose. `proof_timeout` limits the wait after SIGKILL. Cancelling this
    coroutine ends the grace period: SIGKILL is sent before the cancellation is passed on.
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
    """Send SIGKILL to every process started with the environment entry `tag`. Return how many were killed.

    It scans the processes several times, because new ones may start during a scan.
    """
    total = 0
    for pause in _SWEEP_PAUSES:
        kills = await _look(lambda pid: procfs.kill_tagged(pid, tag=tag))
        answers = [answer for _, answer in kills]
        total += answers.count(True)
        if answers.count(False) == len(answers):
            break
        await asyncio.sleep(pause)
    return total


async def wait_for_exit(process: subprocess.Popen[Any]) -> int:
    """Wait for the end of the process, reap it, and return its exit status. This needs no child watcher."""
    try:
        handle = os.pidfd_open(process.pid)
    except (AttributeError, OSError):  # not Linux, an old kernel, or reaped already
        return await _poll_exit(process)
    loop = asyncio.get_running_loop()
    exit_event = asyncio.Event()
    loop.add_reader(handle, exit_event.set)
    try:
        await exit_event.wait()
    finally:
        loop.remove_reader(handle)
        os.close(handle)
    return await _poll_exit(process)


async def _poll_exit(process: subprocess.Popen[Any]) -> int:
    while (status := process.poll()) is None:  # noqa: ASYNC110 - there is no event to wait for
        await asyncio.sleep(_EXIT_POLL)
    return status


async def _select(condition: Callable[[int], bool]) -> list[int]:
    """Return the pids that satisfy the condition."""
    return [pid for pid, is_wanted in await _look(condition) if is_wanted]


async def _look(at: Callable[[int], R]) -> list[tuple[int, R]]:
    """Return `at(pid)` for each process, yielding to the event loop at intervals."""
    sightings = []
    for position, pid in enumerate(procfs.pids(), start=1):
        sightings.append((pid, at(pid)))
        if position % _SCAN_SLICE == 0:
            await asyncio.sleep(0)
    return sightings


class _Group:
    """A child's process group that is being ended."""

    def __init__(self, child: Child) -> None:
        self._child = child
        self._id = child if isinstance(child, int) else child.pid
        self._members: list[int] = []

    @property
    def is_ours(self) -> bool:
        """Whether the child leads a process group, and it is not the group of this process.

        This protects other processes: `killpg` with 0 would signal the group of this process, and with 1 every process.
        """
        if self._id <= 1 or self._id == os.getpgrp():
            return False
        try:
            return os.getpgid(self._id) == self._id
        except ProcessLookupError:
            # The child was reaped, but its group may still have members, which prevent reuse of its id.
            return True

    async def terminate(self, *, grace: float, proof_timeout: float) -> GroupEnding:
        """Send SIGTERM, wait for the grace period, then send SIGKILL if needed."""
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
        """Signal the members that this process has permission to signal."""
        if self.is_ours:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._id, number)

    async def _has_ended(self, *, within: float) -> bool:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + within
        pause = _FIRST_POLL
        while await self._runs():
            seconds_left = deadline - loop.time()
            if seconds_left <= 0:
                return False
            await asyncio.sleep(min(pause, seconds_left))
            pause = min(pause * 2, _SLOWEST_POLL)
        return True

    async def _runs(self) -> bool:
        """Return whether any member is running. Zombies keep a group alive, so its existence does not prove that."""
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
        """Reap the leader, and then orphans of its group that this process inherited, for example as PID 1."""
        if isinstance(self._child, int):
            return False
        members = (
            self._child.poll()
            if isinstance(self._child, subprocess.Popen)
            else self._child.returncode
        )
        if members is None:
            return False
        with suppress(ChildProcessError):
            while os.waitpid(-self._id, os.WNOHANG)[0]:
                pass
        return True
