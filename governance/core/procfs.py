"""Functions that read the process table of Linux. Without /proc, the table is empty.

They never block, and need no asyncio, because worker processes use them too.
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
    """Return whether `pid` is running and belongs to this process group.

    A zombie is not running, unless only its first thread has ended and other threads are still running.
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
    """Return whether a process is running. A zombie is not running."""
    return not _is_dead(pid)


def kill_tagged(pid: int, *, tag: str) -> bool | None:
    """Send SIGKILL to a process that was started with the environment entry `tag` ("NAME=value").

    Return whether it was killed, or `None` if its environment is not known yet. During `execve`, a process has no
    environment, although its parent already continues. A pidfd protects against reuse of the process id.
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
    except OSError:  # the process has ended, or belongs to another user
        return False
    else:
        return True
    finally:
        os.close(handle)


def kill_all_tagged(tag: str) -> int:
    """Send SIGKILL once to every process with `tag`. Return how many processes were killed."""
    return sum(bool(kill_tagged(pid, tag=tag)) for pid in pids())


def _is_starting(pid: int) -> bool:
    """Return whether a process without an environment may still get one.

    Dead processes and kernel threads never get one. They are recognised by their lack of memory.
    """
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
