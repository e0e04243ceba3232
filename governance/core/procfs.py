"""Reads Linux's process table; without /proc the table is empty.

It never waits and needs no asyncio: worker processes use it too.
"""

import os
import signal
from contextlib import suppress
from pathlib import Path

_PROC = Path("/proc")
AVAILABLE = (_PROC / "self" / "stat").exists()

# Fields of /proc/<pid>/stat behind the command name, which may itself hold spaces and brackets (man 5 proc).
_STATE, _GROUP, _THREADS = 0, 2, 17
_DEAD = (b"Z", b"X")


def pids() -> list[int]:
    if not AVAILABLE:
        return []
    return [int(name) for name in os.listdir(_PROC) if name.isdecimal()]


def is_member(pid: int, *, group: int) -> bool:
    """Whether `pid` runs, and in this process group.

    A zombie does not run, unless it is a first thread that has ended before the others.
    """
    fields = _stat(pid)
    if fields is None or int(fields[_GROUP]) != group:
        return False
    return fields[_STATE] not in _DEAD or int(fields[_THREADS]) > 1


def is_tagged(pid: int, *, tag: str) -> bool:
    """Whether `pid` was started with the environment entry `tag` ("NAME=value")."""
    if pid == os.getpid():
        return False
    try:
        environment = (_PROC / str(pid) / "environ").read_bytes()
    except OSError:  # gone, or another user's
        return False
    return tag.encode() in environment.split(b"\0")


def kill_tagged(pid: int, *, tag: str) -> bool:
    """Send SIGKILL to `pid` if it has `tag`; a pidfd keeps the pid from being reused meanwhile."""
    try:
        handle = os.pidfd_open(pid)
    except (AttributeError, OSError):
        return False
    try:
        if not is_tagged(pid, tag=tag) or _is_dead(pid):
            return False
        with suppress(OSError):
            signal.pidfd_send_signal(handle, signal.SIGKILL)
            return True
        return False
    finally:
        os.close(handle)


def kill_all_tagged(tag: str) -> int:
    """Send SIGKILL once to every process with `tag`. Return their number."""
    return sum(kill_tagged(pid, tag=tag) for pid in pids())


def resident_bytes() -> int:
    """Return the memory of this process; 0 where the system does not say.

    `ru_maxrss` would count what the parent held when it started us.
    """
    try:
        pages = (_PROC / "self" / "statm").read_bytes().split()[1]
    except OSError:
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def _is_dead(pid: int) -> bool:
    fields = _stat(pid)
    return fields is None or (fields[_STATE] in _DEAD and int(fields[_THREADS]) <= 1)


def _stat(pid: int) -> list[bytes] | None:
    try:
        line = (_PROC / str(pid) / "stat").read_bytes()
    except OSError:
        return None
    return line.rpartition(b")")[2].split()
