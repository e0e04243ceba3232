"""The executor of this process: one for each event loop, made from the settings at its first use."""

from dataclasses import dataclass
from pathlib import Path

from django.db import connections

from governance import toolbox
from governance.conf import app_settings, known_secrets
from governance.core.cancellation import CancellationToken
from governance.core.exceptions import ToolDisabled
from governance.core.executor import Timing, ToolExecutor
from governance.core.invokers.process import ProcessInvoker
from governance.core.invokers.thread import ThreadInvoker
from governance.core.limiter import Limits
from governance.core.masking import mask
from governance.core.per_loop import PerLoop
from governance.core.registry import registry
from governance.core.tools import Isolation, Tool
from governance.mcp import runtime as mcp_servers
from governance.policies import DatabasePolicySource
from governance.private_files import make_directory, restrict
from governance.site_limits import log_limits
from governance.toolbox.workspace import workspace_at

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


def disabled_reason(tool: Tool) -> str:
    """Return sentences that say why every call of the tool is refused now; empty if none is."""
    if (reason := tool.disabled_reason()) or _policies.policies.is_enabled(tool.name):
        return reason
    return str(ToolDisabled(tool.name))


def load() -> CallLoad:
    """Return the number of calls in this process, over all its loops; safe in any thread."""
    executors = _executors.values()
    return CallLoad(
        running=sum(executor.limiter.running for executor in executors),
        queued=sum(executor.limiter.queued for executor in executors),
        abandoned=sum(executor.abandoned for executor in executors),
    )


async def refresh_policies() -> None:
    """Check whether an administrator changed a limit; if so, apply it to running calls at once (T9)."""
    await _policies.arefresh()
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
    workspace = workspace_at(path, within=root)
    make_directory(workspace.top)
    with workspace.open_directory((), create=True):
        pass


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
