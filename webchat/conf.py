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
    """All settings of webchat. The docstring of each becomes its line in `docs/settings/webchat.md`."""

    PREFIX = "WEBCHAT_"

    HEARTBEAT_INTERVAL: Annotated[float, Setting("webchat.E001")] = 15.0
    """How often a socket sends a heartbeat, looks for missed events, and checks that its user is still signed in."""

    LOG_CHECK_INTERVAL: Annotated[float, Setting("webchat.E001")] = 2.0
    """How often a process checks the log for events that the channel layer has lost. One query serves all of its
    sockets, and a few more read the status of other conversations."""

    HELLO_TIMEOUT: Annotated[float, Setting("webchat.E001")] = 15.0
    """How long a new socket may take to send `hello`."""

    MAX_FRAMES_PER_MINUTE: Annotated[int, Setting("webchat.E001")] = 240
    """Maximum number of frames that one socket may receive per minute. If its client sends more, the socket is closed
    with the code 4429."""

    MAX_USER_FRAMES_PER_MINUTE: Annotated[int, Setting("webchat.E001")] = 960
    """Maximum number of frames per minute from all sockets of one user in one process. Beyond that, a socket on which
    the client continues to send is closed with the code 4429. Cancels are never refused because of other sockets."""

    MAX_SOCKETS_PER_USER: Annotated[int, Setting("webchat.E001")] = 50
    """Maximum number of open sockets of one user in one process. A further socket receives the error
    `too_many_sockets` and is closed with the code 4429."""

    MAX_POSTS_PER_MINUTE: Annotated[int, Setting("webchat.E001")] = 240
    """Maximum number of POST requests per minute from one user to one endpoint of the API, in one process. Further
    requests are answered with 429. Each endpoint is counted separately, so that no other requests can use up the limit
    for cancels."""

    MAX_BAD_FRAMES: Annotated[int, Setting("webchat.E001")] = 20
    """Maximum number of invalid frames per minute on one socket. Beyond that, the socket is closed with the code
    4429."""

    OUTBOX_FRAMES: Annotated[int, Setting("webchat.E001")] = 256
    """Maximum number of frames that wait for a slow client. Beyond that, streamed text is dropped, and events are read
    from the log later."""

    OUTBOX_BYTES: Annotated[int, Setting("webchat.E001", kind="bytes")] = 1_048_576
    """Maximum number of bytes that wait for a slow client, in addition to the limit of `WEBCHAT_OUTBOX_FRAMES`. If the
    client acknowledges what it receives, unacknowledged bytes are included."""

    SEND_TIMEOUT: Annotated[float, Setting("webchat.E001")] = 20.0
    """How long the server may take to send one frame. A client that reads more slowly is disconnected with the close
    code 1013."""

    MAX_INLINE_EVENT_BYTES: Annotated[int, Setting("webchat.E001", kind="bytes")] = 32_768
    """Maximum size of an event that is sent through the channel layer. Of a larger event, only the number is sent, and
    sockets read the event from the log."""

    LAYER_TIMEOUT: Annotated[float, Setting("webchat.E001")] = 1.0
    """How long the channel layer may take to accept a message. If the message is lost, sockets read its event from the
    log within `WEBCHAT_LOG_CHECK_INTERVAL`."""

    READY_TIMEOUT: Annotated[float, Setting("webchat.E001")] = 2.0
    """How long `/readyz` waits for the database and for the channel layer. If one of them has not answered by then,
    `/readyz` reports it as unavailable."""

    CSP: Annotated[str | None, Setting("webchat.E009", none="no header")] = (
        "default-src 'self'; script-src 'self' {nonce}; img-src 'self' data:; connect-src 'self' {websocket}; "
        "frame-ancestors 'none'; base-uri 'self'; form-action 'self'; object-src 'none'"
    )
    """The Content-Security-Policy of the chat's pages. `{nonce}` is replaced by the response's nonce, and
    `{websocket}` by the origin of this host's sockets. With `None`, the project sets the policy."""

    BRAND: Annotated[
        Mapping[str, str],
        Setting(
            "webchat.E024",
            is_valid=lambda brand: set(brand) <= {"name", "logo", "url"},
            hint='a dict with "name", "logo" (a static file, or an address) and "url" (an address, or the name of a'
            " view); each may be left out",
            kind="dict of strings",
        ),
    ] = {}
    """The site's name and logo on the pages, and the target of a link back to the rest of the site."""

    MAX_PASSWORD_CHECKS: Annotated[int, Setting("webchat.E001")] = 1
    """Maximum number of passwords that one process checks at the same time. Each check occupies a CPU for a large part
    of a second."""

    MAX_WAITING_SIGN_INS: Annotated[int, Setting("webchat.E001")] = 8
    """Maximum number of sign-ins that wait in one process for their password check. Further sign-ins are answered with
    429 without a check."""

    TRUSTED_PROXIES: Annotated[
        Sequence[str],
        Setting(
            "webchat.E006",
            is_valid=_are_networks,
            hint='a list of addresses and networks, such as ["127.0.0.1", "10.1.0.0/16"]',
        ),
    ] = ()
    """Addresses and networks of the proxies whose `X-Forwarded-For` header is trusted."""


app_settings = WebchatSettings()
