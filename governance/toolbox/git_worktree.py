"""The current files of a repository, read by our own code, never by git.

A blob holds exactly the file's bytes: filters and line-end conversions, which a repository could configure, are not
applied. A directory with a `.git` of its own is another repository and is skipped.
"""

import errno
import hashlib
import io
import itertools
import os
import stat
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from governance.core.exceptions import ToolFailed
from governance.core.excerpts import spaced
from governance.core.tools import ToolContext
from governance.toolbox.git_repository import GIT_DIRECTORY, Repository
from governance.toolbox.workspace import explained, shown

_PIECE = 1 << 20
_RULES = b".gitignore"
_RULES_LIMIT = 10_000_000  # bytes of every .gitignore together
_LINK, _FILE, _PROGRAM = "120000", "100644", "100755"
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a FIFO must not block


@dataclass(frozen=True, slots=True)
class Entry:
    """What git keeps of a file: its mode in octal digits, and the id of its content."""

    mode: str
    id: str


@dataclass(frozen=True, slots=True)
class Listing:
    """The files that there are, by their paths, and the directories that are repositories of their own."""

    paths: tuple[bytes, ...]
    nested: tuple[bytes, ...]


def list_files(
    repository: Repository,
    context: ToolContext,
    *,
    within: tuple[bytes, ...],
    tracked: frozenset[bytes],
) -> Listing:
    """List what lies `within` the paths, all if there are none. A nested repository with `tracked` files is entered."""
    holding = directories_of(tracked)
    paths, nested = [], []
    for below, _, entries in repository.workspace.walk(repository.top):
        context.token.raise_if_cancelled()
        here = os.fsencode("/".join(below))
        if below and here not in holding and any(_is_git(entry.name) for entry in entries):
            nested.append(here)
            entries.clear()
        for entry in list(entries):
            path = os.fsencode("/".join((*below, entry.name)))
            is_directory = entry.is_dir(follow_symlinks=False)
            if _is_git(entry.name) or not is_within(path, within, is_directory=is_directory):
                entries.remove(entry)
            elif entry.is_symlink() or entry.is_file(follow_symlinks=False):
                paths.append(path)
    return Listing(tuple(paths), tuple(nested))


def is_within(path: bytes, wanted: tuple[bytes, ...], *, is_directory: bool = False) -> bool:
    """Return whether it is, or is below, a wanted path; a directory may also be above one. No wanted path = all."""
    if not wanted or b"." in wanted:
        return True
    return any(
        path == root
        or path.startswith(root + b"/")
        or (is_directory and root.startswith(path + b"/"))
        for root in wanted
    )


def directories_of(paths: Iterable[bytes]) -> set[bytes]:
    """Return every directory that one of the paths lies in."""
    found: set[bytes] = set()
    for path in paths:
        while path := path.rpartition(b"/")[0]:
            if path in found:
                break
            found.add(path)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """Reads files as git stores them; content whose id is not `known` is written as an object below `objects`."""

    repository: Repository
    context: ToolContext
    algorithm: str
    objects: Path
    known: frozenset[str]

    def read(self, paths: Iterable[bytes]) -> dict[bytes, Entry]:
        """Return what git keeps of each file. Raise `ToolFailed` if one cannot be read."""
        found = {}
        for path in paths:
            with (
                explained(os.fsdecode(path)),
                suppress(FileNotFoundError, NotADirectoryError),  # gone meanwhile
                _opened(self.repository, path) as (mode, stream),
            ):
                found[path] = Entry(mode, self._identify(stream, path))
        return found

    def _identify(self, stream: BinaryIO, path: bytes) -> str:
        size = stream.seek(0, os.SEEK_END)
        if (found := self._digest(stream, size, path)) in self.known:
            return found
        draft = self.objects / "draft"
        packer = zlib.compressobj(1)
        with draft.open("wb") as target:
            found = self._digest(
                stream, size, path, copy=lambda piece: target.write(packer.compress(piece))
            )
            target.write(packer.flush())
        place = self.objects / found[:2]
        place.mkdir(exist_ok=True)
        draft.rename(place / found[2:])
        return found

    def _digest(
        self,
        stream: BinaryIO,
        size: int,
        path: bytes,
        *,
        copy: Callable[[bytes], object] = lambda _: None,
    ) -> str:
        stream.seek(0)
        hasher = hashlib.new(self.algorithm, usedforsecurity=False)
        pieces = iter(lambda: stream.read(_PIECE), b"")
        for piece in itertools.chain((b"blob %d\0" % size,), pieces):
            self.context.token.raise_if_cancelled()
            hasher.update(piece)
            copy(piece)
        if stream.tell() != size:
            raise ToolFailed(
                f"{shown(os.fsdecode(path))!r} was written while it was read. Try again."
            )
        return hasher.hexdigest()


def copy_rules(repository: Repository, paths: Iterable[bytes], *, to: Path) -> None:
    """Copy what says which files to ignore, into the same directories below `to`. Raise `ToolFailed` if it is too much."""
    left = _RULES_LIMIT
    for path in paths:
        if path.rpartition(b"/")[2] != _RULES:
            continue
        repository.token.raise_if_cancelled()
        with suppress(OSError), _opened(repository, path) as (mode, stream):
            if mode != _LINK:
                rules = stream.read(left + 1)
                left -= len(rules)
                if left < 0:
                    raise ToolFailed(
                        f"The files that say what git ignores take more than {spaced(_RULES_LIMIT)} bytes together. "
                        "Shorten them."
                    )
                target = to / os.fsdecode(path)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(rules)


@contextmanager
def _opened(repository: Repository, path: bytes) -> Iterator[tuple[str, BinaryIO]]:
    """Give a file's mode and its content: of a link where it points to. No directory on the way may be a link."""
    *above, name = os.fsdecode(path).split("/")
    with repository.workspace.open_directory((*repository.top, *above)) as directory:
        if stat.S_ISLNK(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
            yield _LINK, io.BytesIO(os.fsencode(os.readlink(name, dir_fd=directory)))
            return
        with os.fdopen(os.open(name, _READ, dir_fd=directory), "rb") as stream:
            mode = os.fstat(stream.fileno()).st_mode
            if not stat.S_ISREG(mode):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
            yield _PROGRAM if mode & stat.S_IXUSR else _FILE, stream


def _is_git(name: str) -> bool:
    """Whether it is what git takes for its own, on a file system that is blind to case too."""
    return name.casefold() == GIT_DIRECTORY
