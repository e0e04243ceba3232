"""Reads Linux's process table; without /proc the table is empty.

It never blocks and needs no asyncio, because worker processes use it too.
"""

import os
import signal
import threading
from pathlib import Path

_PROC = Path("/proc")
AVAILABLE = (_PROC / "self" / "stat").exists()

# Fields of /proc/<pid>/stat after the command name, which may itself contain spaces and brackets (man 5 proc).
_STATE, _PARENT, _GROUP, _THREADS, _MEMORY = 0, 1, 2, 17, 20
_ENVIRONMENT = slice(47, 49)  # where the environment begins and ends
_DEAD = (b"Z", b"X")


def pids() -> list[int]:
    if not AVAILABLE:
        return []
    return [int(name) for name in os.listdir(_PROC) if name.isdecimal()]


def is_member(pid: int, *, group: int) -> bool:
    """Whether `pid` runs in this process group.

    A zombie does not run, unless only its first thread has ended and others are still running.
    """
    fields = _stat(pid)
    if fields is None or int(fields[_GROUP]) != group:
        return False
    return fields[_STATE] not in _DEAD or int(fields[_THREADS]) > 1


def children_of_thread() -> frozenset[int]:
    """Return the processes that this thread has started and that have not been waited for."""
    try:
        pids = (_PROC / "self" / "task" / str(threading.get_native_id()) / "children").read_bytes()
    except OSError:  # not Linux, or a kernel that does not list children
        return frozenset()
    return frozenset(map(int, pids.split()))


def children() -> frozenset[int]:
    """Return the children of this process, including zombies. The process must have only one thread."""
    ours = str(os.getpid()).encode()
    return children_of_thread() or frozenset(
        pid for pid in pids() if (fields := _stat(pid)) is not None and fields[_PARENT] == ours
    )


def is_alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not run."""
    return not _is_dead(pid)


def kill_tagged(pid: int, *, tag: str) -> bool | None:
    """Send SIGKILL to a process that was started with the environment entry `tag` ("NAME=value"). Return whether it was
    killed, or None if its environment is not known yet: during `execve`, the process has no environment, while its
    parent already continues. A pidfd guards against reuse of the pid.
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


def _is_starting(pid: int) -> bool:
    """Whether a process without an environment may still get one. Dead processes and kernel threads have no memory."""
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
