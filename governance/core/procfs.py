"""Reads Linux's process table; without /proc the table is empty.

It never waits and needs no asyncio: worker processes use it too.
"""

import os
import signal
from pathlib import Path

_PROC = Path("/proc")
AVAILABLE = (_PROC / "self" / "stat").exists()

# Fields of /proc/<pid>/stat behind the command name, which may itself hold spaces and brackets (man 5 proc).
_STATE, _GROUP, _THREADS, _MEMORY = 0, 2, 17, 20
_ENVIRONMENT = slice(47, 49)  # where it begins and ends
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


def kill_tagged(pid: int, *, tag: str) -> bool | None:
    """Send SIGKILL to a process that was started with the environment entry `tag` ("NAME=value"). Return whether it was.

    None if that is not known yet. While `execve` makes the process its memory, it has no environment, though its parent
    goes on already. A pidfd keeps the pid from being reused meanwhile.
    """
    try:
        handle = os.pidfd_open(pid)
    except (AttributeError, OSError):
        return False
    try:
        environment = (_PROC / str(pid) / "environ").read_bytes()
        if not environment:
            return None if _is_starting(pid) else False
        if pid == os.getpid() or tag.encode() not in environment.split(b"\0") or _is_dead(pid):
            return False
        signal.pidfd_send_signal(handle, signal.SIGKILL)
    except OSError:  # gone, or another user's
        return False
    else:
        return True
    finally:
        os.close(handle)


def kill_all_tagged(tag: str) -> int:
    """Send SIGKILL once to every process with `tag`. Return their number."""
    return sum(bool(kill_tagged(pid, tag=tag)) for pid in pids())


def resident_bytes() -> int:
    """Return the memory of this process; 0 where the system does not say.

    `ru_maxrss` would count what the parent held when it started us.
    """
    try:
        pages = (_PROC / "self" / "statm").read_bytes().split()[1]
    except OSError:
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def _is_starting(pid: int) -> bool:
    """Whether a process that had no environment may have one by now, or get it. Dead ones and the kernel's have no memory."""
    fields = _stat(pid)
    if fields is None or fields[_MEMORY] == b"0":
        return False
    begin, end = fields[_ENVIRONMENT]
    return begin != end or end == b"0"


def _is_dead(pid: int) -> bool:
    fields = _stat(pid)
    return fields is None or (fields[_STATE] in _DEAD and int(fields[_THREADS]) <= 1)


def _stat(pid: int) -> list[bytes] | None:
    try:
        line = (_PROC / str(pid) / "stat").read_bytes()
    except OSError:
        return None
    return line.rpartition(b")")[2].split()
