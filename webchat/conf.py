"""The project's settings: `WEBCHAT_<NAME>` in Django's settings is `app_settings.<NAME>` here, read on access."""

from collections.abc import Mapping, Sequence
from ipaddress import ip_network
from typing import Annotated

from governance.app_settings import AppSettings, Setting


def _are_networks(entries: Sequence[str]) -> bool:
    try:
        return all(map(ip_network, entries))
    except ValueError:
        return False


class WebchatSettings(AppSettings):
    """All settings; the docstring of each is its line in `docs/settings/webchat.md`."""

    PREFIX = "WEBCHAT_"

    HEARTBEAT_INTERVAL: Annotated[float, Setting("webchat.E001")] = 15.0
    """How often a socket sends a heartbeat, looks for missed events, and checks that its user is still signed
    in."""

    LOG_CHECK_INTERVAL: Annotated[float, Setting("webchat.E001")] = 2.0
    """How often a process checks the log for events that the channel layer has lost. This takes one query for all
    of its sockets, and a few more for the status of other conversations."""

    HELLO_TIMEOUT: Annotated[float, Setting("webchat.E001")] = 15.0
    """How long a new socket may take to send `hello`."""

    MAX_FRAMES_PER_MINUTE: Annotated[int, Setting("webchat.E001")] = 240
    """Frames per socket; beyond that it is closed with 4429."""

    MAX_USER_FRAMES_PER_MINUTE: Annotated[int, Setting("webchat.E001")] = 960
    """Frames of all sockets of one user in one process; beyond that, a socket that continues to send is closed with
    4429. Cancels are never refused because of other sockets."""

    MAX_SOCKETS_PER_USER: Annotated[int, Setting("webchat.E001")] = 50
    """Open sockets of one user in one process. A further one gets the error `too_many_sockets` and is closed with
    4429."""

    MAX_POSTS_PER_MINUTE: Annotated[int, Setting("webchat.E001")] = 240
    """POST requests of one user to one address of the API, in one process; beyond that, the answer is 429. Each
    address is counted separately, so that no other requests can use up the limit for cancels."""

    MAX_BAD_FRAMES: Annotated[int, Setting("webchat.E001")] = 20
    """Invalid frames of one socket in a minute; beyond that it is closed with 4429."""

    OUTBOX_FRAMES: Annotated[int, Setting("webchat.E001")] = 256
    """Frames that wait for a slow client. Beyond that, streamed text is dropped, and events are read from the log
    later."""

    OUTBOX_BYTES: Annotated[int, Setting("webchat.E001", kind="bytes")] = 1_048_576
    """The same limit in bytes."""

    SEND_TIMEOUT: Annotated[float, Setting("webchat.E001")] = 20.0
    """How long sending one frame may take before a client that does not read is disconnected (1013)."""

    MAX_INLINE_EVENT_BYTES: Annotated[int, Setting("webchat.E001", kind="bytes")] = 32_768
    """For a larger event, only its number goes through the channel layer; sockets read the event from the log."""

    LAYER_TIMEOUT: Annotated[float, Setting("webchat.E001")] = 1.0
    """How long the layer may take to accept a message. Lost messages are read from the log within
    `WEBCHAT_LOG_CHECK_INTERVAL`."""

    READY_TIMEOUT: Annotated[float, Setting("webchat.E001")] = 2.0
    """How long `/readyz` waits for the database and for the channel layer; it answers after that, even if they
    hang."""

    CSP: Annotated[str | None, Setting("webchat.E009", none="no header")] = (
        "default-src 'self'; script-src 'self' {nonce}; img-src 'self' data:; connect-src 'self' {websocket}; "
        "frame-ancestors 'none'; base-uri 'self'; form-action 'self'; object-src 'none'"
    )
    """The Content-Security-Policy of the chat's pages. `{nonce}` is replaced by the response's nonce, `{websocket}`
    by this host's socket origin. With `None`, the project sets the policy."""

    BRAND: Annotated[
        Mapping[str, str],
        Setting(
            "webchat.E024",
            is_valid=lambda brand: set(brand) <= {"name", "logo", "url"},
            hint='a dict with "name", "logo" (a static file, or an address) and "url" (an address, or the name of a'
            " view); each may be left out",
            kind="dict of texts",
        ),
    ] = {}
    """The name and the logo of the pages, and the target of a link back to the rest of the site."""

    MAX_PASSWORD_CHECKS: Annotated[int, Setting("webchat.E001")] = 1
    """Passwords that one process checks at a time. A check occupies a CPU for a large part of a second."""

    MAX_WAITING_SIGN_INS: Annotated[int, Setting("webchat.E001")] = 8
    """Sign-ins of one process that wait for their check. A further one is answered with 429, unchecked."""

    TRUSTED_PROXIES: Annotated[
        Sequence[str],
        Setting(
            "webchat.E006",
            is_valid=_are_networks,
            hint='a list of addresses and networks, such as ["127.0.0.1", "10.1.0.0/16"]',
        ),
    ] = ()
    """Addresses and networks of the proxies whose `X-Forwarded-For` is trusted."""


app_settings = WebchatSettings()
