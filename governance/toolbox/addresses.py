"""Decide which network addresses a tool may reach, and resolve host names to addresses.

The check applies to the addresses that a name resolves to, so that no spelling of a host (decimal, hexadecimal, octal,
IPv6) and no DNS name evades it.
"""

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from governance.core.exceptions import ToolFailed
from governance.threads import DaemonPool
from governance.toolbox.settings import ToolboxSettings

R = TypeVar("R")
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

# A lookup cannot be cancelled while its name server does not respond. In this pool, it delays only other lookups.
_lookups = DaemonPool(max_workers=16, name="lookups of hosts")

# Python's own `is_global` differs between patch releases, and does not cover the last two networks.
_REFUSED_V4 = tuple(
    ipaddress.IPv4Network(network)
    for network in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",  # carrier-grade NAT, some clouds' metadata
        "127.0.0.0/8",
        "169.254.0.0/16",  # link-local, most clouds' metadata
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",  # 6to4 relays
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/3",  # multicast, reserved, broadcast
        "168.63.129.16/32",  # Azure's host
    )
)
# All other IPv6 addresses are refused, such as loopback, mapped and translated IPv4, local and multicast addresses.
_GLOBAL_V6 = ipaddress.IPv6Network("2000::/3")
_REFUSED_V6 = tuple(
    ipaddress.IPv6Network(network)
    for network in (
        "2001::/23",  # Teredo and other special purposes
        "2001:db8::/32",
        "2002::/16",  # 6to4: an IPv4 address in disguise
        "3fff::/20",
    )
)


class Unreachable(ToolFailed):
    """The host cannot be reached. The exception's text is a sentence for the model."""


def is_public(address: str) -> bool:
    """Return whether the address belongs to a host on the public internet."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(parsed, ipaddress.IPv4Address):
        return not any(parsed in network for network in _REFUSED_V4)
    return parsed in _GLOBAL_V6 and not any(parsed in network for network in _REFUSED_V6)


async def resolve(host: str, port: int, *, settings: ToolboxSettings) -> Sequence[str]:
    """Return the addresses of a host if tools may reach all of them.

    Raises:
        Unreachable: the host does not exist, or its name was not resolved in time.
        ToolFailed: at least one of its addresses is not allowed.
    """
    find = settings.web_resolve or _ask_system
    try:
        async with asyncio.timeout(settings.web_connect_timeout):
            addresses = await find(host, port)
    except (OSError, UnicodeError):  # no such name; TimeoutError is an OSError
        addresses = ()
    if not addresses:
        raise Unreachable(f"The host {host[:200]!r} could not be found. Check the address.")
    if not settings.web_allow_private and not all(is_public(address) for address in addresses):
        raise ToolFailed(
            f"The host {host[:200]!r} is on a private or local network, which tools may not reach. "
            "An administrator can allow it: GOVERNANCE_WEB_ALLOW_PRIVATE."
        )
    return addresses


async def send_pinned(
    request: Any,
    addresses: Sequence[str],
    send: Callable[[Any], Awaitable[R]],
    *,
    extensions: Mapping[str, Any],
    unreachable: tuple[type[Exception], ...],
) -> R:
    """Send a request of httpx or httpx2 to the first of these addresses that accepts a connection.

    Raises:
        Exception: the error of the last address, of one of the types in `unreachable`, if none accepts a connection.
    """

    def pinned(address: str) -> Any:
        return type(request)(
            request.method,
            request.url.copy_with(host=address),
            headers=request.headers,  # keeps the original Host header
            stream=request.stream,
            # Use the form in which the name was resolved, because TLS would encode other scripts by an older rule.
            extensions={**extensions, "sni_hostname": request.url.raw_host.decode("ascii")},
        )

    *first_addresses, last = addresses
    for address in first_addresses:
        with suppress(*unreachable):
            return await send(pinned(address))
    return await send(pinned(last))


async def _ask_system(host: str, port: int) -> Sequence[str]:
    loop = asyncio.get_running_loop()
    look_up = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    records = await loop.run_in_executor(_lookups, look_up)
    return list(dict.fromkeys(str(entry[4][0]) for entry in records))
