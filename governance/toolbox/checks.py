"""System checks of what the built-in tools may do and of what they need."""

import re
import shutil
from collections.abc import Iterable
from email.utils import parseaddr
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from django.core import checks

from governance import setting_rules
from governance.conf import app_settings, toolbox_settings
from governance.setting_rules import WEEK, Rule, seconds, switch, whole
from governance.toolbox.commands import SEARCH_PATH
from governance.toolbox.sandbox import Mode, Sandbox, find_gaps, find_sandbox
from governance.toolbox.search_engines import PROVIDERS
from governance.toolbox.settings import BrowserSandbox, SandboxChoice

_DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")


def is_names(value: Any) -> bool:
    """Whether it is a list of texts, none of them empty."""
    return isinstance(value, list | tuple) and all(isinstance(name, str) and name for name in value)


def is_path_or_empty(value: Any) -> bool:
    """Whether it is an absolute path, or nothing."""
    return isinstance(value, str | Path) and (not str(value) or Path(value).is_absolute())


def _is_paths(value: Any) -> bool:
    return is_names(value) and all(Path(path).is_absolute() for path in value)


def _is_author(value: Any) -> bool:
    name, address = parseaddr(value) if isinstance(value, str) else ("", "")
    return bool(name) and "@" in address


def _is_provider(value: Any) -> bool:
    return isinstance(value, str) and (value in PROVIDERS or bool(_DOTTED.fullmatch(value)))


def _is_web_address_or_empty(value: Any) -> bool:
    if not isinstance(value, str):
        return False
    try:
        parts = urlsplit(value)
        is_web = parts.scheme in {"http", "https"} and bool(parts.hostname) and not parts.username
    except ValueError:
        return False
    return is_web or not value


def _one_of(check_id: str, choices: Iterable[str]) -> Rule:
    allowed = tuple(choices)
    words = " or ".join(f'"{choice}"' for choice in allowed)
    return Rule(
        id=check_id,
        is_valid=lambda value: isinstance(value, str) and value in allowed,
        hint=f"Set it to {words}.",
    )


def _amount(check_id: str, least: int) -> Rule:
    """A whole number from `least` on, or 0 for no limit."""
    return Rule(
        id=check_id,
        is_valid=lambda value: (
            isinstance(value, int)
            and not isinstance(value, bool)
            and (value == 0 or least <= value < 10**15)
        ),
        hint=f"Set it to a whole number, {least} or more; 0 = no limit.",
    )


RULES: dict[str, Rule] = {
    "EXEC_ENABLED": switch("governance.E016"),
    "EXEC_OUTPUT_LIMIT": whole("governance.E017", 1_000, 100_000_000),
    "WORKSPACE_ROOT": Rule(
        id="governance.E018",
        is_valid=is_path_or_empty,
        hint="Set it to an absolute path, or to an empty string for no workspaces.",
    ),
    "WEB_ALLOW_PRIVATE": switch("governance.E019"),
    "WEB_ASK_HOSTS": switch("governance.E055"),
    "WEB_KNOWN_HOSTS": Rule(
        id="governance.E056",
        is_valid=is_names,
        hint='Set it to a list of host names, such as ["docs.python.org", "*.example.org"].',
    ),
    "WEB_MAX_BYTES": whole("governance.E020", 1_000, 1_000_000_000),
    "WEB_MAX_REDIRECTS": whole("governance.E022", 0, 100),
    "FILE_MAX_BYTES": whole("governance.E023", 1_000, 10_000_000_000),
    "EXEC_ENVIRONMENT": Rule(
        id="governance.E024",
        is_valid=is_names,
        hint='Set it to a list of names of environment variables, such as ["LANG"].',
    ),
    "EXEC_SANDBOX": _one_of("governance.E025", SandboxChoice),
    "EXEC_NETWORK": switch("governance.E026"),
    "EXEC_READABLE": Rule(
        id="governance.E027",
        is_valid=_is_paths,
        hint='Set it to a list of absolute paths, such as ["/opt/tools"].',
    ),
    # Below these no shell would start.
    "EXEC_MAX_PROCESSES": _amount("governance.E050", 8),
    "EXEC_MEMORY": _amount("governance.E051", 50_000_000),
    "EXEC_FILE_SIZE": _amount("governance.E052", 1_000_000),
    "EXEC_TMP_SIZE": _amount("governance.E053", 1_000_000),
    "EXEC_CPU_TIME": _amount("governance.E054", 1),
    "WORKSPACE_QUOTA": _amount("governance.E055", 1_000_000),
    "GIT_AUTHOR": Rule(
        id="governance.E028",
        is_valid=_is_author,
        hint='Set it to a name and an address, such as "Agent <agent@localhost>".',
    ),
    "SEARCH_PROVIDER": Rule(
        id="governance.E029",
        is_valid=_is_provider,
        hint='Set it to "duckduckgo", "searxng", or the dotted path of your own provider.',
    ),
    "SEARCH_URL": Rule(
        id="governance.E030",
        is_valid=_is_web_address_or_empty,
        hint='Set it to an address such as "http://127.0.0.1:8888", or to an empty string.',
    ),
    "BROWSER_PATH": Rule(
        id="governance.E031",
        is_valid=is_path_or_empty,
        hint="Set it to the absolute path of Chromium, or to an empty string to have it looked for.",
    ),
    "BROWSER_SANDBOX": _one_of("governance.E032", BrowserSandbox),
    "BROWSER_IDLE": seconds("governance.E033", 1, WEEK),
    "BROWSER_MAX_PAGES": whole("governance.E034", 1, 1_000),
}


def check_sandbox(**_: Any) -> list[checks.CheckMessage]:
    """Commands run in the sandbox that was meant. Values that are wrong in themselves are told elsewhere."""
    if setting_rules.check_values(app_settings, RULES):
        return []
    choice = app_settings.EXEC_SANDBOX
    is_demanded = choice == SandboxChoice.BWRAP
    exposed = _exposed()
    if not is_demanded and not (exposed and choice == SandboxChoice.AUTO):
        return []
    found = find_sandbox(toolbox_settings())
    if found.mode is not Mode.NONE:
        return _weaknesses(found)
    hint = (
        "Install bubblewrap (on Debian and Ubuntu: apt install bubblewrap), and let the server's user make namespaces:"
        " `bwrap --unshare-user --unshare-pid --ro-bind / / true` has to work."
    )
    if is_demanded:
        return [
            checks.Error(
                f'GOVERNANCE_EXEC_SANDBOX is "bwrap", but that does not work here: {found.problem}. Commands are'
                " refused.",
                hint=hint,
                id="governance.E036",
            )
        ]
    return [
        checks.Warning(
            f"Without a sandbox, with all rights of the server's user, run {exposed}: {found.problem}.",
            hint=f'{hint} Or set GOVERNANCE_EXEC_SANDBOX to "none" to say that it is meant.',
            id="governance.W009",
        )
    ]


def _weaknesses(found: Sandbox) -> list[checks.CheckMessage]:
    """What is to be said of a sandbox that works."""
    said: list[checks.CheckMessage] = []
    if found.is_roots:
        said.append(
            checks.Warning(
                "The server runs as root. Whatever leaves the sandbox by a fault of it or of the kernel has the whole machine.",
                hint="Run the server as a user of its own. Until then people are asked about commands in spite of the"
                ' sandbox, unless GOVERNANCE_EXEC_SANDBOX is "bwrap".',
                id="governance.W030",
            )
        )
    if gaps := find_gaps(found):
        said.append(
            checks.Warning(
                f"Not limited for commands in the sandbox, though set: {', '.join(gaps)}.",
                hint="For root the kernel counts no processes: run the server as a user of its own. The rest needs the"
                " program prlimit (util-linux), and bubblewrap 0.7 or newer for the size of /tmp.",
                id="governance.W031",
            )
        )
    return said


def _exposed() -> str:
    """Return in words which programs run where people of the chat can write; empty if none does."""
    has_git = bool(app_settings.WORKSPACE_ROOT) and shutil.which("git", path=SEARCH_PATH)
    return " and ".join(
        word
        for word, is_used in (("commands", app_settings.EXEC_ENABLED), ("git", has_git))
        if is_used
    )


def check_search(**_: Any) -> list[checks.CheckMessage]:
    """The search engine has an address where it has none of its own."""
    if app_settings.SEARCH_PROVIDER != "searxng" or app_settings.SEARCH_URL:
        return []
    return [
        checks.Error(
            'GOVERNANCE_SEARCH_PROVIDER is "searxng", but GOVERNANCE_SEARCH_URL is not set.',
            hint="Set GOVERNANCE_SEARCH_URL to the address of your SearXNG server.",
            id="governance.E035",
        )
    ]


def check_search_provider(**_: Any) -> list[checks.CheckMessage]:
    """A search engine of the project's own can be imported."""
    name = app_settings.SEARCH_PROVIDER
    if not _is_provider(name) or name in PROVIDERS:
        return []
    return setting_rules.check_path(
        name,
        what="There is no search engine",
        otherwise=RULES["SEARCH_PROVIDER"].hint,
        check_id="governance.E060",
    )
