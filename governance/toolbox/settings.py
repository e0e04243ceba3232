"""The settings of the built-in tools, as an object that the host builds from its own settings."""

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from email.utils import parseaddr
from enum import StrEnum
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from governance.core.settings import WEEK, Setting

Resolver = Callable[[str, int], Awaitable[Sequence[str]]]
_DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")


class SandboxChoice(StrEnum):
    """The isolation of commands: `auto` uses bubblewrap if it works, and `bwrap` refuses to run commands without it."""

    AUTO = "auto"
    BWRAP = "bwrap"
    NONE = "none"


class BrowserSandbox(StrEnum):
    """The use of Chromium's own sandbox. With `auto`, it is used unless the server runs as root."""

    AUTO = "auto"
    ON = "on"
    OFF = "off"


class SearchEngine(StrEnum):
    """The built-in search engines."""

    DUCKDUCKGO = "duckduckgo"
    SEARXNG = "searxng"


def _are_absolute(paths: Sequence[str]) -> bool:
    return all(Path(path).is_absolute() for path in paths)


def _is_absolute_or_empty(path: str | Path) -> bool:
    return not str(path) or Path(path).is_absolute()


def _is_author(value: str) -> bool:
    name, address = parseaddr(value)
    return bool(name) and "@" in address


def _is_search_provider(value: str) -> bool:
    return value in tuple(SearchEngine) or bool(_DOTTED.fullmatch(value))


def _is_web_address_or_empty(value: str) -> bool:
    try:
        parts = urlsplit(value)
        is_web = parts.scheme in {"http", "https"} and bool(parts.hostname) and not parts.username
    except ValueError:
        return False
    return is_web or not value


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolboxSettings:
    """Limits and permissions of the built-in tools, which are read again at every call. Durations are in seconds, and
    sizes in bytes or characters.

    A field with a `Setting` is a setting of the project; for example, `exec_enabled` is `GOVERNANCE_EXEC_ENABLED` in
    Django's settings. Its docstring becomes its line in `docs/settings/governance.md`. The other fields are internal.
    `web_resolve` returns the addresses of a host name; by default, it is the system's resolver.
    """

    kill_grace: Annotated[float, Setting("governance.E005", 0, 60)] = 0.4
    """How long a process group may take to end after SIGTERM before it receives SIGKILL (T8)."""

    exec_enabled: Annotated[bool, Setting("governance.E016")] = False
    """Whether `exec` may run commands on this machine (G1)."""

    exec_output_limit: Annotated[
        int, Setting("governance.E017", 1_000, 100_000_000, kind="characters")
    ] = 50_000
    """Maximum length of the stored output of a command (G1)."""

    exec_environment: Annotated[
        Sequence[str],
        Setting(
            "governance.E024",
            hint='a list of names of environment variables, such as ["LANG"]',
            kind="list of names",
        ),
    ] = ()
    """The environment variables of the server that commands may see. They also see a few harmless ones, for example
    `PATH` (G1)."""

    exec_sandbox: Annotated[SandboxChoice, Setting("governance.E025")] = SandboxChoice.AUTO
    """The [sandbox](../howto/sandbox.md) of commands and git: `"auto"` uses bubblewrap if it works, `"bwrap"` refuses
    to run without it, and `"none"` uses no sandbox (G1)."""

    exec_network: Annotated[bool, Setting("governance.E026")] = False
    """Whether sandboxed commands can reach the network (G1)."""

    exec_readable: Annotated[
        Sequence[str],
        Setting(
            "governance.E027",
            is_valid=_are_absolute,
            hint='a list of absolute paths, such as ["/opt/tools"]',
            kind="list of absolute paths",
        ),
    ] = ()
    """Paths that sandboxed commands may read in addition to the system's software (G1)."""

    exec_max_processes: Annotated[int, Setting("governance.E050", 8, zero=True)] = 512
    """Maximum number of simultaneous processes and threads of a command in the
    [sandbox](../howto/sandbox.md#limits). `0` means no limit (G1)."""

    exec_memory: Annotated[int, Setting("governance.E051", 50_000_000, zero=True, kind="bytes")] = (
        2_000_000_000
    )
    """Maximum memory of each process of a command in the sandbox, or of all its processes together if they have a
    [control group](../howto/sandbox.md#limits). `0` means no limit (G1)."""

    exec_file_size: Annotated[
        int, Setting("governance.E052", 1_000_000, zero=True, kind="bytes")
    ] = 1_000_000_000
    """Maximum size of each file that a command in the sandbox writes. `0` means no limit (G1)."""

    exec_tmp_size: Annotated[
        int, Setting("governance.E053", 1_000_000, zero=True, kind="bytes")
    ] = 500_000_000
    """Maximum size of a sandboxed command's `/tmp`, which is kept in memory. `0` means no limit (G1)."""

    exec_cpu_time: Annotated[
        int, Setting("governance.E054", 1, zero=True, kind="whole seconds")
    ] = 3600
    """Maximum CPU time of each process of a command in the sandbox. `0` means no limit (G1)."""

    git_author: Annotated[
        str,
        Setting(
            "governance.E028",
            is_valid=_is_author,
            hint='a name and an address, such as "Agent <agent@localhost>"',
            kind="name and address",
        ),
    ] = "Agent <agent@localhost>"
    """The author of the commits that `git_commit` creates (G1)."""

    workspace_root: Annotated[
        str | Path,
        Setting(
            "governance.E018",
            is_valid=_is_absolute_or_empty,
            hint="an absolute path, or to an empty string for no workspaces",
            kind="absolute path",
        ),
    ] = ""
    """The directory that contains the workspaces, one per conversation. If it is empty, there are no workspaces
    (G1)."""

    workspace_quota: Annotated[
        int, Setting("governance.E057", 1_000_000, zero=True, kind="bytes")
    ] = 2_000_000_000
    """Maximum size of a workspace, including the workspaces of its sub-agents; beyond it, writes are refused. `0`
    means no limit (G1)."""

    file_max_bytes: Annotated[
        int, Setting("governance.E023", 1_000, 10_000_000_000, kind="bytes")
    ] = 10_000_000
    """Maximum size of a file that the file tools read or write (G1)."""

    web_allow_private: Annotated[bool, Setting("governance.E019")] = False
    """Whether `web_fetch` and `browser` may reach private and loopback addresses (G1)."""

    web_ask_hosts: Annotated[bool, Setting("governance.E055")] = False
    """Whether `web_fetch` and `browser` need [approval](../howto/approval.md#ask-before-a-new-host) before they connect
    to a host that is new in the conversation (D1)."""

    web_known_hosts: Annotated[
        Sequence[str],
        Setting(
            "governance.E056",
            hint='a list of host names, such as ["docs.python.org", "*.example.org"]',
            kind="list of names",
        ),
    ] = ()
    """Hosts that `web_fetch` and `browser` may reach without a question, for example `"docs.python.org"`. The pattern
    `"*.example.org"` includes `example.org` and all its subdomains (D1)."""

    web_max_bytes: Annotated[
        int, Setting("governance.E020", 1_000, 1_000_000_000, kind="bytes")
    ] = 2_000_000
    """Maximum number of bytes that `web_fetch` reads of a page (G1)."""

    search_provider: Annotated[
        str,
        Setting(
            "governance.E029",
            is_valid=_is_search_provider,
            hint='"duckduckgo", "searxng", or the dotted path of your own provider',
            kind="name or dotted path",
        ),
    ] = SearchEngine.DUCKDUCKGO
    """The [search engine](../howto/web-search.md) of `web_search`: `"duckduckgo"`, `"searxng"`, or the dotted path of
    your own (G1)."""

    search_url: Annotated[
        str,
        Setting(
            "governance.E030",
            is_valid=_is_web_address_or_empty,
            hint='an address such as "http://127.0.0.1:8888", or to an empty string',
            kind="address",
        ),
    ] = ""
    """The address of the search engine, which may be private. If it is empty, the engine's own address is used
    (G1)."""

    browser_path: Annotated[
        str | Path,
        Setting(
            "governance.E031",
            is_valid=_is_absolute_or_empty,
            hint="the absolute path of Chromium, or to an empty string to have it looked for",
            kind="absolute path",
        ),
    ] = ""
    """The path of the Chromium program for [`browser`](../howto/browser.md). If it is empty, the server searches for
    Chromium (G1)."""

    browser_sandbox: Annotated[BrowserSandbox, Setting("governance.E032")] = BrowserSandbox.AUTO
    """Whether Chromium uses its own sandbox: `"on"`, `"off"`, or `"auto"`, which uses the sandbox unless the server
    runs as root (G1)."""

    browser_idle: Annotated[float, Setting("governance.E033", 1, WEEK)] = 300.0
    """How long an unused page, or a browser without open pages, is kept open (G1)."""

    browser_max_pages: Annotated[int, Setting("governance.E034", 1, 1_000)] = 8
    """Maximum number of pages that one process keeps open; each conversation has at most one (G1)."""

    exec_report_interval: float = 0.1
    exec_drain: float = 0.1
    file_read_limit: int = 60_000
    list_limit: int = 1000
    web_max_redirects: int = 5  # each target is checked in the same way as the first URL
    web_user_agent: str = "django-turnkeeper"
    web_connect_timeout: float = 10.0
    web_read_timeout: float = 30.0
    web_parse_timeout: float = 5.0
    web_resolve: Resolver | None = None
    browser_start_timeout: float = 60.0
    browser_close_timeout: float = 2.0
    browser_action_timeout: float = 10.0
    browser_settle: float = 3.0
    browser_read_limit: int = 30_000


SettingsSource = Callable[[], ToolboxSettings]
