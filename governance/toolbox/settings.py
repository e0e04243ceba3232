"""What the built-in tools may do, and how much of it: a value that the host builds from its own settings."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

Resolver = Callable[[str, int], Awaitable[Sequence[str]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolboxSettings:
    """Limits and permissions of the built-in tools, read anew at every call. Seconds, bytes and characters.

    `exec_environment` names variables of the server that commands may see besides the few they always get.
    `workspace_root` holds one directory per scope, for hosts that give their calls none. `web_resolve` answers
    a host name with addresses (default: the system's resolver).
    """

    exec_enabled: bool = False
    exec_output_limit: int = 50_000
    exec_environment: tuple[str, ...] = ()
    exec_report_interval: float = 0.1
    exec_drain: float = 0.1
    kill_grace: float = 0.4
    workspace_root: Path | None = None
    file_max_bytes: int = 10_000_000
    file_read_limit: int = 60_000
    list_limit: int = 1000
    web_allow_private: bool = False
    web_max_bytes: int = 2_000_000
    web_max_redirects: int = 5
    web_user_agent: str = "django-turnkeeper"
    web_connect_timeout: float = 10.0
    web_read_timeout: float = 30.0
    web_parse_timeout: float = 5.0
    web_resolve: Resolver | None = None


SettingsSource = Callable[[], ToolboxSettings]
