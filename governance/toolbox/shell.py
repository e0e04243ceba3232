"""The `exec` tool, which runs a shell command in the conversation's workspace, in its own process group (G1, C4).

In the sandbox, a command can write only to the workspace and to a private `/tmp`. Without a sandbox, a command has all
rights of the server's user, because the reduced environment and the working directory only prevent accidents. Therefore
the tool is disabled until a setting enables it, and its description says whether there is a sandbox.
"""

import os
from dataclasses import replace
from typing import Annotated

from pydantic import Field

from governance.core.exceptions import ToolFailed
from governance.core.policy import ApprovalRule
from governance.core.registry import make_tool
from governance.core.tools import Concurrency, Tool, ToolContext
from governance.threads import run_in_thread
from governance.toolbox.cgroups import open_group
from governance.toolbox.commands import Launch, name_ending, run, scrub
from governance.toolbox.output import Output
from governance.toolbox.quotas import measure
from governance.toolbox.sandbox import Mode, Sandbox, find_sandbox, require_sandbox
from governance.toolbox.settings import SettingsSource, ToolboxSettings
from governance.toolbox.workspace import Workspace, explained, find_workspace

_SHELLS = ("/bin/bash", "/bin/sh")
_FREE = (
    "It runs with the rights of the server's user, in no sandbox. Put a long-lived server in the background with "
    "`setsid … >log 2>&1 &`."
)
_KEPT_IN = (
    "It runs in a sandbox: only the workspace can be written, {network}, and nothing that it leaves in the background "
    "outlives it.{limits}"
)
_OFF = (
    "Running commands is switched off on this server. An administrator can switch it on: "
    "GOVERNANCE_EXEC_ENABLED."
)
_ASKS_FREE = "Run this command on the server, without a sandbox?"
_ASKS_KEPT_IN = "Run this command in the sandbox of this server?"
_REFUSED = "Now it runs nothing: this server demands a sandbox for commands, and the sandbox does not work."


def make_exec(settings: SettingsSource) -> Tool:
    """Return the `exec` tool. The argument `timeout_ms` of a call is the limit that it requests (T3)."""
    shell = Shell(settings)
    return make_tool(
        shell.exec,
        title="Run a command",
        off=lambda: "" if shell.is_enabled else _OFF,
        timeout=0,
        timeout_argument="timeout_ms",
        concurrency=Concurrency.EXCLUSIVE,
        side_effects=True,
        approval=ApprovalRule.ONCE_PER_CONVERSATION,
    )


def describe(tool: Tool, sandbox: Sandbox) -> Tool:
    """Return the tool with a description of its isolation.

    In a sandbox without a network, commands can change only the workspace, so they need no approval (D1). If the server
    runs as root, this applies only if an administrator has chosen the sandbox explicitly (`"bwrap"`). If the required
    sandbox is missing, the tool refuses every call, so it needs no approval either.
    """
    docstring = tool.function.__doc__ or ""
    words, approval, question = _FREE, tool.approval, _ASKS_FREE
    if sandbox.is_missing:
        words, approval = _REFUSED, None
    elif sandbox.mode is not Mode.NONE:
        question = _ASKS_KEPT_IN
        network = "the network can be reached" if sandbox.network else "there is no network"
        limits = f" At most: {sandbox.limits.description}." if sandbox.limits.description else ""
        words = _KEPT_IN.format(network=network, limits=limits)
        approval = None if sandbox.is_trusted else tool.approval
    description = f"{' '.join(docstring.split())} {words}"
    return replace(tool, description=description, approval=approval, question=question)


class Shell:
    """The `exec` tool, which reads the current settings for each call."""

    def __init__(self, settings: SettingsSource) -> None:
        self._settings = settings

    @property
    def is_enabled(self) -> bool:
        """Whether the settings allow commands to run."""
        return self._settings().exec_enabled

    @property
    def sandbox(self) -> Sandbox:
        """The effective sandbox. Finding it blocks, so access this property in a thread."""
        return find_sandbox(self._settings())

    async def exec(
        self,
        context: ToolContext,
        command: Annotated[str, Field(min_length=1, description="The shell command to run.")],
        timeout_ms: Annotated[
            int,
            Field(
                ge=0,
                description="The time limit in milliseconds. 0 requests the longest limit allowed.",
            ),
        ] = 120_000,
        directory: Annotated[
            str, Field(description="The directory to run it in, relative to the workspace.")
        ] = ".",
    ) -> str:
        """Run a shell command in the workspace and return its output (stdout and stderr combined).

        Standard input is empty. A command that reaches its time limit is ended, together with everything it started.
        """
        # The executor enforces `timeout_ms`, because the limit may change while the command runs (T9).
        settings = self._settings()
        if not settings.exec_enabled:
            raise ToolFailed(_OFF)
        # Both run in threads, because they access the disk.
        workspace = await run_in_thread(find_workspace, context, settings)
        launch = await run_in_thread(
            _prepare, workspace, settings=settings, command=command, directory=directory
        )
        context.progress(f"Running: {launch.sandbox.description}")
        output = Output(
            context, limit=settings.exec_output_limit, interval=settings.exec_report_interval
        )
        try:
            status = await run(launch, output, context=context, settings=settings)
        finally:
            reached = await run_in_thread(launch.group.close) if launch.group else ""
        remark = await run_in_thread(measure, workspace.top, settings)
        return _result(status, output.text, sandbox=launch.sandbox, reached=reached, remark=remark)


def _prepare(
    workspace: Workspace, *, settings: ToolboxSettings, command: str, directory: str
) -> Launch:
    parts = workspace.locate(directory)
    with explained(directory), workspace.open_directory(parts):
        pass
    shell = next((shell for shell in _SHELLS if os.access(shell, os.X_OK)), _SHELLS[-1])
    sandbox = require_sandbox(settings)
    return Launch(
        arguments=(shell, "-c", command),
        directory=workspace.root.joinpath(*parts),
        environment=scrub(home=workspace.root, variables=settings.exec_environment),
        workspace=workspace.root,
        identities=workspace.identify(()),
        sandbox=sandbox,
        group=open_group(sandbox.limits),
    )


def _result(status: int, text: str, *, sandbox: Sandbox, reached: str, remark: str) -> str:
    limits = sandbox.limits
    limit_note = (
        f"It reached its limit of {reached}. A command has: {limits.description}."
        if reached
        else ""
    )
    if not limit_note and sandbox.mode is not Mode.NONE:
        limit_note = limits.explain(status, text)
    remarks = [line for line in (limit_note, remark) if line]
    if status == 0:
        return "\n".join((text or "The command ended well and printed nothing.", *remarks))
    how = name_ending(status, sandbox=sandbox)
    raise ToolFailed("\n".join((f"The command ended {how}.", *remarks, text)).rstrip())
