"""Decide which web hosts need a person's approval, because even the URL of a request can leak data to its host."""

from collections.abc import Callable, Mapping
from typing import Any

import httpx

from governance.core.exceptions import ToolFailed
from governance.toolbox.settings import SettingsSource, ToolboxSettings
from governance.toolbox.workspace import shown


def unknown_host_of(settings: SettingsSource) -> Callable[[Mapping[str, Any]], str]:
    """Return a function that returns the host of a call's `url` if it needs approval, and otherwise an empty string."""

    def unknown_host(call_input: Mapping[str, Any]) -> str:
        url = call_input.get("url")
        try:
            host = host_of(httpx.URL(url.strip())) if isinstance(url, str) else ""
        except (httpx.InvalidURL, ValueError):
            return ""  # the tool itself refuses an invalid address
        return "" if is_known(host, settings()) else canonical(host)

    return unknown_host


def host_of(url: httpx.URL) -> str:
    """Return the host in its ASCII form, in which a look-alike name in another script becomes `xn--…`."""
    return url.raw_host.decode("ascii")


def is_known(host: str, settings: ToolboxSettings) -> bool:
    """Return whether a host needs no approval, because `web_ask_hosts` is off or the administrator listed the host."""
    if not host or not settings.web_ask_hosts:
        return True
    name = canonical(host)
    return any(_matches(name, pattern) for pattern in settings.web_known_hosts)


def canonical(host: str) -> str:
    """Return the name under which the approval of a host is requested and remembered."""
    name = host.lower().rstrip(".")
    bare = name.removeprefix("www.")
    # Keep "www.me" whole, because "me" alone is only a top-level domain.
    return bare if "." in bare else name


def refuse_unknown(host: str, settings: ToolboxSettings) -> None:
    """Raise `ToolFailed` if a redirect, or a request of a page, leads to a host that needs approval."""
    if not is_known(host, settings):
        raise ToolFailed(
            f"This leads to the host {shown(host)!r}, which was not approved. If you need it, call the tool again with"
            " an address on that host. The user is then asked for approval if necessary."
        )


def _matches(name: str, pattern: str) -> bool:
    known_host = canonical(pattern)
    if known_host.startswith("*."):
        return name == known_host[2:] or name.endswith(known_host[1:])
    return name == known_host
