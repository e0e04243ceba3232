"""The workspace, in which a conversation's tools read and write, and functions that open files without leaving it.

A path is first resolved, and must then be inside the workspace. After that it is opened component by component, each
relative to the previous directory and never through a symbolic link. If a link replaces a component between the two
steps, the call fails.
"""

import errno
import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from governance.core.exceptions import ToolFailed
from governance.core.excerpts import shortened
from governance.core.tools import ToolContext
from governance.private_files import make_directory, restrict
from governance.toolbox.settings import ToolboxSettings

_SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_DEEPEST = 100  # levels of directories; deeper trees are useless and break programs that recurse
_SENTENCES = {
    errno.ENOENT: "There is no {path!r} in the workspace. See what there is with list_files.",
    errno.ENOTDIR: "A part of {path!r} is not a directory.",
    errno.EISDIR: "{path!r} is a directory, not a file.",
    errno.EACCES: "The server has no permission for {path!r}.",
    errno.EPERM: "The server has no permission for {path!r}.",
    errno.ELOOP: "{path!r} leads through a symbolic link that cannot be followed.",
    errno.ENAMETOOLONG: "The path {path!r} is too long.",
    errno.ENOSPC: "The disk is full: {path!r} was not written.",
    errno.EDQUOT: "The disk quota is used up: {path!r} was not written.",
}


class Workspace:
    """The directory of a conversation's tools, with methods that resolve and open paths inside it.

    It may be inside another workspace, `top`, at the path `below`. Tools that write to `top` could replace the
    directory with a link, so no link is followed on the way to it.
    """

    def __init__(self, top: Path, *, below: tuple[str, ...] = ()) -> None:
        self.top = Path(os.path.realpath(top))
        self._below = below
        self.root = self.top.joinpath(*below) if below else self.top

    def locate(self, path: str) -> tuple[str, ...]:
        """Resolve `path` and its symbolic links. Return its components below the root, or raise `ToolFailed`."""
        try:
            resolved = Path(os.path.realpath(self.root / path))
        except (ValueError, OSError):  # it contains NUL or a lone surrogate
            raise ToolFailed(f"{shown(path)!r} is not a usable path.") from None
        if not resolved.is_relative_to(self.root):
            raise ToolFailed(
                f"{shown(path)!r} is outside the workspace. Use a path inside it, relative to its top."
            )
        return resolved.relative_to(self.root).parts

    @contextmanager
    def open_directory(self, parts: tuple[str, ...], *, create: bool = False) -> Iterator[int]:
        """Yield a file descriptor of the directory at `parts`. With `create`, create missing directories."""
        if create and len(parts) > _DEEPEST:
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
        current = os.open(self.top, _DIRECTORY)
        try:
            for part in (*self._below, *parts):
                following = _step(part, inside=current, create=create)
                os.close(current)
                current = following
            yield current
        finally:
            os.close(current)

    def identify(self, parts: tuple[str, ...]) -> dict[Path, str]:
        """Return the path, device and inode of the directory at `parts`, in the form that `Sandbox.wrap` accepts."""
        with self.open_directory(parts) as directory:
            status = os.fstat(directory)
        return {self.root.joinpath(*parts): f"{status.st_dev}:{status.st_ino}"}


def workspace_at(root: Path, *, within: Path | None) -> Workspace:
    """Return the workspace at `root`.

    `within` is the directory that contains all workspaces. Only the server writes to it, whereas tools write to the
    directories inside it, which therefore may contain links.
    """
    depth = len(within.parts) if within else 0
    if within is None or root.parts[:depth] != within.parts or len(root.parts) == depth:
        return Workspace(root)
    top, *subfolders = root.parts[depth:]
    return Workspace(within / top, below=tuple(subfolders))


def find_workspace(context: ToolContext, settings: ToolboxSettings) -> Workspace:
    """Return the workspace of the call, and create it if needed. Raise `ToolFailed` if none is configured."""
    root = context.workspace
    within = Path(settings.workspace_root) if settings.workspace_root else None
    if root is None and within is not None:
        root = within / _name_directory(context.scope)
        restrict(root)
    if root is None:
        raise ToolFailed(
            "This conversation has no workspace directory. An administrator can give it one: "
            "GOVERNANCE_WORKSPACE_ROOT."
        )
    workspace = workspace_at(root, within=within)
    with usable():
        if not workspace.top.is_dir():
            make_directory(workspace.top)
        with workspace.open_directory((), create=True):
            return workspace


@contextmanager
def usable() -> Iterator[None]:
    """Convert an `OSError` about the workspace itself to a `ToolFailed` with a sentence for the model."""
    try:
        yield
    except OSError as error:
        raise ToolFailed(f"The workspace directory cannot be used: {_reason(error)}.") from error


@contextmanager
def explained(path: str) -> Iterator[None]:
    """Convert an `OSError` about `path` to a `ToolFailed` with a sentence for the model."""
    try:
        yield
    except OSError as error:
        sentence = _SENTENCES.get(error.errno or 0, f"{{path!r}} cannot be used: {_reason(error)}.")
        raise ToolFailed(sentence.format(path=shown(path))) from error


def shown(name: str, *, limit: int = 200) -> str:
    """Return a name, which may contain any bytes, as text that can be stored and displayed."""
    text = name.encode("utf-8", "replace").decode("utf-8")
    text = "".join(character if character.isprintable() else "\ufffd" for character in text)
    return shortened(text, limit=limit)


def _step(part: str, *, inside: int, create: bool) -> int:
    try:
        return os.open(part, _DIRECTORY, dir_fd=inside)
    except FileNotFoundError:
        if not create:
            raise
    with suppress(FileExistsError):  # another call has created it
        os.mkdir(part, mode=0o700, dir_fd=inside)
    return os.open(part, _DIRECTORY, dir_fd=inside)


def _name_directory(scope: str) -> str:
    """Return the scope if it is a plain name, and otherwise its digest, so that it cannot lead outside the root."""
    if _SAFE_NAME.fullmatch(scope):
        return scope
    return hashlib.sha256(scope.encode("utf-8", "surrogatepass")).hexdigest()


def _reason(error: OSError) -> str:
    return os.strerror(error.errno) if error.errno else "the system refused it"
