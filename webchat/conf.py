"""Settings of webchat. `app_settings.<NAME>` reads `WEBCHAT_<NAME>` from Django's settings on each access."""

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
    """All settings of webchat. The docstring of each one is its description in `docs/settings/webchat.md`."""

    PREFIX = "WEBCHAT_"

    HEARTBEAT_INTERVAL: Annotated[float, Setting("webchat.E001")] = 15.0
    """How often a socket sends a heartbeat, looks for missed events, and checks that its user is still signed in."""

    LOG_CHECK_INTERVAL: Annotated[float, Setting("webchat.E001")] = 2.0
    """How often a process checks the log for events that the channel layer has lost. One query serves all of its
    sockets, and a few more read the status of other conversations."""

    HELLO_TIMEOUT: Annotated[float, Setting("webchat.E001")] = 15.0
    """How long a new socket may take to send `hello`."""

    MAX_FRAMES_PER_MINUTE: Annotated[int, Setting("webchat.E001")] = 240
    """The maximum number of frames that one socket may send per minute. Beyond that, the socket is closed with code
    4429."""

    MAX_USER_FRAMES_PER_MINUTE: Annotated[int, Setting("webchat.E001")] = 960
    """The maximum number of frames per minute from all sockets of one user to one process. Beyond that, a socket that
    continues to send is closed with code 4429. A cancel is never refused because of this limit."""

    MAX_SOCKETS_PER_USER: Annotated[int, Setting("webchat.E001")] = 50
    """The maximum number of open sockets of one user in one process. A further socket gets the error `too_many_sockets`
    and is closed with code 4429."""

    MAX_POSTS_PER_MINUTE: Annotated[int, Setting("webchat.E001")] = 240
    """The maximum number of POST requests per minute of one user to one endpoint of the API, in one process. Beyond
    that, the status is 429. Each endpoint is counted separately, so that other requests cannot use up the limit for
    cancels."""

    MAX_BAD_FRAMES: Annotated[int, Setting("webchat.E001")] = 20
    """The maximum number of invalid frames per minute from one socket. Beyond that, the socket is closed with code
    4429."""

    OUTBOX_FRAMES: Annotated[int, Setting("webchat.E001")] = 256
    """The maximum number of frames that wait for a slow client. Beyond that, streamed text is dropped, and events are
    read from the log later."""

    OUTBOX_BYTES: Annotated[int, Setting("webchat.E001", kind="bytes")] = 1_048_576
    """The maximum size of the frames that wait for a slow client. Beyond that, the same applies as for
    `WEBCHAT_OUTBOX_FRAMES`."""

    SEND_TIMEOUT: Annotated[float, Setting("webchat.E001")] = 20.0
    """How long it may take to send one frame. After that, a client that does not read is disconnected with code 1013."""

    MAX_INLINE_EVENT_BYTES: Annotated[int, Setting("webchat.E001", kind="bytes")] = 32_768
    """The maximum size of an event that is sent through the channel layer. For a larger one, only its number is sent,
    and sockets read the event from the log."""

    LAYER_TIMEOUT: Annotated[float, Setting("webchat.E001")] = 1.0
    """How long the channel layer may take to accept a message. Events that it did not accept are read from the log
    within `WEBCHAT_LOG_CHECK_INTERVAL`."""

    READY_TIMEOUT: Annotated[float, Setting("webchat.E001")] = 2.0
    """How long `/readyz` waits for the database and the channel layer. If they hang, it responds after this time."""

    CSP: Annotated[str | None, Setting("webchat.E009", none="no header")] = (
        "default-src 'self'; script-src 'self' {nonce}; img-src 'self' data:; connect-src 'self' {websocket}; "
        "frame-ancestors 'none'; base-uri 'self'; form-action 'self'; object-src 'none'"
    )
    """The Content-Security-Policy of the chat's pages. `{nonce}` is replaced by the response's nonce, `{websocket}`
    by the origin of this host's WebSockets. With `None`, webchat sends no header, so that the project can set one."""

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
    """The site's name and logo on the pages, and the target of a link back to the rest of the site."""

    MAX_PASSWORD_CHECKS: Annotated[int, Setting("webchat.E001")] = 1
    """How many passwords one process checks concurrently. Each check occupies a CPU for a large part of a second."""

    MAX_WAITING_SIGN_INS: Annotated[int, Setting("webchat.E001")] = 8
    """How many sign-ins may wait in one process until their password is checked. A further one gets the status 429, and
    its password is not checked."""

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
