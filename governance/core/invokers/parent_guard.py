"""Ends a worker process and its tools' children when the server dies (T8).

There are two mechanisms, as neither is enough alone. The kernel ends the worker when its parent dies (Linux). A
guard, a small process in the worker's group, ends the whole group when the pipe to the parent closes. It reaches the
tools' own children, works while C code holds the interpreter, and exists on every POSIX system.
"""

import ctypes
import os
import signal
import sys

from governance.core import procfs

TAG_NAME = "TURNKEEPER_WORKER"  # in the environment of a worker and of its children
_PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int) -> None:
    """Have the kernel end this process with its parent; exit at once if the parent is already dead.

    The kernel watches the *thread* that started us: only the event loop's thread starts workers.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def guard_group(lifeline: int, *, connection: int, tag: str) -> None:
    """Leave a guard in this process group that ends it when the pipe `lifeline` closes.

    A member of the group, so that the group's number cannot pass to another one while the guard watches it.
    Forked twice, so that a tool which waits for its children does not meet it.
    """
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        os.close(lifeline)
        return
    if os.fork() == 0:
        _watch(lifeline, connection=connection, tag=tag)
    os._exit(0)


def _watch(lifeline: int, *, connection: int, tag: str) -> None:
    try:
        os.close(connection)  # the server shall see the end of the worker, not of its guard
        silence = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(silence, descriptor)
        while os.read(lifeline, 64):
            pass
        procfs.kill_all_tagged(tag)
    finally:
        os.killpg(0, signal.SIGKILL)
