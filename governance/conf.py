"""The project's settings: `GOVERNANCE_<NAME>` in Django's settings is `app_settings.<NAME>` here, read on access."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from django.conf import settings

from governance.app_settings import AppSettings
from governance.core.policy import ApprovalRule, ToolLimits
from governance.toolbox import BrowserSandbox, SandboxChoice, ToolboxSettings

EVERY_OTHER = "*"
_SECRET_SETTING = re.compile(r"(?:DSN|KEY|KEYS|KEY_FALLBACKS|PASSWORD|SECRET|TOKEN)$")


class GovernanceSettings(AppSettings):
    """Every setting with its type, its default and what it is for. Seconds unless the name says otherwise."""

    PREFIX = "GOVERNANCE_"

    DEFAULT_TIMEOUT: float | None = None
    """Limit of a tool that has no other one; 0 = no limit, None = the built-in 120 s (T2)."""

    TOOL_TIMEOUTS: Mapping[str, float] = {}
    """Limits of single tools by name; each goes before what the tool declares (T2)."""

    TIMEOUT_CEILING: float = 3600.0
    """The most that a call may ask for itself, and the highest limit an administrator may set; 0 = no ceiling (A3)."""

    APPROVAL: Mapping[str, str] = {}
    """Whether a person must let calls of a tool through, by its name: `never`, `once_per_conversation` or `always`;
    `*` stands for every tool that is not named (D1)."""

    APPROVAL_TIMEOUT: float = 600.0
    """How long a person may take to decide on a call; 0 = no limit (D3)."""

    ERROR_TEXT: Sequence[str] = ()
    """Tools of which the chat model and the person may read what an exception says, capped and with secrets masked; `*`
    stands for every tool (T4)."""

    CANCEL_GRACE: float = 0.6
    """How long a call may take to end after it was asked to, before it is killed or abandoned (C1)."""

    KILL_GRACE: float = 0.4
    """How long a process group may take to end after SIGTERM, before SIGKILL (T8)."""

    MAX_RUNNING: int = 100
    """Calls that run at once in one process (P4)."""

    MAX_QUEUED: int = 200
    """Calls that wait for a slot in one process; one more is refused (P4)."""

    MAX_RUNNING_PER_SCOPE: int = 16
    """Calls of one conversation that run at once (P4)."""

    QUEUE_TIMEOUT: float = 300.0
    """How long a call waits for a slot before it gives up (P4)."""

    MAX_THREADS: int = 32
    """Threads for plain tools in one process (T7)."""

    MAX_ABANDONED_THREADS: int = 16
    """Threads that outlived their deadline; at this number plain tools are refused (T7)."""

    MAX_WORKERS: int = 4
    """Worker processes for tools with `isolation="process"` (T8)."""

    PROGRESS_INTERVAL: float = 5.0
    """How often a running call is reported as alive (V1)."""

    RESULT_LIMIT: int = 100_000
    """Characters of a result that are kept; the middle of a longer one is left out."""

    EXEC_ENABLED: bool = False
    """Whether the `exec` tool may run commands on this machine (G1)."""

    EXEC_OUTPUT_LIMIT: int = 50_000
    """Characters of a command's output that are kept (G1)."""

    EXEC_ENVIRONMENT: Sequence[str] = ()
    """Names of the server's environment variables that commands may see besides a harmless few; never secrets (G1)."""

    EXEC_SANDBOX: str = "auto"
    """How commands and git are kept in: "auto" (bubblewrap where it works), "bwrap" (nowhere else), "none" (G1)."""

    EXEC_NETWORK: bool = False
    """Whether commands reach the network from their sandbox (G1)."""

    EXEC_READABLE: Sequence[str] = ()
    """Absolute paths that commands may read in their sandbox besides the system's (G1)."""

    EXEC_MAX_PROCESSES: int = 512
    """Processes and threads that a command in the sandbox may have at once; 0 = no limit (G1)."""

    EXEC_MEMORY: int = 2_000_000_000
    """Bytes of memory that each process of a command in the sandbox may take; 0 = no limit (G1)."""

    EXEC_FILE_SIZE: int = 1_000_000_000
    """Bytes of the largest file that a command in the sandbox may write; 0 = no limit (G1)."""

    EXEC_TMP_SIZE: int = 500_000_000
    """Bytes that fit into the `/tmp` of a command in the sandbox, which is memory; 0 = no limit (G1)."""

    EXEC_CPU_TIME: int = 3600
    """Seconds of processor time that each process of a command in the sandbox may use; 0 = no limit (G1)."""

    GIT_AUTHOR: str = "Agent <agent@localhost>"
    """Who is named in the commits of `git_commit` (G1)."""

    WORKSPACE_ROOT: str | Path = ""
    """Absolute directory that holds one workspace per conversation; empty = no workspaces, no file tools (G1)."""

    WORKSPACE_QUOTA: int = 2_000_000_000
    """Bytes that one workspace may hold before nothing more is written to it; 0 = no limit (G1)."""

    FILE_MAX_BYTES: int = 10_000_000
    """Bytes of a file that the file tools read or write at most (G1)."""

    WEB_ALLOW_PRIVATE: bool = False
    """Whether `web_fetch` may reach private and loopback addresses (G1)."""

    WEB_ASK_HOSTS: bool = False
    """Whether a person is asked before the first visit of a host that nobody has named (D1)."""

    WEB_KNOWN_HOSTS: Sequence[str] = ()
    """Hosts that nobody is asked about, such as "docs.python.org" or "*.example.org" (D1)."""

    WEB_MAX_BYTES: int = 2_000_000
    """Bytes of a page that `web_fetch` reads at most (G1)."""

    WEB_MAX_REDIRECTS: int = 5
    """Redirects that `web_fetch` follows; each target is checked like the first (G1)."""

    SEARCH_PROVIDER: str = "duckduckgo"
    """The search engine of `web_search`: "duckduckgo", "searxng", or the dotted path of an own one (G1)."""

    SEARCH_URL: str = ""
    """Where the search engine answers; it alone may be a private address. Empty = the engine's own address (G1)."""

    BROWSER_PATH: str = ""
    """The program of Chromium for `browser`; empty = looked for on the server's path (G1)."""

    BROWSER_SANDBOX: str = "auto"
    """Whether Chromium uses its own sandbox: "auto" (unless the server runs as root), "on", "off" (G1)."""

    BROWSER_IDLE: float = 300.0
    """How long a page that nobody uses stays open, and then the browser (G1)."""

    BROWSER_MAX_PAGES: int = 8
    """Pages of the browser that one process keeps open; one for each conversation (G1)."""


app_settings = GovernanceSettings()


def tool_setting_limits(tool_name: str) -> ToolLimits:
    """Return what the project's settings say of one tool, as a level of the policy (T2, D1)."""
    rules = app_settings.APPROVAL
    rule = rules.get(tool_name, rules.get(EVERY_OTHER))
    return ToolLimits(
        timeout=app_settings.TOOL_TIMEOUTS.get(tool_name),
        approval=None if rule is None else ApprovalRule(rule),
        error_text=not {tool_name, EVERY_OTHER}.isdisjoint(app_settings.ERROR_TEXT),
    )


def known_secrets() -> Iterator[str]:
    """Yield what the project's settings hold that nobody may read."""
    for name in filter(_SECRET_SETTING.search, dir(settings)):
        value = getattr(settings, name)
        yield from map(str, value if isinstance(value, list | tuple) else [value])
    for database in settings.DATABASES.values():
        yield str(database.get("PASSWORD") or "")


def setting_limits() -> ToolLimits:
    """Return what the project's settings say of every tool, as a level of the policy (T2)."""
    return ToolLimits(
        timeout=app_settings.DEFAULT_TIMEOUT,
        ceiling=app_settings.TIMEOUT_CEILING,
        approval_timeout=app_settings.APPROVAL_TIMEOUT,
    )


def toolbox_settings() -> ToolboxSettings:
    """Return what the built-in tools may do, as the settings are now."""
    root = str(app_settings.WORKSPACE_ROOT)
    return ToolboxSettings(
        exec_enabled=app_settings.EXEC_ENABLED,
        exec_output_limit=app_settings.EXEC_OUTPUT_LIMIT,
        exec_environment=tuple(app_settings.EXEC_ENVIRONMENT),
        exec_sandbox=SandboxChoice(app_settings.EXEC_SANDBOX),
        exec_network=app_settings.EXEC_NETWORK,
        exec_readable=tuple(app_settings.EXEC_READABLE),
        exec_max_processes=app_settings.EXEC_MAX_PROCESSES,
        exec_memory=app_settings.EXEC_MEMORY,
        exec_file_size=app_settings.EXEC_FILE_SIZE,
        exec_tmp_size=app_settings.EXEC_TMP_SIZE,
        exec_cpu_time=app_settings.EXEC_CPU_TIME,
        kill_grace=app_settings.KILL_GRACE,
        git_author=app_settings.GIT_AUTHOR,
        workspace_root=Path(root) if root else None,
        workspace_quota=app_settings.WORKSPACE_QUOTA,
        file_max_bytes=app_settings.FILE_MAX_BYTES,
        web_allow_private=app_settings.WEB_ALLOW_PRIVATE,
        web_ask_hosts=app_settings.WEB_ASK_HOSTS,
        web_known_hosts=tuple(app_settings.WEB_KNOWN_HOSTS),
        web_max_bytes=app_settings.WEB_MAX_BYTES,
        web_max_redirects=app_settings.WEB_MAX_REDIRECTS,
        search_provider=app_settings.SEARCH_PROVIDER,
        search_url=app_settings.SEARCH_URL,
        browser_path=app_settings.BROWSER_PATH,
        browser_sandbox=BrowserSandbox(app_settings.BROWSER_SANDBOX),
        browser_idle=app_settings.BROWSER_IDLE,
        browser_max_pages=app_settings.BROWSER_MAX_PAGES,
    )
