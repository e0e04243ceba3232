"""The executors of this process: one for each event loop, created from the settings at its first use."""

import logging
import os
from collections.abc import Container, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from django.db import connections

from governance import file_trees, services, toolbox
from governance.conf import app_settings, known_secrets
from governance.core.cancellation import CancellationToken
from governance.core.exceptions import ToolDisabled
from governance.core.executor import Timing, ToolExecutor
from governance.core.invokers.coroutine import CoroutineInvoker
from governance.core.invokers.process import ProcessInvoker
from governance.core.invokers.thread import ThreadInvoker
from governance.core.limiter import Limits
from governance.core.masking import mask
from governance.core.policy import ToolLimits, resolve
from governance.core.ports import Invoker, PreparingInvoker
from governance.core.registry import registry
from governance.core.tools import Isolation, Tool
from governance.db import run_in_db_thread, thread_of_test
from governance.durations import format_limit, limit_ms
from governance.mcp_servers import runtime as mcp_servers
from governance.per_loop import PerLoop
from governance.policies import DatabasePolicySource, Policies
from governance.private_files import (
    is_private_directory,
    make_directory,
    restrict,
)
from governance.threads import run_in_thread
from governance.tool_threads import make_tool_threads
from governance.toolbox.workspace import usable, workspace_at
from governance.users import DjangoUsers
from governance.worker_setup import database_names

MAX_ABANDONED_THREADS = 16  # at this number, calls of plain tools are refused (T7)
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_executors: PerLoop[ToolExecutor] = PerLoop()


logger = logging.getLogger(__name__)


def log_limits(policies: Policies) -> None:
    """Log the limits that the settings set for tools, and the declared limits that they override."""
    if app_settings.TOOL_TIMEOUTS:
        logger.info("Limits of GOVERNANCE_TOOL_TIMEOUTS: %s", "; ".join(_descriptions(policies)))


def _descriptions(policies: Policies) -> Iterator[str]:
    for name, timeout in sorted(app_settings.TOOL_TIMEOUTS.items()):
        text = f"{name} {format_limit(limit_ms(timeout))}"
        if policies.overrides.get(name, ToolLimits()).timeout is not None:
            text += " (without effect: an administrator's limit takes precedence)"
        elif name not in registry:
            text += " (no tool of this name is known yet)"
        elif (declared := registry.get(name).limits.timeout) is not None:
            text += f" (the tool declares {format_limit(limit_ms(declared))})"
        yield text


@dataclass(frozen=True, slots=True, kw_only=True)
class CallLoad:
    """The numbers of calls that are running and waiting, and of bodies that have outlived their calls (B4)."""

    running: int
    queued: int
    abandoned: int


async def get_executor() -> ToolExecutor:
    """Return the executor of the running loop. The administrators' limits are loaded before its first use."""
    if _executors.get() is None:
        await _policies.aload()
        log_limits(_policies.policies)
        await toolbox.prepare(registry)
    return _executors.get_or_make(_make)


def disabled_reasons(tools: Iterable[Tool]) -> list[str]:
    """Return for each tool the sentences that say why its calls are refused now. They are empty if its calls are not
    refused.
    """
    policies = _policies.policies
    has_disabled = policies.has_disabled
    return [_disabled_reason(tool, policies) if has_disabled or tool.off else "" for tool in tools]


def load() -> CallLoad:
    """Return the total load of all event loops of this process. May be called from any thread."""
    executors = _executors.values()
    return CallLoad(
        running=sum(executor.limiter.running for executor in executors),
        queued=sum(executor.limiter.queued for executor in executors),
        abandoned=sum(executor.abandoned for executor in executors),
    )


def limits_version() -> int:
    """Return the version of the loaded administrators' limits, or 0 before they are loaded."""
    return _policies.version


def timeouts() -> dict[str, float]:
    """Return the limit of each tool's next call in seconds, by tool name; 0 means no limit.

    The limits are read from memory. May be called from any thread.
    """
    now = _policies.policies
    return {tool.name: resolve(now.levels(tool)).timeout or 0.0 for tool in tuple(registry)}


async def refresh_policies() -> None:
    """Load limits that were changed or have ended, and apply them to running calls immediately (T9)."""
    await _policies.arefresh()
    if _policies.policies.ended:
        await run_in_db_thread(services.end_temporary_limits)()
    await mcp_servers.follow()


async def prepare_tools(*, token: CancellationToken | None = None) -> None:
    """Register the tools of the MCP servers before a turn reads the registry. This takes a few seconds at most."""
    await mcp_servers.prepare(token=token)


def starting_servers() -> dict[str, str]:
    """Return the names of MCP servers that are not connected yet, with the prefixes of their tools."""
    return mcp_servers.starting()


def server_instructions(servers: Container[str]) -> dict[str, str]:
    """Return the instructions of these MCP servers that agents should read, by server name."""
    return mcp_servers.instructions(servers)


async def close_executor() -> None:
    """Close the executor of the running loop, its worker processes, the browser, and the loop's MCP servers."""
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
    """Return the directory in which the tools of a scope work, or None if no `WORKSPACE_ROOT` is set."""
    root = app_settings.WORKSPACE_ROOT
    return Path(root) / scope if root else None


def make_workspace(path: Path) -> None:
    """Create a directory for tools that is private to the server's user, or make an existing one private. This blocks
    briefly.

    Raises:
        OSError: the directory cannot be created, or is a link.
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
    """Create a workspace for a call. Raise `ToolFailed` if that fails."""
    with usable():
        await run_in_thread(make_workspace, path)


def put_file(path: Path, name: str, content: bytes) -> None:
    """Write a file into a workspace, unless a file of that name exists. No link is followed. This blocks. Raise
    `OSError` if the file cannot be written.
    """
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
    """Delete the directory of a scope and everything in it, if it exists. This blocks. Raise `OSError` if that fails."""
    path = workspace_of(scope)
    if path is None:
        return
    with suppress(FileNotFoundError, NotADirectoryError):
        if path.is_symlink():
            path.unlink()
        else:
            file_trees.remove(path)


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
            Isolation.ASYNC: CoroutineInvoker(make_tool_threads().own_database_thread),
            **_invokers_of_plain_functions(),
        },
        result_limit=app_settings.RESULT_LIMIT,
        mask=lambda text: mask(text, secrets=known_secrets()),
        users=DjangoUsers(),
    )


def _invokers_of_plain_functions() -> dict[Isolation, Invoker | PreparingInvoker]:
    in_threads = partial(
        ThreadInvoker,
        max_threads=app_settings.MAX_THREADS,
        max_abandoned=MAX_ABANDONED_THREADS,
    )
    if (test := thread_of_test()) is not None:
        in_test = in_threads(start=lambda work, _name: test.submit(work))
        return {Isolation.THREAD: in_test, Isolation.PROCESS: in_test}
    return {
        Isolation.THREAD: in_threads(on_exit=connections.close_all),
        Isolation.PROCESS: ProcessInvoker(
            max_workers=app_settings.MAX_WORKERS,
            initializer="governance.worker_setup:setup",
            initializer_arguments=(database_names(),),
            users="governance.users:DjangoUsers",
            kill_grace=app_settings.KILL_GRACE,
        ),
    }


def _apply() -> None:
    """Apply the current limits to the running calls of every loop. May be called from any thread."""
    _executors.call_soon(ToolExecutor.apply_policies)


_policies = DatabasePolicySource()
_policies.on_change(_apply)
