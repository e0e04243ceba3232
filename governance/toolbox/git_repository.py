"""A git repository inside a workspace, which our own code reads and writes as data.

A tool that may write files may write a repository's `.git`. Git runs programs that are named there, in nested
repositories too. So git never runs in a workspace. Only data is read from `.git`: where HEAD points, the references,
the index and the objects. Configuration, hooks and attributes are not even read.
"""

import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from governance.core.cancellation import CancellationToken
from governance.core.exceptions import ToolFailed
from governance.core.excerpts import spaced
from governance.toolbox.text_files import open_for_reading
from governance.toolbox.workspace import Workspace, explained, shown

GIT_DIRECTORY = ".git"
_LARGEST = (
    100_000_000  # bytes of an index or of packed references; real ones have a tenth of it at most
)
_LARGEST_REFERENCE = 4096  # bytes; it holds an id, or a name that is no longer than a path
_MOST_LOOSE = 10_000  # references in files of their own; git packs them long before
_SYMBOLIC = "ref: "
_ID = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_REFERENCE = re.compile(
    r"refs/(?!.*(?:\.\.|//|@\{|/\.|\.lock(?:/|$)))[^\x00-\x20\x7f~^:?*\[\\]+(?<![./])"
)
_UNFINISHED = ("MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "rebase-merge", "rebase-apply")
_FILES = {  # of a new repository, for people who continue with git
    "config": b"[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n\tlogallrefupdates = true\n",
    "HEAD": b"ref: refs/heads/main\n",
}
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True, kw_only=True)
class References:
    """Where HEAD points, the name of a branch or an id, and the id of each reference by its name."""

    head: str
    ids: dict[str, str]

    @property
    def tip(self) -> str:
        """The id of the current commit; empty without one."""
        return self.ids.get(self.head, "") if self.is_on_branch else self.head

    @property
    def is_on_branch(self) -> bool:
        """Whether HEAD names a branch, and not a commit."""
        return self.head.startswith("refs/")

    @property
    def algorithm(self) -> str:
        """The name of the hash that ids are made with."""
        known = (self.tip, *self.ids.values())
        return "sha256" if any(len(found) == 64 for found in known) else "sha1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Repository:
    """Where a repository lies in a workspace: its files below `top`, what git keeps of them below `store`.

    It is read for one call, in threads that the whole process shares. They end once the call's `token` is cancelled.
    """

    workspace: Workspace
    top: tuple[str, ...]
    store: tuple[str, ...]
    token: CancellationToken

    @property
    def objects(self) -> Path:
        return self.workspace.root.joinpath(*self.store, "objects")

    def has(self, name: str) -> bool:
        """Whether its store has something of this name."""
        with self.workspace.open_directory(self.store) as directory:
            try:
                os.stat(name, dir_fd=directory, follow_symlinks=False)
            except FileNotFoundError:
                return False
        return True

    def walk(self, name: str) -> Iterator[tuple[tuple[str, ...], list[os.DirEntry[str]]]]:
        """Give every directory of `.git` at and below `name`: its components below that, and its entries."""
        for below, _, entries in self.workspace.walk((*self.store, name)):
            self.token.raise_if_cancelled()
            yield below, entries

    def read(self, name: str, *, limit: int = _LARGEST) -> bytes:
        """Return a file of `.git`; nothing if there is none. Raise `ToolFailed` for a special or large file."""
        self.token.raise_if_cancelled()
        path = "/".join((*self.store, *name.split("/")))
        try:
            with explained(path), open_for_reading(self.workspace, path) as stream:
                content = stream.read(limit + 1)
        except ToolFailed as refusal:
            if isinstance(refusal.__cause__, FileNotFoundError | NotADirectoryError):
                return b""
            raise
        if len(content) > limit:
            raise ToolFailed(f"The repository is damaged: {shown(path)!r} is too large.")
        return content

    @contextmanager
    def rewriting(self, name: str, content: bytes) -> Iterator[None]:
        """Write a file of `.git` as git does: under git's lock, in one step at the end.

        Raises:
            ToolFailed: another process is writing it.
        """
        *above, last = (*self.store, *name.split("/"))
        path = "/".join((*above, last))
        with explained(path), self.workspace.open_directory(tuple(above), create=True) as directory:
            try:
                lock = os.open(f"{last}.lock", _CREATE, 0o600, dir_fd=directory)
            except FileExistsError:
                raise ToolFailed(
                    f"Another program is working on the repository. If there is none, delete {shown(path)}.lock."
                ) from None
            try:
                with os.fdopen(lock, "wb") as stream:
                    stream.write(content)
                yield
                os.rename(f"{last}.lock", last, src_dir_fd=directory, dst_dir_fd=directory)
            except BaseException:
                os.unlink(f"{last}.lock", dir_fd=directory)
                raise

    def add_object(self, name: str, content: bytes) -> None:
        """Add an object to the store, by its path there, unless the store has it."""
        above, last = name.split("/")
        parts = (*self.store, "objects", above)
        with (
            explained("/".join(parts)),
            self.workspace.open_directory(parts, create=True) as directory,
        ):
            if last in os.listdir(directory):
                return
            temporary = f"tmp_obj_{secrets.token_hex(8)}"
            with os.fdopen(os.open(temporary, _CREATE, 0o444, dir_fd=directory), "wb") as stream:
                stream.write(content)
            os.rename(temporary, last, src_dir_fd=directory, dst_dir_fd=directory)


def find_repository(
    workspace: Workspace, directory: str, *, token: CancellationToken
) -> Repository | None:
    """Return the repository that `directory` belongs to, the nearest one above it in the workspace, or None.

    Raises:
        ToolFailed: there is no such directory, or its repository is kept elsewhere or damaged.
    """
    parts = workspace.locate(directory)
    with explained(directory), workspace.open_directory(parts):
        pass
    for length in range(len(parts), -1, -1):
        repository = _repository_at(workspace, parts[:length], token=token)
        if repository is not None and repository.has("HEAD"):
            _check_objects(repository)
            return repository
    return None


def make_repository(
    workspace: Workspace, directory: str, *, token: CancellationToken
) -> Repository:
    """Make a repository without a commit in `directory`, and return it."""
    top = workspace.locate(directory)
    made = Repository(workspace=workspace, top=top, store=(*top, GIT_DIRECTORY), token=token)
    with explained(directory):
        for below in ("objects/info", "objects/pack", "refs/heads", "refs/tags"):
            with workspace.open_directory((*made.store, *below.split("/")), create=True):
                pass
    for name, content in _FILES.items():
        if not made.has(name):
            with made.rewriting(name, content):
                pass
    _check_objects(made)
    return made


def read_references(repository: Repository) -> References:
    """Return where its HEAD points and its references. Raise `ToolFailed` if that cannot be made out."""
    head = _read_reference(repository, "HEAD").removeprefix(_SYMBOLIC)
    if not (_ID.fullmatch(head) or _REFERENCE.fullmatch(head)) or repository.has("reftable"):
        raise ToolFailed(
            "The repository is damaged, or kept in a form that is not supported: its HEAD names no branch and no commit."
        )
    ids = {}
    for line in repository.read("packed-refs").decode("utf-8", "replace").splitlines():
        repository.token.raise_if_cancelled()
        found, _, name = line.partition(" ")
        if _ID.fullmatch(found) and _REFERENCE.fullmatch(name):
            ids[name] = found
    return References(head=head, ids=ids | _loose_references(repository))


def paths_inside(repository: Repository, paths: tuple[str, ...]) -> tuple[str, ...]:
    """Return the paths relative to the repository's top. Raise `ToolFailed` if one leads outside."""
    top = repository.workspace.root.joinpath(*repository.top)
    found = []
    for path in paths:
        repository.workspace.locate(str(top / path))
        absolute = os.path.normpath(top / path)
        if not Path(absolute).is_relative_to(top):
            raise ToolFailed(f"{shown(path)!r} is outside the repository.")
        found.append(os.path.relpath(absolute, top))
    return tuple(found)


def check_finished(repository: Repository) -> None:
    """Raise `ToolFailed` if a merge or the like was begun and not finished."""
    for name in _UNFINISHED:
        if repository.has(name):
            raise ToolFailed(
                f"The repository is in the middle of a merge or a rebase ({name}). Finish or abort it with git itself."
            )


def move_tip(repository: Repository, *, before: References, after: str) -> None:
    """Move the branch of HEAD, or HEAD itself, to another commit. Raise `ToolFailed` if it has moved."""
    name = before.head if before.is_on_branch else "HEAD"
    with repository.rewriting(name, f"{after}\n".encode()):
        check_unchanged(before.tip, read_references(repository).tip)


def check_unchanged(before: str | bytes, now: str | bytes) -> None:
    """Raise `ToolFailed` if what was read of a repository is no longer so."""
    if now != before:
        raise ToolFailed("The repository has changed meanwhile. Try again.")


def _repository_at(
    workspace: Workspace, top: tuple[str, ...], *, token: CancellationToken
) -> Repository | None:
    with workspace.open_directory(top) as directory:
        if GIT_DIRECTORY not in os.listdir(directory):
            return None
    place = "/".join((*top, GIT_DIRECTORY))
    try:
        store = workspace.locate(place)
        with workspace.open_directory(store):
            pass
    except (ToolFailed, NotADirectoryError):
        raise ToolFailed(
            f"What git keeps of this directory lies elsewhere ({shown(place)} is no directory of the workspace), as with "
            "submodules and linked work trees. That is not followed."
        ) from None
    return Repository(workspace=workspace, top=top, store=store, token=token)


def _check_objects(repository: Repository) -> None:
    """Refuse objects that lie elsewhere: git would read them from there."""
    if repository.has("commondir"):
        raise ToolFailed(
            "This is a linked work tree: its history lies elsewhere. That is not followed."
        )
    try:
        for below, entries in repository.walk("objects"):
            # A file system that is blind to case gives it under any spelling.
            names = {"/".join((*below, entry.name)).casefold() for entry in entries}
            if "info/alternates" in names or any(entry.is_symlink() for entry in entries):
                raise ToolFailed(
                    "The repository borrows its history from another one; that is not followed."
                )
    except OSError:
        raise ToolFailed(
            "The repository is damaged, or its objects lie elsewhere; that is not followed."
        ) from None


def _loose_references(repository: Repository) -> dict[str, str]:
    found = {}
    left = _MOST_LOOSE
    for below, entries in repository.walk("refs"):
        left -= len(entries)
        if left < 0:
            raise ToolFailed(
                f"The repository has more than {spaced(_MOST_LOOSE)} references in files of their own. Pack them with "
                "git itself: git pack-refs --all."
            )
        for entry in entries:
            name = "/".join(("refs", *below, entry.name))
            if entry.is_file(follow_symlinks=False) and _REFERENCE.fullmatch(name):
                text = _read_reference(repository, name)
                if _ID.fullmatch(text):
                    found[name] = text
    return found


def _read_reference(repository: Repository, name: str) -> str:
    content = repository.read(name, limit=_LARGEST_REFERENCE)
    return content.decode("utf-8", "replace").strip()
