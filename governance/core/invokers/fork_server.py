"""The process from which worker processes are forked.

It sets up Django only once, so that each call starts in milliseconds (T8). `ForkServer` starts it as
`python -m governance.core.invokers.fork_server`. For each call, it forks a *keeper*, which forks the worker and later
ends it.

A process with threads, or with open files and connections, cannot be forked safely. If a project's `ready()` leaves any
of them open, this process restarts without Django, and each worker sets up Django itself.
"""

import fcntl
import gc
import json
import os
import select
import signal
import socket
import stat
import sys
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from governance.core import procfs
from governance.core.invokers import frames, worker
from governance.core.parent_guard import adopt_orphans, die_with_parent

_FIRST_PAUSE = 0.0005  # seconds between two polls of processes that are being ended
_LONGEST_PAUSE = 0.1
_EXIT_POLL = 0.05
_NO_GRACE = 0.0
# Passed in the environment, because all users of the machine can read the arguments of a process.
SETTINGS = "TURNKEEPER_FORK_SERVER"


def main() -> None:
    """Fork a worker for each pair of sockets that arrives, until the server closes its end."""
    environment = dict(os.environ)  # the project's settings may change it
    settings: dict[str, Any] = json.loads(os.environ.pop(SETTINGS))
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    die_with_parent(settings["parent"])
    # This process's path was extended to find this module, but child processes of tools need the server's path.
    os.environ.pop("PYTHONPATH", None)
    if settings["pythonpath"] is not None:
        os.environ["PYTHONPATH"] = settings["pythonpath"]
    requests = socket.socket(fileno=settings["requests"])
    if settings["initializer"] and not settings["is_plain"]:
        inherited = _descriptors()
        hello, _ = worker.called(settings["initializer"], *settings["initializer_arguments"])
        if hello["kind"] != "ready" or not _can_be_forked(inherited):
            _start_again(settings, environment)
        settings["initializer"] = None
    requests.set_inheritable(False)
    gc.freeze()  # a garbage collection in a worker would copy the memory that the processes share
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # keepers are reaped automatically
    while True:
        message, descriptors, *_ = socket.recv_fds(requests, 1, 2)
        if not message:
            return
        connection, control = map(_socket, descriptors)
        with suppress(
            OSError
        ):  # the system refused the fork, and the server notices that both sockets close
            if os.fork() == 0:
                requests.close()
                keeper = Keeper(control, grace=settings["kill_grace"])
                _run(partial(keeper.keep, connection, settings))
        connection.close()
        control.close()


class Keeper:
    """A process that starts the worker of one call, and ends the worker with all its descendants.

    On Linux, orphans of the call become the keeper's children, whatever session or environment they have, so it can
    wait for the last of them. Because the keeper is a separate process, it works even while C code holds the worker's
    GIL. It ends the call after a grace period when the server requests that, and immediately when the server's end of
    `control` closes.
    """

    def __init__(self, control: socket.socket, *, grace: float) -> None:
        self._control = control
        self._grace = grace
        self._worker = 0
        self._runs = True
        self._deadline: float | None = None  # end of the grace period, once the call is being ended

    def keep(self, connection: socket.socket, settings: dict[str, Any]) -> None:
        """Start the worker, and return when all its processes have ended."""
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        adopts = adopt_orphans()
        tag, keeper = uuid.uuid4().hex, os.getpid()
        self._worker = os.fork()
        if self._worker == 0:
            self._control.close()
            os.setsid()
            os.environ[frames.TAG_NAME] = tag
            _run(partial(_work, keeper, connection, settings))
        connection.close()
        self._tell({"pid": self._worker, "tag": tag})
        pause: float | None = _EXIT_POLL
        with suppress(AttributeError, OSError):  # not Linux, or an old kernel
            watched = os.pidfd_open(self._worker)
            pause = None
        sources: list[Any] = [self._control] if pause else [self._control, watched]
        while True:
            ready, _, _ = select.select(sources, [], [], pause)
            if self._control in ready:
                self._listen(sources)
            if not self._reap(adopts=adopts):
                break
            if not self._runs and pause is None:
                sources.remove(watched)
            if self._deadline is not None:
                self._end(adopts=adopts)
                pause = min((pause or _FIRST_PAUSE) * 2, _LONGEST_PAUSE)
        self._tell({"gone": True})

    def _listen(self, sources: list[Any]) -> None:
        grace = self._grace
        with suppress(OSError):
            if not self._control.recv(1):
                grace = _NO_GRACE
                sources.remove(self._control)
        self._begin_to_end(grace)

    def _begin_to_end(self, grace: float) -> None:
        if self._deadline is None:
            self._signal_group(signal.SIGTERM)
            self._signal_group(
                signal.SIGCONT
            )  # a stopped process handles SIGTERM only after SIGCONT
        deadline = time.monotonic() + grace
        self._deadline = min(deadline, self._deadline or deadline)

    def _reap(self, *, adopts: bool) -> bool:
        """Reap the processes that have ended. Return whether any process is left."""
        with suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return True
                if pid == self._worker:
                    self._runs = False
                    self._tell({"status": os.waitstatus_to_exitcode(status)})
                    if not adopts:  # its descendants cannot be observed
                        self._signal_group(signal.SIGKILL)
                    self._begin_to_end(self._grace)
        return False

    def _end(self, *, adopts: bool) -> None:
        """Kill the remaining processes. During the grace period, do so only if none is in the worker's group."""
        assert self._deadline is not None  # noqa: S101
        orphans = procfs.children() - {self._worker} if adopts else frozenset()
        in_group = self._runs or any(_group_of(pid) == self._worker for pid in orphans)
        if in_group and time.monotonic() < self._deadline:
            return
        if in_group:
            self._signal_group(signal.SIGKILL)
        for pid in orphans:  # a pid is not reused until the process has been waited for
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)

    def _signal_group(self, number: int) -> None:
        with suppress(OSError):
            os.killpg(self._worker, number)

    def _tell(self, frame: frames.Frame) -> None:
        with suppress(OSError):  # the server is gone
            self._control.sendall(frames.pack(frame, limit=frames.ENVELOPE))


def _work(keeper: int, connection: socket.socket, settings: dict[str, Any]) -> None:
    die_with_parent(keeper)
    worker.work(connection, settings)


def _run(part: Callable[[], None]) -> None:
    """Run the function of a forked process, and then exit."""
    status = 1
    try:
        part()
        status = 0
    except BaseException:  # noqa: BLE001 - it must not continue with its parent's code
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(status)


def _can_be_forked(before: frozenset[int]) -> bool:
    """Return whether this process can be forked safely.

    It must have only one thread, no children, and no new descriptor whose position or state the forks would share.
    """
    threads = len(os.listdir("/proc/self/task")) if procfs.AVAILABLE else threading.active_count()
    if threads > 1 or procfs.children():
        return False
    return all(map(_may_be_shared, _descriptors() - before))


def _may_be_shared(descriptor: int) -> bool:
    try:
        kind = os.fstat(descriptor).st_mode
    except OSError:  # the descriptor of the listing itself, closed by now
        return True
    if stat.S_ISSOCK(kind):  # a socket pair within this process, such as an event loop's, is safe
        with socket.socket(fileno=os.dup(descriptor)) as duplicate:
            return duplicate.family == socket.AF_UNIX and not (
                duplicate.getsockname() or _peer(duplicate)
            )
    is_own = stat.S_ISFIFO(kind) or not stat.S_IFMT(kind)  # pipes and an event loop's selector
    is_log = stat.S_ISREG(kind) and fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_APPEND
    return stat.S_ISCHR(kind) or is_own or bool(is_log)


def _peer(connection: socket.socket) -> object:
    try:
        return connection.getpeername()
    except OSError:
        return "nobody yet"


def _descriptors() -> frozenset[int]:
    return frozenset(map(int, os.listdir("/dev/fd")))


def _start_again(settings: dict[str, Any], environment: dict[str, str]) -> None:
    environment[SETTINGS] = json.dumps({**settings, "is_plain": True})
    program, *_ = settings["command"]
    os.execve(program, settings["command"], environment)  # noqa: S606 - this program is already running


def _socket(descriptor: int) -> socket.socket:
    connection = socket.socket(fileno=descriptor)
    connection.set_inheritable(False)
    return connection


def _group_of(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except OSError:
        return 0


if __name__ == "__main__":
    main()
