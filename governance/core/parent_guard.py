"""Ends the process group of a worker, an MCP server or a command when the server dies (T8, C4).

A *guard*, a small process in the group, ends the group when the pipe to the server closes. It also ends processes that
the program has started, works while C code holds the GIL, and needs only POSIX. It is a member of the group, so that
the group's id cannot be reused for another group. It is forked twice, so that it is not a child of the program, which
may wait for its children. On Linux, the kernel ends the first process of the group as well.

A worker imports this module. Run as a script, this file starts the program of an MCP server in an interpreter without
site packages, so it imports only the standard library. The guard of a command is a shell, because an interpreter starts
too slowly.
"""

import ctypes
import os
import signal
import sys
import time
from contextlib import suppress

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_NOT_STARTED = 127
_SWEEPS = 20
_PAUSE = 0.05  # seconds between two scans


def die_with_parent(parent: int) -> None:
    """Have the kernel end this process with its parent. End the group immediately if the parent is already dead.

    The kernel watches the *thread* that started this process, so only the event loop's thread may start such processes.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        os.killpg(0, signal.SIGKILL)


def adopt_orphans() -> bool:
    """Make this process the parent of its orphaned descendants. Return whether that worked; it does only on Linux."""
    if sys.platform != "linux":
        return False
    failed: int = ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    return not failed


def guard_group(lifeline: int, *, tag: str) -> None:
    """Fork a guard. When the pipe `lifeline` closes, the guard ends this group and all processes with `tag`.

    `tag` is an entry of the environment of these processes.
    """
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        os.close(lifeline)
        return
    if os.fork() == 0:
        _watch(lifeline, tag=tag)
    os._exit(0)


def _watch(lifeline: int, *, tag: str) -> None:
    try:
        silence = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(silence, descriptor)
        while os.read(lifeline, 64):
            pass
        _kill_tagged(tag.encode())
    finally:
        os.killpg(0, signal.SIGKILL)


def _kill_tagged(tag: bytes) -> None:
    """End the processes that have left the group (Linux), and repeat while new ones may appear."""
    for _ in range(_SWEEPS if os.path.isdir("/proc/self") else 0):
        pids = {int(name) for name in os.listdir("/proc") if name.isdecimal()} - {os.getpid()}
        if not sum(kill_or_look_again(pid, tag=tag) for pid in pids):
            return
        time.sleep(_PAUSE)


def kill_or_look_again(pid: int, *, tag: bytes) -> bool:
    """Kill a process that has the tag. Return True if it was killed or must be checked again.

    A process has no environment while it starts, so its tag cannot be read yet. `procfs.kill_tagged` explains this.
    """
    with suppress(OSError):  # the process has ended, or belongs to another user
        with open(f"/proc/{pid}/environ", "rb") as file:
            environment = file.read()
        if tag in environment.split(b"\0"):
            os.kill(pid, signal.SIGKILL)
            return True
        if not environment:
            with open(f"/proc/{pid}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
            # the process's memory, and where its environment begins and ends (man 5 proc)
            memory, begin, end = fields[20], fields[47], fields[48]
            return memory != b"0" and (begin != end or end == b"0")
    return False


def script(lifeline: int, *, tag: str) -> list[str]:
    """Return the arguments to put before a command, so that a guard is forked first.

    The command's environment must contain `tag`.
    """
    return [sys.executable, "-I", "-S", __file__, str(lifeline), str(os.getpid()), tag]


def main() -> None:
    """Fork a guard, then execute the command.

    The arguments are the descriptor of the pipe's read end, the server's process id, the tag, and the command.
    """
    lifeline, parent, tag, command = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4:]
    guard_group(lifeline, tag=tag)
    die_with_parent(parent)
    for ignored_by_python in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(ignored_by_python, signal.SIG_DFL)
    try:
        os.execv(command[0], command)  # noqa: S606 - this is the purpose, and no shell is involved
    except OSError:
        sys.exit(_NOT_STARTED)


# The guard reads its pipe as descriptor 3, because background jobs of a shell have no stdin. The command's own input is
# empty.
_SHELL = (
    "exec 3<&0 </dev/null; "
    "( ( read -r told <&3 && exit; kill -KILL 0 ) >/dev/null 2>&1 & ); "
    'exec 3<&-; exec "$@"'
)


class ShellGuard:
    """The pipe to the guard of one command. The guard exits when the command has ended by itself."""

    def __init__(self) -> None:
        self.input, self._ours = os.pipe()
        os.set_blocking(self._ours, False)

    @staticmethod
    def wrap(arguments: tuple[str, ...]) -> tuple[str, ...]:
        """Return the arguments with a prefix that starts a guard first. The command's stdin must be `input`."""
        return ("/bin/sh", "-c", _SHELL, "sh", *arguments)

    def started(self) -> None:
        """Close the guard's end of the pipe in this process."""
        os.close(self.input)

    def cut(self, *, spare: bool) -> None:
        """Release the guard. Unless `spare` is set, the guard ends the remaining processes of the group."""
        if spare:
            with suppress(OSError):  # the guard was ended with its group
                os.write(self._ours, b"\n")
        os.close(self._ours)


if __name__ == "__main__":
    main()
