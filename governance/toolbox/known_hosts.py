"""Decides which web hosts need a person's approval: a page's address can carry data away."""

from collections.abc import Callable, Mapping
from typing import Any

import httpx

from governance.core.exceptions import ToolFailed
from governance.toolbox.settings import SettingsSource, ToolboxSettings
from governance.toolbox.workspace import shown


def unknown_host_of(settings: SettingsSource) -> Callable[[Mapping[str, Any]], str]:
    """Return a function that finds, in a call's `url`, the host to ask about; empty if none."""

    def unknown_host(call_input: Mapping[str, Any]) -> str:
        url = call_input.get("url")
        try:
            host = host_of(httpx.URL(url.strip())) if isinstance(url, str) else ""
        except (httpx.InvalidURL, ValueError):
            return ""  # the tool itself refuses an invalid address
        return "" if is_known(host, settings()) else canonical(host)

    return unknown_host


def host_of(url: httpx.URL) -> str:
    """Return the host in the form in which it is sent: a look-alike in another script becomes `xn--…`."""
    return url.raw_host.decode("ascii")


def is_known(host: str, settings: ToolboxSettings) -> bool:
    """Return whether a host needs no question: the setting is off, or the administrator listed the host."""
    if not host or not settings.web_ask_hosts:
        return True
    name = canonical(host)
    return any(_matches(name, pattern) for pattern in settings.web_known_hosts)


def canonical(host: str) -> str:
    """Return the name under which a host is asked about and remembered."""
    name = host.lower().rstrip(".")
    bare = name.removeprefix("www.")
    return bare if "." in bare else name  # www.me is an ordinary host, and "me" an ordinary word


def refuse_unknown(host: str, settings: ToolboxSettings) -> None:
    """Raise `ToolFailed` for a redirect to a host that no person approved."""
    if not is_known(host, settings):
        raise ToolFailed(
            f"This leads to the host {shown(host)!r}, which was not asked for. If it is needed, call the tool again with"
            " an address there: the user is asked where that is necessary."
        )


def _matches(name: str, pattern: str) -> bool:
    known_host = canonical(pattern)
    if known_host.startswith("*."):
        return name == known_host[2:] or name.endswith(known_host[1:])
    return name == known_host
