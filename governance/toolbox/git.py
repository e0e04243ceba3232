"""The git tools, which show changes and history, and make commits, in a repository of the workspace (G1).

Agents can write the configuration, hooks and filters that git executes. Therefore git runs in the sandbox for commands,
without a network, and the tools are disabled if there is no sandbox. For the tools that only read, the workspace is
read-only.
"""

import functools
import re
import shutil
from dataclasses import replace
from email.utils import parseaddr
from typing import Annotated

from pydantic import Field

from governance.core.exceptions import ToolFailed
from governance.core.registry import make_tool
from governance.core.tools import Concurrency, Tool, ToolContext
from governance.threads import run_in_thread
from governance.toolbox.cgroups import open_group
from governance.toolbox.commands import SEARCH_PATH, Launch, name_ending, run, scrub
from governance.toolbox.output import Output
from governance.toolbox.quotas import measure, require_room
from governance.toolbox.sandbox import Mode, find_sandbox, require_sandbox
from governance.toolbox.settings import SandboxChoice, SettingsSource, ToolboxSettings
from governance.toolbox.workspace import explained, find_workspace

_TIMEOUT = 60.0
_OFF = (
    "The git tools are switched off on this server: git runs only in a sandbox, and there is none. An administrator finds"
    " out more with `manage.py check`."
)
_REVISION = re.compile(r"[A-Za-z0-9_@][A-Za-z0-9_@./^~{}:+-]*")
_LOG = "--format=commit %h%d%nAuthor: %an <%ae>%nDate:   %ad%n%n%w(0,4,4)%B"
_OPTIONS = (
    "--no-pager",
    *("-c", "core.hooksPath=/dev/null"),
    *("-c", "core.fsmonitor=false"),
    *("-c", "core.quotePath=false"),
    *("-c", "init.defaultBranch=main"),
    *("-c", "status.relativePaths=false"),
    *("-c", "advice.detachedHead=false"),
    *("-c", "color.ui=false"),
    *("-c", "gc.auto=0"),
)
_DIFF = ("--no-ext-diff", "--no-textconv", "--no-color", "--ignore-submodules=all")
_ENVIRONMENT = {
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
}

Directory = Annotated[
    str, Field(description="A directory inside the repository, relative to the workspace.")
]
Paths = Annotated[
    tuple[str, ...],
    Field(description="Files and directories relative to `directory`. If empty, all of them."),
]


def make_git_tools(settings: SettingsSource) -> tuple[Tool, ...]:
    """Return the git tools. They never overlap with a call that changes files, because such calls run alone (P2)."""
    tools = GitTools(settings)
    make = functools.partial(make_tool, timeout=_TIMEOUT, off=lambda: "" if tools.can_run else _OFF)
    return (
        make(tools.git_status, title="Git status"),
        make(tools.git_diff, title="Git diff"),
        make(tools.git_log, title="Git log"),
        make(
            tools.git_commit,
            title="Git commit",
            concurrency=Concurrency.EXCLUSIVE,
            side_effects=True,
        ),
    )


class GitTools:
    """The git tools, which read the current settings for each call."""

    def __init__(self, settings: SettingsSource) -> None:
        self._settings = settings

    @property
    def can_run(self) -> bool:
        """Whether there is a sandbox. The first access in a process blocks, so do it in a thread."""
        return _has_sandbox(self._settings().exec_sandbox)

    async def git_status(self, context: ToolContext, directory: Directory = ".") -> str:
        """Show the current branch, and the changed, staged and untracked files."""
        return await self._git(
            context, directory, "status", "--short", "--branch", "--untracked-files=all"
        )

    async def git_diff(
        self,
        context: ToolContext,
        directory: Directory = ".",
        paths: Paths = (),
        revision: Annotated[
            str, Field(description="The commit or range to compare with. If empty, the index.")
        ] = "",
        *,
        staged: Annotated[bool, Field(description="Show the staged changes instead.")] = False,
    ) -> str:
        """Show changes line by line: in the working files, in what is staged, or between commits."""
        cached = ("--cached",) if staged else ()
        compared = _revision(revision)
        output = await self._git(
            context, directory, "diff", *_DIFF, *cached, *compared, "--", *paths
        )
        return output or "There is no difference."

    async def git_log(
        self,
        context: ToolContext,
        directory: Directory = ".",
        paths: Paths = (),
        revision: Annotated[
            str, Field(description="The commit or branch to start from. If empty, the current one.")
        ] = "",
        limit: Annotated[
            int, Field(ge=1, le=200, description="The maximum number of commits to show.")
        ] = 20,
    ) -> str:
        """Show commits, newest first, each with its hash, author, date and message."""
        options = ("--no-color", "--no-show-signature", "--no-mailmap", "--date=iso-strict")
        return await self._git(
            context,
            directory,
            *("log", f"--max-count={limit}", "--decorate=short", *options, _LOG),
            *(*_revision(revision), "--", *paths),
        )

    async def git_commit(
        self,
        context: ToolContext,
        message: Annotated[
            str,
            Field(
                min_length=1,
                max_length=20_000,
                description="The commit message, which says what changes and why.",
            ),
        ],
        directory: Directory = ".",
        paths: Paths = (),
        *,
        init: Annotated[
            bool, Field(description="Create a repository if there is none yet.")
        ] = False,
    ) -> str:
        """Commit all changes, or only those in the given paths, including new files. Nothing is pushed anywhere."""
        if not message.strip():
            raise ToolFailed("The message is empty. Say what the commit does, and why.")
        settings = self._settings()
        top = (await run_in_thread(find_workspace, context, settings)).top
        await run_in_thread(require_room, top, 1, token=context.token, settings=settings)
        git = functools.partial(self._git, context, directory, writes=True)
        if init:
            await git("init", "--quiet")
        await git("add", "--all", "--", *(paths or (".",)))
        options = ("--no-verify", "--no-gpg-sign", "--cleanup=whitespace", f"--message={message}")
        output = await git("commit", *options, *(("--only", "--", *paths) if paths else ()))
        remark = await run_in_thread(measure, top, settings)
        return "\n".join(filter(None, (output, remark)))

    async def _git(
        self, context: ToolContext, directory: str, *arguments: str, writes: bool = False
    ) -> str:
        """Run git in the sandbox and return its output. Raise `ToolFailed` if it fails."""
        settings = self._settings()
        launch = await run_in_thread(
            _prepare, context, settings, directory, arguments, writes=writes
        )
        output = Output(
            replace(context, report=lambda _: None),
            limit=settings.exec_output_limit,
            interval=settings.exec_report_interval,
        )
        try:
            status = await run(launch, output, context=context, settings=settings)
        finally:
            reached = await run_in_thread(launch.group.close) if launch.group else ""
        if status == 0:
            return output.text
        if "not a git repository" in output.text:
            raise ToolFailed(
                "There is no git repository in this directory of the workspace. Name the directory that has one, or make"
                " one: git_commit with `init`."
            )
        how = name_ending(status, sandbox=launch.sandbox)
        limit = f" It reached its limit of {reached}." if reached else ""
        raise ToolFailed(f"git {arguments[0]} ended {how}.{limit}\n{output.text}".rstrip())


@functools.cache
def _has_sandbox(choice: SandboxChoice) -> bool:
    return find_sandbox(ToolboxSettings(exec_sandbox=choice)).mode is not Mode.NONE


def _prepare(
    context: ToolContext,
    settings: ToolboxSettings,
    directory: str,
    arguments: tuple[str, ...],
    *,
    writes: bool,
) -> Launch:
    workspace = find_workspace(context, settings)
    sandbox = replace(require_sandbox(settings), network=False)
    if sandbox.mode is Mode.NONE:
        raise ToolFailed(_OFF)
    if shutil.which("git", path=SEARCH_PATH) is None:
        raise ToolFailed("git could not be started: it is not installed on this server.")
    parts = workspace.locate(directory)
    with explained(directory), workspace.open_directory(parts):
        pass
    name, address = parseaddr(settings.git_author)
    return Launch(
        arguments=("git", *_OPTIONS, *arguments),
        directory=workspace.root.joinpath(*parts),
        environment={
            **scrub(home=workspace.root),
            **_ENVIRONMENT,
            # A workspace may be inside the server's own checkout, whose repository git must not find.
            "GIT_CEILING_DIRECTORIES": str(workspace.root.parent),
            "GIT_AUTHOR_NAME": name or address,
            "GIT_AUTHOR_EMAIL": address,
            "GIT_COMMITTER_NAME": name or address,
            "GIT_COMMITTER_EMAIL": address,
        },
        workspace=workspace.root,
        identities=workspace.identify(()),
        sandbox=sandbox,
        group=open_group(sandbox.limits),
        writes=writes,
    )


def _revision(revision: str) -> tuple[str, ...]:
    if not revision:
        return ()
    if not _REVISION.fullmatch(revision):
        raise ToolFailed(
            "This is not the name of a commit. Use what git_log shows, a branch or HEAD~1."
        )
    return ("--end-of-options", revision)
