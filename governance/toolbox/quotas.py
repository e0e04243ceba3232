"""How much a workspace holds, and whether more may be written to it.

What the file tools and git write is counted before, what a command has written after it. The file system may keep
quotas besides: only those hold while a command runs.
"""

import math
import os
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from governance.core.cancellation import CancellationToken
from governance.core.exceptions import ToolFailed
from governance.core.excerpts import spaced
from governance.toolbox.settings import ToolboxSettings

_FRESH = 30.0  # seconds for which a measurement counts: other processes write, too
_SOON = 0.3  # seconds that a command's end may take longer; the next write measures again
_MOST = 1000  # measurements that are kept
_BLOCK = 512  # bytes; the unit of `st_blocks`, on any file system

_lock = threading.Lock()
_measured: dict[Path, tuple[int, float]] = {}


def require_room(
    root: Path, more: int, *, token: CancellationToken, settings: ToolboxSettings
) -> None:
    """Count `more` bytes that are about to be written. Raise `ToolFailed` if the workspace would hold too much.

    What takes no more room than before, `more` not being above zero, is never refused. Counting ends with the call.
    """
    if not settings.workspace_quota:
        return
    used, at = _known(root, token=token)
    if more > 0 and used + more > settings.workspace_quota:
        raise ToolFailed(_full(used, settings) + " Nothing was written.")
    with _lock:
        _measured[root] = (used + more, at)


def measure(root: Path, settings: ToolboxSettings) -> str:
    """Drop the cached size, and measure again if that is fast. Return a sentence if it is too large."""
    if not settings.workspace_quota:
        return ""
    with _lock:
        _measured.pop(root, None)
    used = _used(root, within=_SOON)
    if used is None:
        return ""
    _keep(root, used, time.monotonic())
    return _full(used, settings) if used > settings.workspace_quota else ""


def size_on_disk(status: os.stat_result) -> int:
    """Return the bytes that a file takes on disk: it may have holes."""
    return status.st_blocks * _BLOCK


def _known(root: Path, *, token: CancellationToken) -> tuple[int, float]:
    now = time.monotonic()
    with _lock:
        used, at = _measured.get(root, (0, -_FRESH))
    if now - at < _FRESH:
        return used, at
    used = _used(root, within=math.inf, token=token) or 0
    _keep(root, used, now)
    return used, now


def _keep(root: Path, used: int, at: float) -> None:
    with _lock:
        while len(_measured) >= _MOST:
            del _measured[next(iter(_measured))]
        _measured[root] = (used, at)


def _used(root: Path, *, within: float, token: CancellationToken | None = None) -> int | None:
    """Return the bytes on disk of everything below, or None if measuring takes too long.

    A file with several names counts once.
    """
    used, seen = 0, set()
    pending = [str(root)]
    end = time.monotonic() + within
    while pending:
        if token is not None:
            token.raise_if_cancelled()
        if time.monotonic() > end:
            return None
        for path, status in _statuses(pending.pop()):
            file = (status.st_dev, status.st_ino)
            if stat.S_ISDIR(status.st_mode):
                pending.append(path)
            elif status.st_nlink > 1:
                if file in seen:
                    continue
                seen.add(file)
            used += size_on_disk(status)
    return used


def _statuses(directory: str) -> Iterator[tuple[str, os.stat_result]]:
    with suppress(OSError), os.scandir(directory) as entries:  # gone meanwhile, or not to be read
        for entry in entries:
            with suppress(OSError):
                yield entry.path, entry.stat(follow_symlinks=False)


def _full(used: int, settings: ToolboxSettings) -> str:
    return (
        f"The workspace holds {spaced(used)} bytes, and {spaced(settings.workspace_quota)} is the most it may hold. "
        "Delete or shorten what is no longer needed."
    )
