"""Ends a process group when the server dies (T8, C4): a worker's, an MCP server's, a command's.

A *guard*, a small process in the group, ends the group when the pipe to the server closes. It reaches what has been
started there, works while C code holds the interpreter, and exists on every POSIX system. It is a member of the group,
so that the group's number cannot pass to another one. It is forked twice, so that a process which waits for its
children does not meet it. On Linux the kernel ends the first process of the group as well.

A worker imports this module. As a script, this file starts the program of an MCP server, in an interpreter without site
packages. So it imports the standard library alone. A command has a shell for its guard, as an interpreter starts too
slowly.
"""

import ctypes
import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress

_PR_SET_PDEATHSIG = 1
_NOT_STARTED = 127
_SWEEPS = 20
_PAUSE = 0.05  # seconds between two sweeps


def die_with_parent(parent: int) -> None:
    """Have the kernel end this process with its parent; end the group at once if the parent is already dead.

    The kernel watches the *thread* that started us: only the event loop's thread starts such processes.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        os.killpg(0, signal.SIGKILL)


def guard_group(lifeline: int, *, tag: str, not_for_guard: Sequence[int] = ()) -> None:
    """Leave a guard that ends this group, and what carries `tag` in its environment, when the pipe `lifeline` closes.

    The guard closes the descriptors that are `not_for_guard`: the server shall see the end of their owner.
    """
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        os.close(lifeline)
        return
    if os.fork() == 0:
        _watch(lifeline, tag=tag, not_for_guard=not_for_guard)
    os._exit(0)


def _watch(lifeline: int, *, tag: str, not_for_guard: Sequence[int]) -> None:
    try:
        for descriptor in not_for_guard:
            os.close(descriptor)
        silence = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(silence, descriptor)
        while os.read(lifeline, 64):
            pass
        _kill_tagged(tag.encode())
    finally:
        os.killpg(0, signal.SIGKILL)


def _kill_tagged(tag: bytes) -> None:
    """End the processes that have left the group (Linux), and look again while some may still come to light."""
    for _ in range(_SWEEPS if os.path.isdir("/proc/self") else 0):
        others = {int(name) for name in os.listdir("/proc") if name.isdecimal()} - {os.getpid()}
        if not sum(kill_or_look_again(pid, tag=tag) for pid in others):
            return
        time.sleep(_PAUSE)


def kill_or_look_again(pid: int, *, tag: bytes) -> bool:
    """Kill a process that has the tag. False if there is nothing more to do about it.

    A process that is just being started has no environment yet: see `procfs.kill_tagged`.
    """
    with suppress(OSError):  # gone, or another user's
        with open(f"/proc/{pid}/environ", "rb") as file:
            environment = file.read()
        if tag in environment.split(b"\0"):
            os.kill(pid, signal.SIGKILL)
            return True
        if not environment:
            with open(f"/proc/{pid}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
            # its memory, and where its environment begins and ends (man 5 proc)
            memory, begin, end = fields[20], fields[47], fields[48]
            return memory != b"0" and (begin != end or end == b"0")
    return False


def script(lifeline: int, *, tag: str) -> list[str]:
    """Return the arguments before a command that shall leave a guard first; `tag` is in its environment."""
    return [sys.executable, "-I", "-S", __file__, str(lifeline), str(os.getpid()), tag]


def main() -> None:
    """Leave a guard, become the command. Arguments: the pipe's reading end, the server's process id, the tag, the command."""
    lifeline, parent, tag, command = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4:]
    guard_group(lifeline, tag=tag)
    die_with_parent(parent)
    for ignored_by_python in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(ignored_by_python, signal.SIG_DFL)
    try:
        os.execv(command[0], command)  # noqa: S606 - this is the purpose; no shell takes part
    except OSError:
        sys.exit(_NOT_STARTED)


# The guard takes its pipe as descriptor 3. A shell gives background jobs no stdin; the command's own input is empty.
_SHELL = (
    "exec 3<&0 </dev/null; "
    "( ( read -r told <&3 && exit; kill -KILL 0 ) >/dev/null 2>&1 & ); "
    'exec 3<&-; exec "$@"'
)


class ShellGuard:
    """The pipe to the guard of one command. The guard leaves when the command has ended by itself."""

    def __init__(self) -> None:
        self.input, self._ours = os.pipe()
        os.set_blocking(self._ours, False)

    @staticmethod
    def wrap(arguments: tuple[str, ...]) -> tuple[str, ...]:
        """Return the arguments of a command that starts a guard first; `input` must be its stdin."""
        return ("/bin/sh", "-c", _SHELL, "sh", *arguments)

    def started(self) -> None:
        """Give up the end that is the guard's."""
        os.close(self.input)

    def cut(self, *, spare: bool) -> None:
        """Release the guard: `spare` the group, or end the rest of it."""
        if spare:
            with suppress(OSError):  # the guard was ended with its group
                os.write(self._ours, b"\n")
        os.close(self._ours)


if __name__ == "__main__":
    main()
