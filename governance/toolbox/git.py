"""The git tools: what has changed, what was done, and a commit, in a repository of the workspace (G1)."""

import asyncio
import re
from typing import Annotated

from pydantic import Field

from governance.core.exceptions import ToolFailed
from governance.core.registry import make_tool
from governance.core.tools import Concurrency, Tool, ToolContext
from governance.toolbox.commands import name_ending
from governance.toolbox.repositories import Repository, git, open_repository, paths_inside
from governance.toolbox.settings import SettingsSource

_TIMEOUT = 60.0
_REVISION = re.compile(r"[A-Za-z0-9_@][A-Za-z0-9_@./^~{}:+-]*")
_LOG = "--format=commit %h%d%nAuthor: %an <%ae>%nDate:   %ad%n%n%w(0,4,4)%B"

Directory = Annotated[str, Field(description="A directory of the repository, in the workspace.")]
Paths = Annotated[
    tuple[str, ...],
    Field(description="Files and directories, relative to the repository; empty: all."),
]


def make_git_tools(settings: SettingsSource) -> tuple[Tool, ...]:
    """Return the tools. None of them ever overlaps another call that changes files (P2)."""
    tools = GitTools(settings)
    return (
        *(
            make_tool(function, timeout=_TIMEOUT, concurrency=Concurrency.EXCLUSIVE)
            for function in (tools.git_status, tools.git_diff, tools.git_log)
        ),
        make_tool(
            tools.git_commit,
            timeout=_TIMEOUT,
            concurrency=Concurrency.EXCLUSIVE,
            side_effects=True,
        ),
    )


class GitTools:
    """Works on repositories as the settings of the moment allow."""

    def __init__(self, settings: SettingsSource) -> None:
        self._settings = settings

    async def git_status(self, context: ToolContext, directory: Directory = ".") -> str:
        """Show the branch and the files that are changed, staged or not tracked."""
        repository = await self._open(context, directory)
        return await self._git(
            context,
            repository,
            "status",
            "--short",
            "--branch",
            "--untracked-files=normal",
            "--ignore-submodules=all",
        )

    async def git_diff(
        self,
        context: ToolContext,
        directory: Directory = ".",
        paths: Paths = (),
        revision: Annotated[
            str, Field(description="Compare with this commit or range; empty: with the index.")
        ] = "",
        *,
        staged: Annotated[bool, Field(description="Show what is staged.")] = False,
    ) -> str:
        """Show changes line by line: of the files, of what is staged, or between commits."""
        repository = await self._open(context, directory)
        said = await self._git(
            context,
            repository,
            "diff",
            "--no-ext-diff",
            "--no-textconv",
            "--no-color",
            "--ignore-submodules=all",
            *(("--cached",) if staged else ()),
            *_revision(revision),
            "--",
            *await _inside(repository, paths),
        )
        return said or "There is no difference."

    async def git_log(
        self,
        context: ToolContext,
        directory: Directory = ".",
        paths: Paths = (),
        revision: Annotated[
            str, Field(description="Begin at this commit or branch; empty: at the current one.")
        ] = "",
        limit: Annotated[int, Field(ge=1, le=200, description="Commits to show.")] = 20,
    ) -> str:
        """Show commits, the newest first: number, author, date and message."""
        repository = await self._open(context, directory)
        return await self._git(
            context,
            repository,
            "log",
            f"--max-count={limit}",
            "--no-color",
            "--no-show-signature",
            "--no-mailmap",
            "--date=iso-strict",
            "--decorate=short",
            _LOG,
            *_revision(revision),
            "--",
            *await _inside(repository, paths),
        )

    async def git_commit(
        self,
        context: ToolContext,
        message: Annotated[str, Field(min_length=1, max_length=20_000, description="Why.")],
        directory: Directory = ".",
        paths: Paths = (),
        *,
        init: Annotated[
            bool, Field(description="Make the repository first: there is none.")
        ] = False,
    ) -> str:
        """Commit the changes of the given paths, or every change, new files included. Nothing is pushed anywhere."""
        if not message.strip():
            raise ToolFailed("The message is empty. Say what the commit does, and why.")
        repository = await self._open(context, directory, init=init)
        inside = await _inside(repository, paths)
        await self._git(context, repository, "add", "--all", "--", *(inside or (".",)))
        changed = await self._git(
            context, repository, "diff", "--cached", "--name-only", "--no-ext-diff", "--", *inside
        )
        if not changed:
            raise ToolFailed("There is nothing to commit: no file has changed.")
        return await self._git(
            context,
            repository,
            "commit",
            "--no-verify",
            "--no-gpg-sign",
            "--cleanup=whitespace",
            f"--message={message}",
            "--",
            *inside,
        )

    async def _open(
        self, context: ToolContext, directory: str, *, init: bool = False
    ) -> Repository:
        return await open_repository(
            context, settings=self._settings(), directory=directory, init=init
        )

    async def _git(self, context: ToolContext, repository: Repository, *arguments: str) -> str:
        status, said = await git(arguments, repository, context=context, settings=self._settings())
        if status != 0:
            how = name_ending(status, sandbox=repository.sandbox)
            raise ToolFailed(f"git {arguments[0]} ended {how}.\n{said}".rstrip())
        return said


async def _inside(repository: Repository, paths: tuple[str, ...]) -> tuple[str, ...]:
    return await asyncio.to_thread(paths_inside, repository, paths)


def _revision(revision: str) -> tuple[str, ...]:
    if not revision:
        return ()
    if not _REVISION.fullmatch(revision):
        raise ToolFailed("This is no name of a commit. Use what git_log shows, a branch or HEAD~1.")
    return ("--end-of-options", revision)
