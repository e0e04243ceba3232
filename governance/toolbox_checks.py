"""System checks of what the built-in tools may do and of what they need."""

import shutil
from typing import Any

from django.core import checks

from governance import setting_rules
from governance.conf import app_settings, toolbox_settings
from governance.toolbox.commands import SEARCH_PATH
from governance.toolbox.sandbox import Mode, Sandbox, find_gaps, find_sandbox
from governance.toolbox.settings import SandboxChoice, SearchEngine


def check_sandbox(**_: Any) -> list[checks.CheckMessage]:
    """Commands run in the sandbox that was meant. Values that are wrong in themselves are told elsewhere."""
    if setting_rules.check_values(app_settings):
        return []
    choice = app_settings.EXEC_SANDBOX
    is_demanded = choice == SandboxChoice.BWRAP
    exposed = _exposed()
    if not is_demanded and not (exposed and choice == SandboxChoice.AUTO):
        return []
    found = find_sandbox(toolbox_settings())
    if found.mode is not Mode.NONE:
        return _weaknesses(found)
    return [_missing(found, exposed="" if is_demanded else exposed)]


def _missing(found: Sandbox, *, exposed: str) -> checks.CheckMessage:
    """What is to be said where no sandbox works. Without `exposed` programs it is demanded."""
    hint = (
        "Install bubblewrap (on Debian and Ubuntu: apt install bubblewrap), and let the server's user make namespaces:"
        " `bwrap --unshare-user --unshare-pid --ro-bind / / true` has to work."
    )
    if not exposed:
        return checks.Error(
            f'GOVERNANCE_EXEC_SANDBOX is "bwrap", but that does not work here: {found.problem}. Commands are'
            " refused.",
            hint=hint,
            id="governance.E036",
        )
    return checks.Warning(
        f"Without a sandbox, with all rights of the server's user, run {exposed}: {found.problem}.",
        hint=f'{hint} Or set GOVERNANCE_EXEC_SANDBOX to "none" to say that it is meant.',
        id="governance.W009",
    )


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
    """Return phrases for the programs that run where chat users can write; empty if none does."""
    has_git = bool(app_settings.WORKSPACE_ROOT) and shutil.which("git", path=SEARCH_PATH)
    return " and ".join(
        word
        for word, is_used in (("commands", app_settings.EXEC_ENABLED), ("git", has_git))
        if is_used
    )


def check_search(**_: Any) -> list[checks.CheckMessage]:
    """The search engine has an address where it has none of its own."""
    if app_settings.SEARCH_PROVIDER != SearchEngine.SEARXNG or app_settings.SEARCH_URL:
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
    name = app_settings.valid("SEARCH_PROVIDER")
    if name in tuple(SearchEngine):
        return []
    return setting_rules.check_path(
        name,
        what="There is no search engine",
        otherwise=app_settings.DECLARED["SEARCH_PROVIDER"].hint,
        check_id="governance.E060",
    )
