"""The executor of this process: one for each event loop, made from the settings at its first use."""

import asyncio
import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from django.db import connections

from governance import services, toolbox
from governance.conf import app_settings, known_secrets
from governance.core.cancellation import CancellationToken
from governance.core.exceptions import ToolDisabled
from governance.core.executor import Timing, ToolExecutor
from governance.core.invokers.process import ProcessInvoker
from governance.core.invokers.thread import ThreadInvoker
from governance.core.limiter import Limits
from governance.core.masking import mask
from governance.core.policy import resolve
from governance.core.registry import registry
from governance.core.tools import Isolation, Tool
from governance.db import run_in_db_thread
from governance.mcp_servers import runtime as mcp_servers
from governance.per_loop import PerLoop
from governance.policies import DatabasePolicySource, Policies
from governance.private_files import (
    is_private_directory,
    make_directory,
    remove_directory,
    restrict,
)
from governance.site_limits import log_limits
from governance.toolbox.workspace import usable, workspace_at

_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_executors: PerLoop[ToolExecutor] = PerLoop()


@dataclass(frozen=True, slots=True, kw_only=True)
class CallLoad:
    """How many calls run and wait, and how many bodies outlive their calls (B4)."""

    running: int
    queued: int
    abandoned: int


async def get_executor() -> ToolExecutor:
    """Return the executor of the running loop; it loads the administrators' limits before its first use."""
    if _executors.get() is None:
        await _policies.aload()
        log_limits(_policies.policies)
        await toolbox.prepare(registry)
    return _executors.get_or_make(_make)


def disabled_reasons(tools: Iterable[Tool]) -> list[str]:
    """Return for each tool sentences that say why every call of it is refused now; empty if none is."""
    policies = _policies.policies
    has_disabled = policies.has_disabled
    return [_disabled_reason(tool, policies) if has_disabled or tool.off else "" for tool in tools]


def load() -> CallLoad:
    """Return the number of calls in this process, over all its loops; safe in any thread."""
    executors = _executors.values()
    return CallLoad(
        running=sum(executor.limiter.running for executor in executors),
        queued=sum(executor.limiter.queued for executor in executors),
        abandoned=sum(executor.abandoned for executor in executors),
    )


def limits_version() -> int:
    """Return the version of the administrators' limits in force in this process; 0 before they are loaded."""
    return _policies.version


def timeouts() -> dict[str, float]:
    """Return the limit of each tool's next call, in seconds; 0 = none. From memory, safe in any thread."""
    now = _policies.policies
    return {tool.name: resolve(now.levels(tool)).timeout or 0.0 for tool in tuple(registry)}


async def refresh_policies() -> None:
    """Check whether a limit changed or a temporary one is over. If so, apply it to running calls at once (T9)."""
    await _policies.arefresh()
    if _policies.policies.ended:
        await run_in_db_thread(services.end_temporary_limits)()
    await mcp_servers.follow()


async def prepare_tools(*, token: CancellationToken | None = None) -> None:
    """Put the tools of the MCP servers into the registry before a turn reads it; waits a moment at most."""
    await mcp_servers.prepare(token=token)


async def close_executor() -> None:
    """Close the executor of the running loop, with its worker processes, the browser and MCP servers."""
    executor = _executors.pop()
    try:
        if executor is not None:
            await executor.aclose()
    finally:
        try:
            await toolbox.aclose(registry)
        finally:
            await mcp_servers.close()


def workspace_of(scope: str) -> Path | None:
    """Return the directory in which the tools of a scope work, or None."""
    root = app_settings.WORKSPACE_ROOT
    return Path(root) / scope if root else None


def make_workspace(path: Path) -> None:
    """Make a directory for tools, private to the server's user; an existing one becomes private. Blocks briefly.

    Raises:
        OSError: it cannot be made, or there is a link in its place.
    """
    root = Path(app_settings.WORKSPACE_ROOT)
    restrict(root)
    if path.parent == root and is_private_directory(path):
        return
    workspace = workspace_at(path, within=root)
    make_directory(workspace.top)
    with workspace.open_directory((), create=True):
        pass


async def prepare_workspace(path: Path) -> None:
    """Make the same for a call. Raise `ToolFailed` if it cannot be made."""
    with usable():
        await asyncio.to_thread(make_workspace, path)


def put_file(path: Path, name: str, content: bytes) -> None:
    """Put a file into a workspace, unless there is one of that name. No link is followed. Blocks. Raise `OSError`."""
    make_workspace(path)
    workspace = workspace_at(path, within=Path(app_settings.WORKSPACE_ROOT))
    *directories, last = name.split("/")
    with (
        workspace.open_directory(tuple(directories), create=True) as directory,
        suppress(FileExistsError),
    ):
        file = os.open(last, _NEW_FILE, 0o600, dir_fd=directory)
        try:
            with open(file, "wb") as target:
                target.write(content)
        except OSError:
            os.unlink(last, dir_fd=directory)
            raise


def remove_workspace(scope: str) -> None:
    """Delete the directory of a scope with all that is in it, if there is one. Blocks. Raise `OSError`."""
    path = workspace_of(scope)
    if path is None:
        return
    with suppress(FileNotFoundError, NotADirectoryError):
        if path.is_symlink():
            path.unlink()
        else:
            remove_directory(path)


def _disabled_reason(tool: Tool, policies: Policies) -> str:
    if reason := tool.disabled_reason():
        return reason
    return "" if policies.is_enabled(tool.name) else str(ToolDisabled(tool.name))


def _make() -> ToolExecutor:
    return ToolExecutor(
        registry=registry,
        policies=_policies,
        limits=Limits(
            max_running=app_settings.MAX_RUNNING,
            max_queued=app_settings.MAX_QUEUED,
            max_running_per_scope=app_settings.MAX_RUNNING_PER_SCOPE,
            queue_timeout=app_settings.QUEUE_TIMEOUT,
        ),
        timing=Timing(
            cancel_grace=app_settings.CANCEL_GRACE, progress_interval=app_settings.PROGRESS_INTERVAL
        ),
        invokers={
            Isolation.THREAD: ThreadInvoker(
                max_threads=app_settings.MAX_THREADS,
                max_abandoned=app_settings.MAX_ABANDONED_THREADS,
                on_exit=connections.close_all,
            ),
            Isolation.PROCESS: ProcessInvoker(
                max_workers=app_settings.MAX_WORKERS,
                initializer="django:setup",
                kill_grace=app_settings.KILL_GRACE,
            ),
        },
        result_limit=app_settings.RESULT_LIMIT,
        mask=lambda text: mask(text, known=known_secrets()),
    )


def _apply() -> None:
    """Apply the current limits to the running calls of every loop; call it from any thread."""
    _executors.call_soon(ToolExecutor.apply_policies)


_policies = DatabasePolicySource()
_policies.on_change(_apply)
