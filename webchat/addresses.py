"""Finds the address of a request's client, and trusts only headers that known proxies wrote."""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from django.http import HttpRequest

from webchat.conf import app_settings

IPV6_PREFIX = 64  # a household or server usually gets a /64 network and can use any address in it

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


def client_address(request: HttpRequest) -> str | None:
    """Return the client's address, or None if it is unknown. An IPv6 address is reduced to its /64 network.

    `X-Forwarded-For` is read from its end, and only the entries that the proxies in `WEBCHAT_TRUSTED_PROXIES` wrote are
    used, because a client can forge the earlier ones.
    """
    proxies = [ip_network(entry) for entry in app_settings.TRUSTED_PROXIES]
    nearest = _parse(request.META.get("REMOTE_ADDR", ""))
    hops = request.META.get("HTTP_X_FORWARDED_FOR", "").split(",") if proxies else []
    while hops and _is_known(nearest, proxies) and (further := _parse(hops.pop())):
        nearest = further
    return None if nearest is None else _owner_of(nearest)


def _is_known(peer: Address | None, proxies: list[Network]) -> bool:
    """Return whether a peer is a trusted proxy.

    A peer without an address is, because it uses a Unix socket of this machine.
    """
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
