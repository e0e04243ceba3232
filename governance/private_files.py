"""Files and directories that are for the server's user alone: what people wrote, keys, sessions."""

import os
import shutil
import stat
from contextlib import suppress
from pathlib import Path

_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def is_private_directory(path: Path) -> bool:
    """Return whether there is a directory, and no link to one, that only we may use."""
    try:
        status = os.lstat(path)
    except OSError:
        return False
    is_ours = status.st_uid == os.geteuid() and not status.st_mode & _OTHERS
    return is_ours and stat.S_ISDIR(status.st_mode)


def make_directory(path: Path) -> None:
    """Make the directory and its missing parents; an existing one becomes private. Raise `OSError`."""
    missing = []
    while not path.is_dir():
        missing.append(path)
        path = path.parent
    for each in reversed(missing):
        # Others may be quicker. `parents=True` would give those above the rights that the umask leaves.
        each.mkdir(mode=0o700, exist_ok=True)
    if not missing:
        restrict(path)


def make_file(path: Path) -> None:
    """Make an empty file if there is none; an existing one becomes private. Raise `OSError`."""
    os.close(os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
    restrict(path)


def restrict(path: Path) -> None:
    """Remove the rights of group and others, if the path exists and belongs to us.

    System directories keep their rights, in case a setting names one. These are directories at the root, and those that
    everyone may write to, such as `/tmp`.
    """
    with suppress(OSError):
        status = path.stat()
        is_open = status.st_uid == os.geteuid() and status.st_mode & _OTHERS
        if is_open and not (status.st_mode & stat.S_ISVTX or path.resolve().parent == Path("/")):
            path.chmod(stat.S_IMODE(status.st_mode) & ~_OTHERS)


def remove_directory(path: Path) -> None:
    """Delete a directory with all that is in it, also where directories inside may not be written. Raise `OSError`."""
    try:
        shutil.rmtree(path)
    except PermissionError:
        _allow_writing(path)
        shutil.rmtree(path)


def _allow_writing(path: Path) -> None:
    path.chmod(0o700)
    for _path, names, _files, directory in os.fwalk(path):
        for name in names:
            # By the descriptor, and through no link: somebody may still write here.
            with suppress(OSError, NotImplementedError):
                os.chmod(f"/proc/self/fd/{directory}/{name}", 0o700, follow_symlinks=False)
