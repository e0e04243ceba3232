"""The project's settings: `WEBCHAT_<NAME>` in Django's settings is `app_settings.<NAME>` here, read on access."""

from collections.abc import Sequence
from ipaddress import ip_network
from typing import Annotated

from governance.app_settings import AppSettings, Setting


def _are_networks(entries: Sequence[str]) -> bool:
    try:
        return all(map(ip_network, entries))
    except ValueError:
        return False


class WebchatSettings(AppSettings):
    """Every setting; each docstring is its line in `docs/settings/webchat.md`."""

    PREFIX = "WEBCHAT_"

    HEARTBEAT_INTERVAL: Annotated[float, Setting("webchat.E001")] = 15.0
    """How often a socket says that it is alive and looks for missed events. It also asks whether its user is still
    signed in."""

    LOG_CHECK_INTERVAL: Annotated[float, Setting("webchat.E001")] = 2.0
    """How often a process asks the log whether the channel layer has lost something. That is one query for all of its
    sockets. A few more queries ask how other conversations stand."""

    HELLO_TIMEOUT: Annotated[float, Setting("webchat.E001")] = 15.0
    """How long a new socket may take to send `hello`."""

    MAX_FRAME_BYTES: Annotated[int, Setting("webchat.E001", kind="bytes")] = 65_536
    """The largest frame that a client may send."""

    MAX_FRAMES_PER_MINUTE: Annotated[int, Setting("webchat.E001")] = 240
    """Frames of one socket; more closes it with 4429."""

    MAX_USER_FRAMES_PER_MINUTE: Annotated[int, Setting("webchat.E001")] = 960
    """Frames of all sockets of one user in one process; more closes the socket that goes on with 4429. Cancels are
    never refused for what other sockets do."""

    MAX_SOCKETS_PER_USER: Annotated[int, Setting("webchat.E001")] = 50
    """Sockets of one user that one process holds open. One more gets the error `too_many_sockets` and is closed with
    4429."""

    MAX_POSTS_PER_MINUTE: Annotated[int, Setting("webchat.E001")] = 240
    """POST requests of one user to one address of the API, in one process; more are answered with 429. Each address
    counts alone, so nothing else can use up the cancels."""

    MAX_BAD_FRAMES: Annotated[int, Setting("webchat.E001")] = 20
    """Frames of one socket in a minute that could not be understood; more closes it with 4429."""

    OUTBOX_FRAMES: Annotated[int, Setting("webchat.E001")] = 256
    """Frames that wait for a slow client. Beyond it streamed text is dropped, and events are read from the log
    later."""

    OUTBOX_BYTES: Annotated[int, Setting("webchat.E001", kind="bytes")] = 1_048_576
    """The same limit in bytes."""

    SEND_TIMEOUT: Annotated[float, Setting("webchat.E001")] = 20.0
    """How long one frame may take to leave before a client that does not read is let go (1013)."""

    MAX_INLINE_EVENT_BYTES: Annotated[int, Setting("webchat.E001", kind="bytes")] = 32_768
    """A larger event goes through the channel layer as its number only; sockets read it from the log."""

    LAYER_TIMEOUT: Annotated[float, Setting("webchat.E001")] = 1.0
    """How long the layer may take to accept a message. What is lost is read from the log, within
    `WEBCHAT_LOG_CHECK_INTERVAL`."""

    READY_TIMEOUT: Annotated[float, Setting("webchat.E001")] = 2.0
    """How long `/readyz` waits for the database and for the channel layer; it answers then, whatever hangs."""

    CSP: Annotated[str | None, Setting("webchat.E009", none="no header")] = (
        "default-src 'self'; img-src 'self' data:; connect-src 'self' {websocket}; "
        "frame-ancestors 'none'; base-uri 'self'; form-action 'self'; object-src 'none'"
    )
    """The Content-Security-Policy of every page; `{websocket}` stands for this host's socket origin. `None` leaves it
    to the host project."""

    MAX_PASSWORD_CHECKS: Annotated[int, Setting("webchat.E001")] = 1
    """Passwords that one process checks at a time. A check takes a processor for a good part of a second."""

    MAX_WAITING_SIGN_INS: Annotated[int, Setting("webchat.E001")] = 8
    """Sign-ins of one process that wait for their check. One more is answered with 429, unchecked."""

    TRUSTED_PROXIES: Annotated[
        Sequence[str],
        Setting(
            "webchat.E006",
            is_valid=_are_networks,
            hint='a list of addresses and networks, such as ["127.0.0.1", "10.1.0.0/16"]',
        ),
    ] = ()
    """Addresses and networks of the proxies whose `X-Forwarded-For` is believed."""

    TOKEN_TOUCH_INTERVAL: Annotated[float, Setting("webchat.E001")] = 60.0
    """How often the last use of an API token is written down."""


app_settings = WebchatSettings()
