"""The quota on the size of a workspace.

Writes by the file tools and git are checked before they happen, and writes by a command after the command has ended.
Only a quota of the file system can limit a command while it runs.
"""

import math
import os
import stat
import threading
import time
from pathlib import Path

from governance import file_trees
from governance.core.cancellation import CancellationToken
from governance.core.exceptions import ToolFailed
from governance.core.excerpts import spaced
from governance.toolbox.settings import ToolboxSettings

# Seconds after which a measurement is outdated, because other processes may have written.
_FRESH = 30.0
_SOON = 0.3  # seconds by which a measurement may delay the end of a command; the next write measures again
_MOST = 1000  # maximum number of cached measurements
_BLOCK = 512  # bytes; the unit of `st_blocks` on every file system

_lock = threading.Lock()
_measured: dict[Path, tuple[int, float]] = {}


def require_room(
    root: Path, more: int, *, token: CancellationToken, settings: ToolboxSettings
) -> None:
    """Reserve `more` bytes for a write. Raise `ToolFailed` if the workspace would exceed its quota.

    A write that needs no additional space (`more` ≤ 0) is never refused. If the call is cancelled, the measurement
    stops.
    """
    if not settings.workspace_quota:
        return
    used, at = _known(root, token=token)
    if more > 0 and used + more > settings.workspace_quota:
        raise ToolFailed(_full(used, settings) + " Nothing was written.")
    with _lock:
        _measured[root] = (used + more, at)


def measure(root: Path, settings: ToolboxSettings) -> str:
    """Drop the cached size of the workspace, and measure it again if that is quick.

    Return a sentence if the workspace exceeds its quota, and otherwise an empty string.
    """
    if not settings.workspace_quota:
        return ""
    with _lock:
        _measured.pop(root, None)
    try:
        size = _used(root, within=_SOON)
    except OSError:  # the next write measures again
        return ""
    if size is None:
        return ""
    _keep(root, size, time.monotonic())
    return _full(size, settings) if size > settings.workspace_quota else ""


def size_on_disk(status: os.stat_result) -> int:
    """Return the number of bytes that a file occupies on disk, which is below its size if the file has holes."""
    return status.st_blocks * _BLOCK


def _known(root: Path, *, token: CancellationToken) -> tuple[int, float]:
    now = time.monotonic()
    with _lock:
        size, at = _measured.get(root, (0, -_FRESH))
    if now - at < _FRESH:
        return size, at
    try:
        size = _used(root, within=math.inf, token=token) or 0
    except OSError as error:
        raise ToolFailed(
            "The workspace could not be measured, since its directories change. Nothing was written. Try again."
        ) from error
    _keep(root, size, now)
    return size, now


def _keep(root: Path, used: int, at: float) -> None:
    with _lock:
        while len(_measured) >= _MOST:
            del _measured[next(iter(_measured))]
        _measured[root] = (used, at)


def _used(root: Path, *, within: float, token: CancellationToken | None = None) -> int | None:
    """Return the size on disk of everything below `root`, or `None` if measuring takes longer than `within` seconds.

    A file with several hard links is counted once. Raise `OSError` if a directory was moved during the walk.
    """
    used, inodes = 0, set()
    end = time.monotonic() + within
    if token is not None:
        token.raise_if_cancelled()
    for _directory, entry in file_trees.walk(root):
        if token is not None:
            token.raise_if_cancelled()
        if time.monotonic() > end:
            return None
        try:
            status = entry.stat(follow_symlinks=False)
        except OSError:  # deleted in the meantime
            continue
        if not stat.S_ISDIR(status.st_mode) and status.st_nlink > 1:
            file = (status.st_dev, status.st_ino)
            if file in inodes:
                continue
            inodes.add(file)
        used += size_on_disk(status)
    return used


def _full(used: int, settings: ToolboxSettings) -> str:
    return (
        f"The workspace holds {spaced(used)} bytes, and {spaced(settings.workspace_quota)} is the most it may hold. "
        "Delete or shorten what is no longer needed."
    )
