"""Where a request comes from: the address of the client, behind proxies that are known and nowhere else."""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from django.http import HttpRequest

from webchat.conf import app_settings

IPV6_PREFIX = 64  # what one household or one server gets: its owner picks any address of it

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


def client_address(request: HttpRequest) -> str | None:
    """Return the client's address (of IPv6 the network's), or None where the server knows none.

    `X-Forwarded-For` is read from its end, as far as `WEBCHAT_TRUSTED_PROXIES` have written it: what stands before
    that may be the client's invention.
    """
    proxies = [ip_network(entry) for entry in app_settings.TRUSTED_PROXIES]
    nearest = _parse(request.META.get("REMOTE_ADDR", ""))
    hops = request.META.get("HTTP_X_FORWARDED_FOR", "").split(",") if proxies else []
    while hops and _is_known(nearest, proxies) and (further := _parse(hops.pop())):
        nearest = further
    return None if nearest is None else _owner_of(nearest)


def _is_known(peer: Address | None, proxies: list[Network]) -> bool:
    """A peer without an address has come through a Unix socket, from this machine."""
    return peer is None or any(peer in network for network in proxies)


def _parse(text: str) -> Address | None:
    try:
        address = ip_address(text.strip())
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def _owner_of(address: Address) -> str:
    if isinstance(address, IPv4Address):
        return str(address)
    return str(IPv6Network((address.packed, IPV6_PREFIX), strict=False).network_address)
