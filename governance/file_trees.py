"""Walks a directory tree of any depth with file descriptors, without long paths and without recursion. Other programs
may change the tree concurrently: no symbolic link is followed, and the walk ends if a directory on its path is moved.
"""

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NOT_OPENED = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EACCES, errno.EPERM})
READ = stat.S_IRUSR | stat.S_IXUSR


class _Level:
    """A directory on the current path: its name, its identity, and its subdirectories that are still to be visited."""

    __slots__ = ("identity", "name", "pending")

    def __init__(self, name: str, directory: int) -> None:
        self.name = name
        self.identity = _identity(directory)
        self.pending: list[str] = []


def walk(
    path: Path,
    *,
    rights: int = READ,
    leave: Callable[[str, int], None] = lambda _name, _parent: None,
) -> Iterator[tuple[int, os.DirEntry[str]]]:
    """Yield every entry below `path`, with the descriptor of its directory.

    `leave` is called after the last entry of each directory below `path`, with the directory's name and the descriptor
    of its parent. If a directory lacks `rights` and this process owns it, they are added. Directories that cannot be
    opened are skipped.

    Raises:
        OSError: a directory was moved during the walk, or the system has no descriptor left.
    """
    current = _enter(str(path), None, rights)
    if current is None:
        return
    levels = [_Level(str(path), current)]
    try:
        yield from _entries(current, levels[-1])
        while True:
            if levels[-1].pending:
                name = levels[-1].pending.pop()
                child = _enter(name, current, rights)
                if child is not None:
                    os.close(current)
                    current = child
                    levels.append(_Level(name, current))
                    yield from _entries(current, levels[-1])
            elif len(levels) > 1:
                level = levels.pop()
                parent = os.open("..", _DIRECTORY, dir_fd=current)
                os.close(current)
                current = parent
                if _identity(current) != levels[-1].identity:
                    raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
                leave(level.name, current)
            else:
                return
    finally:
        os.close(current)


def remove(path: Path) -> None:
    """Delete a directory and everything in it, even if directories inside it are not writable.

    Raises:
        OSError: something could not be deleted.
    """

    def leave(name: str, parent: int) -> None:
        with suppress(FileNotFoundError):
            os.rmdir(name, dir_fd=parent)

    for directory, entry in walk(path, rights=stat.S_IRWXU, leave=leave):
        if not entry.is_dir(follow_symlinks=False):
            with suppress(FileNotFoundError):
                os.unlink(entry.name, dir_fd=directory)
    path.rmdir()


def _entries(directory: int, level: _Level) -> Iterator[tuple[int, os.DirEntry[str]]]:
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                level.pending.append(entry.name)
            yield directory, entry


def _enter(name: str, parent: int | None, rights: int) -> int | None:
    """Open a directory, add these rights, and return its descriptor. Return None if it does not exist or may not be
    opened.
    """
    try:
        try:
            directory = os.open(name, _DIRECTORY, dir_fd=parent)
        except PermissionError:
            # Use the parent's descriptor and do not follow links, because other programs may still write here.
            path = name if parent is None else f"/proc/self/fd/{parent}/{name}"
            with suppress(NotImplementedError):
                os.chmod(path, stat.S_IRWXU, follow_symlinks=False)
            directory = os.open(name, _DIRECTORY, dir_fd=parent)
    except OSError as error:
        if error.errno in _NOT_OPENED:
            return None
        raise
    mode = stat.S_IMODE(os.fstat(directory).st_mode)
    if mode & rights != rights:
        with suppress(OSError):
            os.fchmod(directory, mode | rights)
    return directory


def _identity(directory: int) -> tuple[int, int]:
    status = os.fstat(directory)
    return status.st_dev, status.st_ino
