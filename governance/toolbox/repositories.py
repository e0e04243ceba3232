"""A git repository inside a workspace, and how the `git` program is run on it without being led astray.

Whoever may write files may write a repository's configuration, and that can name programs for git to run and places
outside. So the program sees no configuration but the repository's own, of that only entries that can do no harm, and
it runs in the same sandbox as commands do, without a network.
"""

import asyncio
import os
import re
from dataclasses import dataclass, replace
from email.utils import parseaddr
from pathlib import Path

from governance.core.exceptions import ToolFailed
from governance.core.tools import ToolContext
from governance.toolbox.commands import Launch, name_ending, run, scrub
from governance.toolbox.output import Output
from governance.toolbox.sandbox import Sandbox, require_sandbox
from governance.toolbox.settings import ToolboxSettings
from governance.toolbox.workspace import Workspace, explained, find_workspace, shown

_NOT_A_REPOSITORY = 128
_PLACES = ("rev-parse", "--show-toplevel", "--absolute-git-dir", "--git-common-dir")
_INIT = ("init", "--quiet", "--template=", "--initial-branch=main")
_OPTIONS = (
    "--no-pager",
    "--no-replace-objects",
    "--literal-pathspecs",
    *(
        part
        for option in (
            "core.hooksPath=/dev/null",
            "core.fsmonitor=false",
            "core.attributesFile=/dev/null",
            "core.quotePath=false",
            "commit.gpgSign=false",
            "diff.external=",
            "gc.auto=0",
            "maintenance.auto=false",
            "protocol.allow=never",
            "safe.directory=*",  # the server's user need not own what a sandbox or an administrator has made
            "submodule.recurse=false",
            "advice.detachedHead=false",
        )
        for part in ("-c", option)
    ),
)
_ENVIRONMENT = {
    "GIT_ALLOW_PROTOCOL": "",
    "GIT_ASKPASS": "/bin/false",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_EDITOR": "/bin/false",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
}
_HARMLESS = re.compile(
    r"core\.(repositoryformatversion|filemode|bare|logallrefupdates|ignorecase|precomposeunicode|symlinks|autocrlf|eol"
    r"|safecrlf|abbrev|compression|whitespace|trustctime|checkstat|untrackedcache)"
    r"|extensions\.objectformat"
    r"|(user|author|committer)\.(name|email)|user\.signingkey"
    r"|init\.defaultbranch|i18n\.(commitencoding|logoutputencoding)"
    r"|remote\..+\.(url|pushurl|fetch|push|tagopt|prune)|remote\.pushdefault"
    r"|branch\..+\.(remote|merge|rebase|pushremote|description)|branch\.(autosetuprebase|autosetupmerge)"
    r"|submodule\..+\.(url|active)|lfs\.repositoryformatversion"
    r"|pull\.(rebase|ff)|push\.(default|autosetupremote|followtags)|fetch\.prune|merge\.(ff|conflictstyle)"
    r"|rebase\.(autosquash|autostash)|rerere\.(enabled|autoupdate)|tag\.(sort|gpgsign)|(color|advice)\.[a-z]+"
    r"|status\.(showuntrackedfiles|relativepaths|branch|short)"
    r"|diff\.(renames|renamelimit|algorithm|context|mnemonicprefix|noprefix|colormoved|indentheuristic)"
    r"|log\.(date|decorate|abbrevcommit|follow)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Repository:
    """A repository that was looked at and may be worked on."""

    top: Path
    workspace: Workspace
    sandbox: Sandbox


async def open_repository(
    context: ToolContext, *, settings: ToolboxSettings, directory: str, init: bool = False
) -> Repository:
    """Return the repository that `directory` belongs to; with `init`, it is made if there is none.

    Raises:
        ToolFailed: there is none, or none to be trusted.
    """
    found = await asyncio.to_thread(_prepare, context, settings=settings, directory=directory)
    quiet = replace(context, report=lambda _: None)
    status, said = await git(_PLACES, found, context=quiet, settings=settings)
    if status == _NOT_A_REPOSITORY and init:
        await git(_INIT, found, context=quiet, settings=settings)
        status, said = await git(_PLACES, found, context=quiet, settings=settings)
    if status != 0:
        raise _no_repository(status, said, sandbox=found.sandbox)
    top = await asyncio.to_thread(_check_places, said, found)
    status, names = await git(
        ("config", "--list", "--name-only"), found, context=quiet, settings=settings
    )
    if status != 0:
        raise ToolFailed("The repository's configuration cannot be read: it is damaged.")
    _check_configuration(names)
    return replace(found, top=top)


async def git(
    arguments: tuple[str, ...],
    repository: Repository,
    *,
    context: ToolContext,
    settings: ToolboxSettings,
) -> tuple[int, str]:
    """Run the program and return its exit status and what it printed."""
    output = Output(
        context, limit=settings.exec_output_limit, interval=settings.exec_report_interval
    )
    launch = Launch(
        arguments=("git", *_OPTIONS, *arguments),
        directory=repository.top,
        environment=_environment(repository.workspace, settings=settings),
        workspace=repository.workspace.root,
        sandbox=replace(repository.sandbox, network=False),
    )
    status = await run(launch, output, context=context, settings=settings)
    return status, output.text


def paths_inside(repository: Repository, paths: tuple[str, ...]) -> tuple[str, ...]:
    """Return the paths relative to the repository's top. Raise `ToolFailed` if one leads outside."""
    found = []
    for path in paths:
        repository.workspace.locate(str(repository.top / path))
        absolute = os.path.normpath(repository.top / path)
        if not Path(absolute).is_relative_to(repository.top):
            raise ToolFailed(f"{shown(path)!r} is outside the repository.")
        found.append(os.path.relpath(absolute, repository.top))
    return tuple(found)


def _prepare(context: ToolContext, *, settings: ToolboxSettings, directory: str) -> Repository:
    workspace = find_workspace(context, settings)
    parts = workspace.locate(directory)
    with explained(directory), workspace.open_directory(parts):
        pass
    return Repository(
        top=workspace.root.joinpath(*parts), workspace=workspace, sandbox=require_sandbox(settings)
    )


def _environment(workspace: Workspace, *, settings: ToolboxSettings) -> dict[str, str]:
    name, address = parseaddr(settings.git_author)
    return {
        **scrub(home=workspace.root),
        **_ENVIRONMENT,
        # Never look for a repository above the workspace.
        "GIT_CEILING_DIRECTORIES": str(workspace.root.parent),
        "GIT_AUTHOR_NAME": name or address,
        "GIT_AUTHOR_EMAIL": address,
        "GIT_COMMITTER_NAME": name or address,
        "GIT_COMMITTER_EMAIL": address,
    }


def _no_repository(status: int, said: str, *, sandbox: Sandbox) -> ToolFailed:
    if status == _NOT_A_REPOSITORY and "not a git repository" in said:
        return ToolFailed(
            "There is no git repository in this directory of the workspace. Name the directory that has one, or make "
            "one: git_commit with `init`."
        )
    return ToolFailed(f"git ended {name_ending(status, sandbox=sandbox)}.\n{said}".rstrip())


def _check_places(said: str, found: Repository) -> Path:
    """Return the repository's top. Its files and its history must all be inside the workspace."""
    lines = said.splitlines()
    if len(lines) != 3:
        raise ToolFailed(
            "This repository has no files to work on (it is bare), or an unusual name."
        )
    top, *stores = (Path(os.path.realpath(found.top / line)) for line in lines)
    for place in (top, *stores, *(store / "objects" for store in stores)):
        if not Path(os.path.realpath(place)).is_relative_to(found.workspace.root):
            raise ToolFailed("The repository is outside the workspace, at least in part.")
    for store in stores:
        if (store / "objects" / "info" / "alternates").exists():
            raise ToolFailed(
                "The repository borrows its history from another one; that is not followed."
            )
    return top


def _check_configuration(names: str) -> None:
    """Refuse what could make git run a program or leave the workspace; what is not known counts as that."""
    ours = {option.partition("=")[0].lower() for option in _OPTIONS}
    for name in names.split("\n"):  # the one character that no name holds
        if name.lower() not in ours and not _HARMLESS.fullmatch(name):
            raise ToolFailed(
                f"The repository's configuration sets {shown(name)!r}, which could make git run a program or leave the "
                "workspace. Nothing was done; take it out of the repository's configuration first."
            )
