"""The git tools: what has changed, what was done, and a commit, in a repository of the workspace (G1)."""

import asyncio
import re
from contextlib import AbstractAsyncContextManager
from typing import Annotated

from pydantic import Field

from governance.core.exceptions import ToolFailed
from governance.core.registry import make_tool
from governance.core.tools import Concurrency, Tool, ToolContext
from governance.toolbox.git_changes import (
    commit,
    read_changes,
    read_staged,
    render_status,
    write_tree,
)
from governance.toolbox.git_repository import paths_inside
from governance.toolbox.git_shadow import ShadowRepository, open_shadow_repository
from governance.toolbox.settings import SettingsSource

_TIMEOUT = 60.0
_REVISION = re.compile(r"[A-Za-z0-9_@][A-Za-z0-9_@./^~{}:+-]*")
_LOG = "--format=commit %h%d%nAuthor: %an <%ae>%nDate:   %ad%n%n%w(0,4,4)%B"
_DIFF = ("--no-ext-diff", "--no-textconv", "--no-color", "--ignore-submodules=all")
# Compares what is staged with a tree, the other way round than git would by itself.
_INDEX_FIRST = ("--cached", "-R", "--src-prefix=b/", "--dst-prefix=a/")

Directory = Annotated[str, Field(description="A directory of the repository, in the workspace.")]
Paths = Annotated[
    tuple[str, ...],
    Field(description="Files and directories, relative to the repository; empty: all."),
]


def make_git_tools(settings: SettingsSource) -> tuple[Tool, ...]:
    """Return the tools. None of them ever overlaps a call that changes files: those run alone (P2)."""
    tools = GitTools(settings)
    return (
        *(
            make_tool(function, title=title, timeout=_TIMEOUT)
            for function, title in (
                (tools.git_status, "Git status"),
                (tools.git_diff, "Git diff"),
                (tools.git_log, "Git log"),
            )
        ),
        make_tool(
            tools.git_commit,
            title="Git commit",
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
        async with self._open(context, directory) as found:
            staged = await read_staged(found)
            changes = await read_changes(found)
            return render_status(found, changes, staged)

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
        async with self._open(context, directory) as found:
            compared: tuple[str, ...] = _revision(revision)
            if staged:
                compared = ("--cached", *compared)
            elif ".." not in revision:
                # Of the work tree; by default compared with the index, the older side.
                now = await write_tree(found, await read_changes(found, untracked=False))
                compared = (*compared, now) if revision else (*_INDEX_FIRST, now)
            said = await found.git("diff", *_DIFF, *compared, "--", *await _inside(found, paths))
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
        async with self._open(context, directory) as found:
            return await found.git(
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
                *await _inside(found, paths),
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
        async with self._open(context, directory, init=init) as found:
            return await commit(found, message, paths=await _inside(found, paths))

    def _open(
        self, context: ToolContext, directory: str, *, init: bool = False
    ) -> AbstractAsyncContextManager[ShadowRepository]:
        return open_shadow_repository(context, self._settings(), directory=directory, init=init)


async def _inside(found: ShadowRepository, paths: tuple[str, ...]) -> tuple[str, ...]:
    return await asyncio.to_thread(paths_inside, found.repository, paths)


def _revision(revision: str) -> tuple[str, ...]:
    if not revision:
        return ()
    if not _REVISION.fullmatch(revision):
        raise ToolFailed("This is no name of a commit. Use what git_log shows, a branch or HEAD~1.")
    return ("--end-of-options", revision)
