"""Control groups for commands, which are available if systemd has delegated a subtree to the server.

The group of a command contains all its processes. `Delegate=memory pids` in the server's systemd unit delegates a
subtree. Nothing outside it is changed, even if the server runs as root.
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
_SERVER = "server"  # the subgroup of the server itself, because a group with subgroups may not contain processes
_NEEDED = ("memory", "pids")
_MARK = "user.delegate"  # an attribute with which systemd (251 or newer) marks a delegated group
_ENTER = 'echo $$ >"$0" && exec "$@"'
_EVENTS = (("memory.events", "oom_kill", "memory"), ("pids.events", "max", "processes"))
_WAIT = 1.0  # seconds for killed processes to end
_COMMAND = "command"  # the prefix of group names; the server's pid follows

_open: "weakref.WeakSet[CommandGroup]" = weakref.WeakSet()
_opening = threading.Lock()


@functools.cache
def find_group() -> str:
    """Return the path of the group that can contain the groups of commands, or an empty string if there is none.

    The first call in a process prepares the group, so call this in a thread.
    """
    try:
        own_group = _own_group()
        if own_group is None or os.getxattr(own_group, _MARK) != b"1":
            return ""
    except OSError:  # the group is not marked as delegated
        return ""
    try:
        _prepare(own_group)
    except OSError as error:
        logger.warning("Commands get no control group of their own: %s", error.strerror)
        return ""
    return str(own_group)


def open_group(limits: ResourceLimits) -> "CommandGroup | None":
    """Create a control group for a command, or return `None` if that is not possible. Call this in a thread."""
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
    """The control group of one command. The constructor creates it, and raises `OSError` if that is not possible."""

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
                with contextlib.suppress(OSError):  # a system without swap has no such limit
                    (self.path / name).write_text(str(value))

    def wrap(self, arguments: tuple[str, ...]) -> tuple[str, ...]:
        """Return the command line that enters the group and then runs `arguments`."""
        return ("/bin/sh", "-c", _ENTER, str(self.path / "cgroup.procs"), *arguments)

    def close(self) -> str:
        """Kill the remaining processes and remove the group. Return the names of the limits that were reached."""
        reached = " and ".join(
            word for file, key, word in _EVENTS if _read_event(self.path / file, key)
        )
        _kill(self.path)
        end = time.monotonic() + _WAIT
        while not _is_removed(self.path) and time.monotonic() < end:
            time.sleep(0.01)
        with _opening:
            _open.discard(self)
        return reached


def _own_group() -> Path | None:
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        if line.startswith("0::/"):
            path = _MOUNT / line.removeprefix("0::/")
            return path.parent if path.name == _SERVER else path
    return None


def _prepare(own: Path) -> None:
    aside = own / _SERVER
    aside.mkdir(exist_ok=True)
    for pid in (own / "cgroup.procs").read_text().split():
        with contextlib.suppress(ProcessLookupError):
            (aside / "cgroup.procs").write_text(pid)
    (own / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in _NEEDED))


def _remove_left(own: Path) -> None:
    """Remove the groups of calls that were cancelled while theirs was created, and of servers that were killed."""
    open_paths = {group.path for group in _open}
    for path in own.glob(f"{_COMMAND}-[0-9]*-*"):
        pid = path.name.split("-")[1]
        is_others = pid != str(os.getpid()) and Path("/proc", pid).exists()
        if path not in open_paths and not is_others and not _is_removed(path):
            _kill(path)  # the next call of this function removes it


def _kill(path: Path) -> None:
    with contextlib.suppress(OSError):
        (path / "cgroup.kill").write_text("1")


def _is_removed(path: Path) -> bool:
    try:
        path.rmdir()
    except FileNotFoundError:
        return True
    except OSError:  # it still contains processes
        return False
    return True


def _read_event(file: Path, key: str) -> int:
    try:
        pairs = dict(line.split() for line in file.read_text().splitlines())
    except (OSError, ValueError):
        return 0
    return int(pairs.get(key, 0))
