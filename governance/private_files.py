"""Files and directories that only the server's user may access: people's content, keys, sessions."""

import os
import stat
from contextlib import suppress
from pathlib import Path

_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def is_private_directory(path: Path) -> bool:
    """Return whether the path is a directory, not a link to one, that only this user may access."""
    try:
        status = os.lstat(path)
    except OSError:
        return False
    is_ours = status.st_uid == os.geteuid() and not status.st_mode & _OTHERS
    return is_ours and stat.S_ISDIR(status.st_mode)


def make_directory(path: Path) -> None:
    """Create the directory and its missing parents, or make an existing directory private. Raise `OSError` if that
    fails.
    """
    missing_parents = []
    while not path.is_dir():
        missing_parents.append(path)
        path = path.parent
    for each in reversed(missing_parents):
        # `exist_ok`, because another process may have created it first. `parents=True` would create the parents with
        # the rights that the umask allows.
        each.mkdir(mode=0o700, exist_ok=True)
    if not missing_parents:
        restrict(path)


def make_file(path: Path) -> None:
    """Create an empty file if there is none, or make an existing file private. Raise `OSError` if that fails."""
    os.close(os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
    restrict(path)


def restrict(path: Path) -> None:
    """Remove the rights of group and others, if the path exists and this process's user owns it.

    System directories keep their rights, in case a setting names one. These are directories at the root, and those that
    everyone may write to, such as `/tmp`.
    """
    with suppress(OSError):
        status = path.stat()
        is_open = status.st_uid == os.geteuid() and status.st_mode & _OTHERS
        if is_open and not (status.st_mode & stat.S_ISVTX or path.resolve().parent == Path("/")):
            path.chmod(stat.S_IMODE(status.st_mode) & ~_OTHERS)
