"""What differs in a repository: the files from what is staged, and that from the last commit."""

import asyncio
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass

from governance.core.exceptions import ToolFailed
from governance.toolbox.git_repository import check_finished, check_unchanged, move_tip
from governance.toolbox.git_shadow import GITLINK, Index, ShadowRepository, run_to_end
from governance.toolbox.git_worktree import (
    Entry,
    Listing,
    Reader,
    copy_rules,
    directories_of,
    is_within,
    list_files,
)
from governance.toolbox.quotas import measure, require_room

_NOTHING_IGNORED = 1  # an exit status of check-ignore
_DIFFERENT = 1  # one of diff --quiet
_UNKNOWN = "??"


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What is staged, the files that were read, and what git does not know: new files and nested repositories."""

    paths: tuple[bytes, ...]
    index: Index
    files: Mapping[bytes, Entry]
    untracked: tuple[bytes, ...]
    nested: tuple[bytes, ...]

    def differences(self, index: Index) -> dict[bytes, Entry | None]:
        """Return what to stage in `index` to match the files; None = removed."""
        gone: dict[bytes, Entry | None] = {
            path: None
            for path, entry in index.entries.items()
            if path not in self.files
            and path not in self.index.sparse
            and entry.mode != GITLINK
            and is_within(path, self.paths)
        }
        return gone | {
            path: entry for path, entry in self.files.items() if index.entries.get(path) != entry
        }


async def read_changes(
    found: ShadowRepository,
    *,
    paths: tuple[str, ...] = (),
    untracked: bool = True,
    contents: bool = False,
) -> Changes:
    """Read the files within `paths`, or all; with `contents` the untracked ones too."""
    index = await found.read_index()
    tracked = frozenset(index.entries)
    within = tuple(os.fsencode(path) for path in paths)
    listing = await asyncio.to_thread(
        list_files, found.repository, found.context, within=within, tracked=tracked
    )
    news = await _without_ignored(found, listing, tracked) if untracked else Listing((), ())
    reader = Reader(
        repository=found.repository,
        context=found.context,
        algorithm=found.references.algorithm,
        objects=found.objects,
        known=frozenset(entry.id for entry in index.entries.values()),
    )
    known = tuple(path for path in listing.paths if path in tracked)
    files = await asyncio.to_thread(reader.read, known + (news.paths if contents else ()))
    return Changes(paths=within, index=index, files=files, untracked=news.paths, nested=news.nested)


async def write_tree(found: ShadowRepository, changes: Changes) -> str:
    """Return the id of a tree of what is tracked, as its files are now. The workspace is not written."""
    name = "now"
    await asyncio.to_thread(_copy_index, found, name)
    await found.stage(changes.differences(changes.index), name=name)
    _, said = await found.query("write-tree", "--missing-ok", index=name)
    return said.decode().strip()


async def commit(found: ShadowRepository, message: str, *, paths: tuple[str, ...]) -> str:
    """Commit the changes within `paths`, or all. Return git's output.

    Raises:
        ToolFailed: there is nothing to commit, or the repository is in no state for it.
    """
    await asyncio.to_thread(check_finished, found.repository)
    changes = await read_changes(found, paths=paths, contents=True)
    await found.stage(changes.differences(changes.index))
    name = await _stage_alone(found, changes) if paths else "index"
    status, _ = await found.query(
        "diff", "--cached", "--quiet", index=name, allowed=(0, _DIFFERENT)
    )
    if status != _DIFFERENT:
        raise ToolFailed("There is nothing to commit: no file has changed." + _left_out(changes))
    said = await found.git(
        "commit",
        "--no-verify",
        "--no-gpg-sign",
        "--cleanup=whitespace",
        f"--message={message}",
        index=name,
    )
    await run_to_end(_keep, found)
    return said + _left_out(changes)


async def read_staged(found: ShadowRepository) -> dict[bytes, str]:
    """Return the letter of what is staged of each path that differs from the last commit."""
    _, said = await found.query("diff", "--cached", "--name-status", "--no-renames", "-z")
    letters, paths = said.split(b"\0")[:-1:2], said.split(b"\0")[1::2]
    return {path: letter.decode() for letter, path in zip(letters, paths, strict=True)}


def render_status(found: ShadowRepository, changes: Changes, staged: Mapping[bytes, str]) -> str:
    """Return the branch and the changes as `git status --short` does."""
    references = found.references
    branch = references.head.removeprefix("refs/heads/")
    if not references.is_on_branch:
        branch = "HEAD (no branch)"
    elif not references.tip:
        branch = f"No commits yet on {branch}"
    marks = {path: f"{letter} " for path, letter in staged.items()}
    for path, entry in changes.differences(changes.index).items():
        marks[path] = marks.get(path, " ")[0] + _letter(changes.index.entries.get(path), entry)
    marks |= dict.fromkeys(changes.index.unmerged, "UU")
    lines = [f"{mark} {_quoted(path)}" for path, mark in sorted(marks.items())]
    known = directories_of(changes.index.entries)
    unknown = {_highest(path, known) for path in changes.untracked}
    unknown |= {path + b"/" for path in changes.nested}
    lines += [f"{_UNKNOWN} {_quoted(path)}" for path in sorted(unknown)]
    return "\n".join((f"## {branch}", *lines))


def _letter(before: Entry | None, now: Entry | None) -> str:
    """Return what git calls the change: gone, another kind of file, or other content or rights."""
    if now is None:
        return "D"
    return "M" if before is None or before.mode[:3] == now.mode[:3] else "T"


async def _without_ignored(
    found: ShadowRepository, listing: Listing, tracked: frozenset[bytes]
) -> Listing:
    """Return what is not tracked and not to be ignored. Git decides, by copies of the rules alone."""
    new = [path for path in listing.paths if path not in tracked]
    nested = [path for path in listing.nested if path not in tracked]
    if not new and not nested:
        return Listing((), ())
    await asyncio.to_thread(_show_rules, found, listing)
    # So that no name is taken for a pattern.
    told = b"".join(b"./%s\0" % path for path in new + nested)
    _, said = await found.query(
        "check-ignore", "-z", "--stdin", told=told, allowed=(0, _NOTHING_IGNORED)
    )
    ignored = {path.removeprefix(b"./") for path in said.split(b"\0")}
    return Listing(
        tuple(path for path in new if path not in ignored),
        tuple(path for path in nested if path not in ignored),
    )


def _show_rules(found: ShadowRepository, listing: Listing) -> None:
    copy_rules(found.repository, listing.paths, to=found.tree)
    for path in listing.nested:
        found.context.token.raise_if_cancelled()
        (found.tree / os.fsdecode(path)).mkdir(parents=True, exist_ok=True)


async def _stage_alone(found: ShadowRepository, changes: Changes) -> str:
    """Make an index of the last commit and these changes only. Return its name."""
    name = "partial"
    base = (found.references.tip,) if found.references.tip else ("--empty",)
    await found.query("read-tree", *base, index=name)
    await found.stage(changes.differences(await found.read_index(name)), name=name)
    return name


def _copy_index(found: ShadowRepository, name: str) -> None:
    if found.index:
        shutil.copyfile(found.place / "git" / "index", found.place / "git" / name)


def _keep(found: ShadowRepository) -> None:
    """Bring the commit into the workspace: its objects, then the branch, then what is staged."""
    repository = found.repository
    index = (found.place / "git" / "index").read_bytes()
    with repository.rewriting("index", index):
        check_unchanged(found.index, repository.read("index"))
        made = tuple(found.objects.glob("[0-9a-f][0-9a-f]/*"))
        root, room = repository.workspace.top, sum(place.stat().st_size for place in made)
        measure(root, found.settings)
        require_room(root, room, token=found.context.token, settings=found.settings)
        for place in made:
            repository.add_object(f"{place.parent.name}/{place.name}", place.read_bytes())
        move_tip(repository, before=found.references, after=found.tip())


def _left_out(changes: Changes) -> str:
    """Return a sentence on directories that were left out, if any."""
    if not changes.nested:
        return ""
    names = ", ".join(f"{_quoted(path)}/" for path in changes.nested)
    return f"\nLeft out, as they are repositories of their own: {names}"


def _highest(path: bytes, known: set[bytes]) -> bytes:
    """Return the path, or the highest directory above it that holds nothing known."""
    parts = path.split(b"/")
    for length in range(1, len(parts)):
        above = b"/".join(parts[:length])
        if above not in known:
            return above + b"/"
    return path


def _quoted(path: bytes) -> str:
    """Return the path as git prints it: quoted where it holds what could be misread."""
    text = path.decode("utf-8", "replace")
    plain = "".join(_ESCAPES.get(c) or (c if c.isprintable() else _octal(c)) for c in text)
    return f'"{plain}"' if plain != text or " " in text else text


_ESCAPES = {"\n": "\\n", "\t": "\\t", "\r": "\\r", '"': '\\"', "\\": "\\\\"}


def _octal(character: str) -> str:
    return "".join(f"\\{byte:03o}" for byte in character.encode("utf-8", "replace"))
