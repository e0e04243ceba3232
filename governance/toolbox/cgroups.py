"""The control group of all processes of a command, where systemd has delegated a subtree to the server.

`Delegate=memory pids` in the server's unit does that. It touches nothing else, even as root.
"""

import contextlib
import functools
import logging
import os
import threading
import time
import uuid
import weakref
from pathlib import Path

from governance.toolbox.resource_limits import ResourceLimits

logger = logging.getLogger(__name__)

_MOUNT = Path("/sys/fs/cgroup")
_SERVER = "server"  # where the server itself goes: a group with groups below it may hold no process
_NEEDED = ("memory", "pids")
_MARK = "user.delegate"  # an attribute by which systemd says so, 251 or newer
_ENTER = 'echo $$ >"$0" && exec "$@"'
_EVENTS = (("memory.events", "oom_kill", "memory"), ("pids.events", "max", "processes"))
_WAIT = 1.0  # seconds for what was killed to be gone
_COMMAND = "command"  # how the names of groups begin, before the pid of their server

_open: "weakref.WeakSet[CommandGroup]" = weakref.WeakSet()
_opening = threading.Lock()


@functools.cache
def find_group() -> str:
    """Return the path of the group below which commands may have groups of their own, or nothing.

    Prepares it, once in a process: call it in a thread.
    """
    try:
        own = _own_group()
        if own is None or os.getxattr(own, _MARK) != b"1":
            return ""
    except OSError:  # it has no such mark
        return ""
    try:
        _prepare(own)
    except OSError as error:
        logger.warning("Commands get no control group of their own: %s", error.strerror)
        return ""
    return str(own)


def open_group(limits: ResourceLimits) -> "CommandGroup | None":
    """Make a group for a command where that is possible; blocks, so call it in a thread."""
    if not limits.group:
        return None
    try:
        with _opening:
            _remove_left(Path(limits.group))
            group = CommandGroup(limits)
            _open.add(group)
    except OSError as error:
        logger.warning("A command gets no control group of its own: %s", error.strerror)
        return None
    return group


class CommandGroup:
    """The group of one command, made below the server's. Raises `OSError` if that cannot be done."""

    def __init__(self, limits: ResourceLimits) -> None:
        self.path = Path(limits.group, f"{_COMMAND}-{os.getpid()}-{uuid.uuid4().hex}")
        self.path.mkdir()
        for name, value in (
            ("memory.max", limits.memory),
            ("pids.max", limits.processes),
            ("memory.swap.max", 0),
            ("memory.oom.group", 1),
        ):
            if value or name == "memory.swap.max":
                with contextlib.suppress(OSError):  # a system without swap has no limit of it
                    (self.path / name).write_text(str(value))

    def wrap(self, arguments: tuple[str, ...]) -> tuple[str, ...]:
        """Return the command line that enters the group, then runs `arguments`."""
        return ("/bin/sh", "-c", _ENTER, str(self.path / "cgroup.procs"), *arguments)

    def close(self) -> str:
        """Kill the rest of the group and remove it. Return the name of the limit that was hit, or nothing."""
        met = " and ".join(
            word for file, key, word in _EVENTS if _read_event(self.path / file, key)
        )
        _kill(self.path)
        end = time.monotonic() + _WAIT
        while not _is_removed(self.path) and time.monotonic() < end:
            time.sleep(0.01)
        with _opening:
            _open.discard(self)
        return met


def _own_group() -> Path | None:
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        if line.startswith("0::/"):
            place = _MOUNT / line.removeprefix("0::/")
            return place.parent if place.name == _SERVER else place
    return None


def _prepare(own: Path) -> None:
    aside = own / _SERVER
    aside.mkdir(exist_ok=True)
    for pid in (own / "cgroup.procs").read_text().split():
        with contextlib.suppress(ProcessLookupError):
            (aside / "cgroup.procs").write_text(pid)
    (own / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in _NEEDED))


def _remove_left(own: Path) -> None:
    """Remove groups that nobody has closed: their call was cancelled while they were made, or their server was killed."""
    kept = {group.path for group in _open}
    for path in own.glob(f"{_COMMAND}-[0-9]*-*"):
        pid = path.name.split("-")[1]
        is_others = pid != str(os.getpid()) and Path("/proc", pid).exists()
        if path not in kept and not is_others and not _is_removed(path):
            _kill(path)  # the next one removes it


def _kill(path: Path) -> None:
    with contextlib.suppress(OSError):
        (path / "cgroup.kill").write_text("1")


def _is_removed(path: Path) -> bool:
    try:
        path.rmdir()
    except FileNotFoundError:
        return True
    except OSError:  # still busy
        return False
    return True


def _read_event(file: Path, key: str) -> int:
    try:
        pairs = dict(line.split() for line in file.read_text().splitlines())
    except (OSError, ValueError):
        return 0
    return int(pairs.get(key, 0))
