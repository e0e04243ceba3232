"""A server-owned git directory that stands in for a workspace's, so that git can run safely.

It is made for one call, outside the workspace. It has the server's configuration and no hooks. Its work tree has only
ignore rules. Git reads the workspace's objects, and nothing else of it.
"""

import asyncio
import os
import secrets
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from email.utils import parseaddr
from pathlib import Path
from typing import ParamSpec, TypeVar

from governance.core.cancellation import CancellationToken
from governance.core.exceptions import ToolFailed
from governance.core.tools import ToolContext
from governance.toolbox.commands import SEARCH_PATH, Launch, name_ending, run, scrub
from governance.toolbox.git_repository import (
    References,
    Repository,
    find_repository,
    make_repository,
    read_references,
)
from governance.toolbox.git_worktree import Entry
from governance.toolbox.output import Output
from governance.toolbox.sandbox import Sandbox, require_sandbox
from governance.toolbox.settings import ToolboxSettings
from governance.toolbox.workspace import Workspace, find_workspace

P = ParamSpec("P")
T = TypeVar("T")

GITLINK = "160000"  # the mode of a repository in a repository
_OPTIONS = ("--no-pager", "--no-replace-objects")
_CONFIGURATION = """\
[core]
	repositoryformatversion = 1
	bare = false
	quotePath = false
[extensions]
	objectFormat = {algorithm}
[gc]
	auto = 0
[maintenance]
	auto = false
[protocol]
	allow = never
[advice]
	detachedHead = false
"""
_ENVIRONMENT = {
    "GIT_ALLOW_PROTOCOL": "",
    "GIT_ASKPASS": "/bin/false",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_EDITOR": "/bin/false",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
}
# Git's input and output are lists of any length and any bytes, so they go through files.
_REDIRECT = 'cd "$0" && exec "$@" <told >said'


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """The staged files: entries by path; `sparse` ones have no file on purpose, `unmerged` ones have several versions."""

    entries: Mapping[bytes, Entry]
    sparse: frozenset[bytes]
    unmerged: frozenset[bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowRepository:
    """The directory, the repository that it stands in for, and its call."""

    place: Path
    repository: Repository
    references: References
    index: bytes
    identities: Mapping[Path, str]
    sandbox: Sandbox
    context: ToolContext
    settings: ToolboxSettings

    @property
    def objects(self) -> Path:
        """Where git puts new objects."""
        return self.place / "git" / "objects"

    @property
    def tree(self) -> Path:
        """The work tree that git is shown."""
        return self.place / "tree"

    def tip(self) -> str:
        """Return the id of the current commit as git has left it."""
        return read_tip(self.place / "git", self.references)

    async def git(self, *arguments: str, index: str = "index") -> str:
        """Run git and return its output for the model. Raise `ToolFailed` if it fails."""
        command = ("git", *_OPTIONS, "--literal-pathspecs", *arguments)
        status, said = await self._run(command, self.context, index=index)
        self._check(status, said, arguments, allowed=(0,))
        return said

    async def query(
        self,
        *arguments: str,
        told: bytes = b"",
        index: str = "index",
        allowed: tuple[int, ...] = (0,),
    ) -> tuple[int, bytes]:
        """Run git with an input and return its exit status, one of the `allowed`, and its exact output."""
        await asyncio.to_thread((self.place / "told").write_bytes, told)
        command = ("/bin/sh", "-c", _REDIRECT, str(self.place), "git", *_OPTIONS, *arguments)
        quiet = replace(self.context, report=lambda _: None)
        status, said = await self._run(command, quiet, index=index)
        self._check(status, said, arguments, allowed=allowed)
        return status, await asyncio.to_thread((self.place / "said").read_bytes)

    async def read_index(self, name: str = "index") -> Index:
        _, said = await self.query("ls-files", "--stage", "-t", "-z", index=name)
        entries, sparse, unmerged = {}, set(), set()
        for record in filter(None, said.split(b"\0")):
            facts, _, path = record.partition(b"\t")
            tag, mode, found, stage = facts.decode().split()
            entries[path] = Entry(mode, found)
            if stage != "0":
                unmerged.add(path)
            if tag == "S":
                sparse.add(path)
        return Index(entries=entries, sparse=frozenset(sparse), unmerged=frozenset(unmerged))

    async def stage(self, changes: Mapping[bytes, Entry | None], *, name: str = "index") -> None:
        """Change what is staged: entries by path, None for one to take out."""
        if not changes:
            return
        nothing = Entry("0", "0" * (64 if self.references.algorithm == "sha256" else 40))
        lines = [
            b"%s %s\t%s\0"
            % ((entry or nothing).mode.encode(), (entry or nothing).id.encode(), path)
            for path, entry in changes.items()
        ]
        await self.query("update-index", "-z", "--index-info", told=b"".join(lines), index=name)

    async def _run(
        self, command: tuple[str, ...], context: ToolContext, *, index: str = "index"
    ) -> tuple[int, str]:
        settings = self.settings
        output = Output(
            context, limit=settings.exec_output_limit, interval=settings.exec_report_interval
        )
        launch = Launch(
            arguments=command,
            directory=self.tree,
            environment=self._environment(index),
            workspace=self.place,
            sandbox=replace(self.sandbox, network=False, readable=(str(self.repository.objects),)),
            identities=self.identities,
        )
        status = await run(launch, output, context=context, settings=settings)
        return status, output.text

    def _environment(self, index: str) -> dict[str, str]:
        name, address = parseaddr(self.settings.git_author)
        return {
            **scrub(home=self.place),
            **_ENVIRONMENT,
            "GIT_DIR": str(self.place / "git"),
            "GIT_WORK_TREE": str(self.tree),
            "GIT_INDEX_FILE": str(self.place / "git" / index),
            "GIT_AUTHOR_NAME": name or address,
            "GIT_AUTHOR_EMAIL": address,
            "GIT_COMMITTER_NAME": name or address,
            "GIT_COMMITTER_EMAIL": address,
        }

    def _check(
        self, status: int, said: str, arguments: tuple[str, ...], *, allowed: tuple[int, ...]
    ) -> None:
        if status not in allowed:
            how = name_ending(status, sandbox=self.sandbox)
            raise ToolFailed(f"git {arguments[0]} ended {how}.\n{said}".rstrip())


@asynccontextmanager
async def open_shadow_repository(
    context: ToolContext, settings: ToolboxSettings, *, directory: str, init: bool = False
) -> AsyncIterator[ShadowRepository]:
    """Make a stand-in for the repository that `directory` belongs to, and take it away in the end.

    With `init` the repository is made if there is none.

    Raises:
        ToolFailed: git is missing, the sandbox that is demanded does not work, or there is no sound repository.
    """
    name = f"turnkeeper-git-{secrets.token_hex(8)}"
    try:
        yield await run_to_end(_make, name, context, settings, directory=directory, init=init)
    finally:
        await run_to_end(_remove, name)


async def run_to_end(function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """Run a function in a thread; a cancel waits for its end. What may take long looks at the call's token."""
    thread = asyncio.ensure_future(asyncio.to_thread(function, *arguments, **named))
    try:
        return await asyncio.shield(thread)
    except asyncio.CancelledError:
        await asyncio.wait({thread})
        raise


def read_tip(directory: Path, references: References) -> str:
    """Return the id of the current commit in a shadow directory."""
    name = references.head if references.is_on_branch else "HEAD"
    return (directory / name).read_text("ascii").strip()


def _remove(name: str) -> None:
    shutil.rmtree(Path(tempfile.gettempdir(), name), ignore_errors=True)


def _make(
    name: str, context: ToolContext, settings: ToolboxSettings, *, directory: str, init: bool
) -> ShadowRepository:
    workspace = find_workspace(context, settings)
    sandbox = require_sandbox(settings)
    if shutil.which("git", path=SEARCH_PATH) is None:
        raise ToolFailed("git could not be started: it is not installed on this server.")
    repository = _find_or_make(workspace, directory, init=init, token=context.token)
    references = read_references(repository)
    copies = {path: repository.read(path) for path in ("index", "shallow", "info/exclude")}
    place = Path(tempfile.gettempdir(), name).resolve()
    _write_shadow(place, repository, references=references, copies=copies)
    return ShadowRepository(
        place=place,
        repository=repository,
        references=references,
        index=copies["index"],
        identities=repository.workspace.identify((*repository.store, "objects")),
        sandbox=sandbox,
        context=context,
        settings=settings,
    )


def _find_or_make(
    workspace: Workspace, directory: str, *, init: bool, token: CancellationToken
) -> Repository:
    repository = find_repository(workspace, directory, token=token)
    if repository is None and init:
        repository = make_repository(workspace, directory, token=token)
    if repository is None:
        raise ToolFailed(
            "There is no git repository in this directory of the workspace. Name the directory that has one, or make "
            "one: git_commit with `init`."
        )
    return repository


def _write_shadow(
    place: Path, repository: Repository, *, references: References, copies: Mapping[str, bytes]
) -> None:
    """Write a repository that holds no more than its own configuration, the references and what was copied."""
    place.mkdir(mode=0o700)
    for below in ("tree", "git/info", "git/objects/info", "git/refs"):
        (place / below).mkdir(parents=True)
    own = place / "git"
    on_branch = "ref: " if references.is_on_branch else ""
    (own / "HEAD").write_text(f"{on_branch}{references.head}\n", "utf-8")
    (own / "config").write_text(_CONFIGURATION.format(algorithm=references.algorithm), "utf-8")
    lines = [f"{found} {name}\n" for name, found in sorted(references.ids.items())]
    (own / "packed-refs").write_text("".join(lines), "utf-8")
    (own / "objects" / "info" / "alternates").write_bytes(_quote(repository.objects) + b"\n")
    for path, content in copies.items():
        if content:
            (own / path).write_bytes(content)


def _quote(path: Path) -> bytes:
    """Return a path as git reads it between quotes, every byte escaped: a line break in it ends no line."""
    return b'"%s"' % b"".join(b"\\%03o" % byte for byte in os.fsencode(path))
