"""What the built-in tools may do, and how much of it: a value that the host builds from its own settings."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

Resolver = Callable[[str, int], Awaitable[Sequence[str]]]


class SandboxChoice(StrEnum):
    """How commands shall be kept in: `auto` takes what works here, `bwrap` refuses to run them otherwise."""

    AUTO = "auto"
    BWRAP = "bwrap"
    NONE = "none"


class BrowserSandbox(StrEnum):
    """Whether Chromium uses a sandbox of its own: `auto` does, except where the server runs as root and it cannot."""

    AUTO = "auto"
    ON = "on"
    OFF = "off"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolboxSettings:
    """Limits and permissions of the built-in tools, read anew at every call. Seconds, bytes and characters.

    `exec_environment` names variables of the server that commands may see besides the few they always get,
    `exec_readable` paths that they may read in the sandbox besides the system's. `exec_max_processes` to `exec_cpu_time`
    are what a command may use up in the sandbox, `workspace_quota` what a workspace may hold; 0 = no limit.
    `workspace_root` holds one directory per scope, for hosts that give their calls none. `web_resolve` answers
    a host name with addresses (default: the system's resolver). With `web_ask_hosts` a person is asked before the first
    visit of a host that is not in `web_known_hosts` ("example.org", "*.example.org"). `search_provider` is a name or a dotted path,
    `search_url` where it answers: the administrator's choice, so it may be a private address.
    """

    exec_enabled: bool = False
    exec_output_limit: int = 50_000
    exec_environment: tuple[str, ...] = ()
    exec_report_interval: float = 0.1
    exec_drain: float = 0.1
    exec_sandbox: SandboxChoice = SandboxChoice.AUTO
    exec_network: bool = False
    exec_readable: tuple[str, ...] = ()
    exec_max_processes: int = 512
    exec_memory: int = 2_000_000_000
    exec_file_size: int = 1_000_000_000
    exec_tmp_size: int = 500_000_000
    exec_cpu_time: int = 3600
    kill_grace: float = 0.4
    git_author: str = "Agent <agent@localhost>"
    workspace_root: Path | None = None
    workspace_quota: int = 2_000_000_000
    file_max_bytes: int = 10_000_000
    file_read_limit: int = 60_000
    list_limit: int = 1000
    web_allow_private: bool = False
    web_ask_hosts: bool = False
    web_known_hosts: tuple[str, ...] = ()
    web_max_bytes: int = 2_000_000
    web_max_redirects: int = 5
    web_user_agent: str = "django-turnkeeper"
    web_connect_timeout: float = 10.0
    web_read_timeout: float = 30.0
    web_parse_timeout: float = 5.0
    web_resolve: Resolver | None = None
    search_provider: str = "duckduckgo"
    search_url: str = ""
    browser_path: str = ""
    browser_sandbox: BrowserSandbox = BrowserSandbox.AUTO
    browser_start_timeout: float = 60.0
    browser_close_timeout: float = 2.0
    browser_action_timeout: float = 10.0
    browser_settle: float = 3.0
    browser_idle: float = 300.0
    browser_max_pages: int = 8
    browser_read_limit: int = 30_000


SettingsSource = Callable[[], ToolboxSettings]
