"""Ties its process group to the life of the server, then becomes the program of an MCP server (G2).

Runs as a script in an interpreter without site packages: it imports only the standard library and takes 20 ms.
Arguments: the reading end of a pipe that closes when we die, our process id, the program, its arguments. There are
two mechanisms, as for worker processes. The kernel ends the program when its parent dies (Linux). A guard in its
group, which waits for the pipe, ends the whole group.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
_NOT_STARTED = 127
_TAG_NAME = "TURNKEEPER_MCP"


def main() -> None:
    """Leave a guard in the group, arm the kernel's signal, become the program."""
    lifeline, parent, command = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    start_guard(lifeline)
    os.close(lifeline)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        os.killpg(0, signal.SIGKILL)
    for ignored_by_python in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(ignored_by_python, signal.SIG_DFL)
    try:
        os.execv(command[0], command)  # noqa: S606 - this is the purpose; no shell takes part
    except OSError:
        sys.exit(_NOT_STARTED)


def start_guard(lifeline: int) -> None:
    """Fork twice, so that the program does not meet a child that it never started."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    if os.fork() == 0:
        watch(lifeline)
    os._exit(0)


def watch(lifeline: int) -> None:
    """End the group when the pipe closes. As a member of the group: its number cannot pass to another one meanwhile."""
    try:
        silence = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(silence, descriptor)
        while os.read(lifeline, 64):
            pass
        end_what_left()
    finally:
        os.killpg(0, signal.SIGKILL)


def end_what_left() -> None:
    """End the processes that have left the group: they carry the mark that ours carry (Linux)."""
    tag = f"{_TAG_NAME}={os.environ[_TAG_NAME]}".encode()
    for name in os.listdir("/proc") if os.path.isdir("/proc/self") else ():
        if not name.isdecimal() or int(name) == os.getpid():
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as environment:
                if tag in environment.read().split(b"\0"):
                    os.kill(int(name), signal.SIGKILL)
        except OSError:  # gone, or another user's
            continue


if __name__ == "__main__":
    main()
