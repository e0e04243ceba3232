"""Functions that read text files of a workspace, in full or in part, and replace them atomically."""

import errno
import io
import itertools
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from governance.core.cancellation import CancellationToken
from governance.core.exceptions import ToolFailed
from governance.core.excerpts import spaced
from governance.core.tools import ToolContext
from governance.toolbox.quotas import require_room, size_on_disk
from governance.toolbox.settings import ToolboxSettings
from governance.toolbox.workspace import Workspace, explained, shown

_SNIFF = 8192
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # opening a FIFO must not block
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def open_for_reading(workspace: Workspace, path: str) -> Iterator[io.BufferedReader]:
    """Open a file of the workspace in binary mode. Raise `ToolFailed` if it is not a regular file."""
    parts = workspace.locate(path)
    if not parts:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    with workspace.open_directory(parts[:-1]) as directory:
        descriptor = os.open(parts[-1], _READ, dir_fd=directory)
    try:
        _refuse_special(os.fstat(descriptor), path)
        binary = os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise
    with binary:
        yield binary


def _refuse_special(status: os.stat_result, path: str) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise ToolFailed(f"{shown(path)!r} is a directory: use list_files.")
    if not stat.S_ISREG(status.st_mode):
        raise ToolFailed(f"{shown(path)!r} is not a regular file.")


def refuse_binary(binary: io.BufferedReader, path: str) -> None:
    """Raise `ToolFailed` if there is a NUL byte at the beginning of the file."""
    if b"\0" in binary.peek(_SNIFF)[:_SNIFF]:
        raise not_text(path)


def not_text(path: str) -> ToolFailed:
    """Return the error for a file that is not text."""
    return ToolFailed(f"{shown(path)!r} is a binary file, or not UTF-8 text; it is not shown.")


def read_whole(workspace: Workspace, path: str, *, settings: ToolboxSettings) -> str:
    """Return the file's text with its line endings unchanged. Raise `ToolFailed` if it is too large or not text."""
    with explained(path), open_for_reading(workspace, path) as binary:
        content = binary.read(settings.file_max_bytes + 1)
    _refuse_large(len(content), path, settings=settings)
    if b"\0" in content:
        raise not_text(path)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        raise not_text(path) from None


def _refuse_large(size: int, path: str, *, settings: ToolboxSettings) -> None:
    if size > settings.file_max_bytes:
        raise ToolFailed(
            f"{shown(path)!r} would be over the limit of {spaced(settings.file_max_bytes)} bytes."
        )


def read_window(
    stream: io.TextIOWrapper, context: ToolContext, *, offset: int, limit: int, room: int
) -> str:
    """Return up to `limit` lines after the line `offset`, as many as fit, with a note that says where to continue."""
    lines_read: list[str] = []
    first = offset + 1
    for number in itertools.count():
        context.token.raise_if_cancelled()
        line, whole = _read_line(stream, room=room)
        if not line:
            break
        if number < offset:
            continue
        if lines_read and (len(line) > room or number >= offset + limit):
            return (
                "".join(lines_read)
                + f"\n… lines {first} to {number}; read on with offset={number} …"
            )
        lines_read.append(
            line if whole else line + f"\n… the rest of line {number + 1} left out …\n"
        )
        room -= len(line)
    if not lines_read:
        return "The file is empty." if not offset else f"There is nothing after line {offset}."
    return "".join(lines_read)


def _read_line(stream: io.TextIOWrapper, *, room: int) -> tuple[str, bool]:
    """Return the next line, cut at `room` characters, and whether it is complete.

    The rest of a longer line is skipped in pieces, because a line can be as long as the file.
    """
    size = max(room, 1)
    line = stream.readline(size + 1)
    if line.endswith("\n") or len(line) <= size:
        return line, True
    while (chunk := stream.readline(_SNIFF)) and not chunk.endswith("\n"):
        pass
    return line, False


def write_text(
    workspace: Workspace,
    path: str,
    *,
    text: str,
    token: CancellationToken,
    settings: ToolboxSettings,
) -> bool:
    """Write the text to a temporary file and rename it into place. Return whether the file existed before."""
    try:
        content = text.encode("utf-8")
    except UnicodeEncodeError:
        raise ToolFailed(
            "The text holds characters that UTF-8 cannot express (lone surrogates)."
        ) from None
    _refuse_large(len(content), path, settings=settings)
    parts = workspace.locate(path)
    if not parts or path.endswith("/"):
        raise ToolFailed(f"{shown(path)!r} is a directory, not a file.")
    with explained(path), workspace.open_directory(parts[:-1], create=True) as directory:
        old_status = _status_of(parts[-1], inside=directory, path=path)
        require_room(
            workspace.top, len(content) - _freed(old_status), token=token, settings=settings
        )
        mode = stat.S_IMODE(old_status.st_mode) if old_status else None
        _write_beside(parts[-1], content, inside=directory, mode=mode)
    return old_status is not None


def save_new(
    workspace: Workspace,
    stem: str,
    *,
    suffix: str,
    content: bytes,
    token: CancellationToken,
    settings: ToolboxSettings,
) -> str:
    """Write a file under an unused name at the top of the workspace. Return the name."""
    require_room(workspace.top, len(content), token=token, settings=settings)
    for number in itertools.count(1):
        name = f"{stem}-{number}{suffix}"
        with explained(name), workspace.open_directory(()) as directory:
            try:
                os.stat(name, dir_fd=directory, follow_symlinks=False)
            except FileNotFoundError:
                _write_beside(name, content, inside=directory, mode=None)
                return name
    raise AssertionError("numbers do not end")


def _status_of(name: str, *, inside: int, path: str) -> os.stat_result | None:
    try:
        status = os.stat(name, dir_fd=inside, follow_symlinks=False)
    except FileNotFoundError:
        return None
    _refuse_special(status, path)
    return status


def _freed(replaced: os.stat_result | None) -> int:
    """Return the number of bytes that replacing a file frees, which is 0 if the file has other hard links."""
    if replaced is None or replaced.st_nlink > 1:
        return 0
    return min(replaced.st_size, size_on_disk(replaced))


def _write_beside(name: str, content: bytes, *, inside: int, mode: int | None) -> None:
    temporary = f".{secrets.token_hex(8)}.tmp"
    descriptor = os.open(temporary, _CREATE, 0o600, dir_fd=inside)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
            if mode is not None:
                os.fchmod(stream.fileno(), mode)
        os.rename(temporary, name, src_dir_fd=inside, dst_dir_fd=inside)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=inside)
        raise
