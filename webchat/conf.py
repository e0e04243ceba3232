"""The project's settings: `WEBCHAT_<NAME>` in Django's settings is `app_settings.<NAME>` here, read on access."""

from collections.abc import Sequence

from governance.app_settings import AppSettings


class WebchatSettings(AppSettings):
    """Every setting with its type, its default and what it is for. Seconds unless the name says otherwise."""

    PREFIX = "WEBCHAT_"

    HEARTBEAT_INTERVAL: float = 15.0
    """How often a socket says that it is alive, looks for missed events and checks that its user is still signed in."""

    LOG_CHECK_INTERVAL: float = 2.0
    """How often a process asks the log, for all of its sockets at once, whether the channel layer has lost something."""

    HELLO_TIMEOUT: float = 15.0
    """How long a new socket may take to send `hello`."""

    MAX_FRAME_BYTES: int = 65_536
    """The largest frame that a client may send."""

    MAX_FRAMES_PER_MINUTE: int = 240
    """Frames of one socket; more closes it with 4429."""

    MAX_USER_FRAMES_PER_MINUTE: int = 960
    """Frames of all sockets of one user in one process, cancels excepted; more closes the socket with 4429."""

    MAX_SOCKETS_PER_USER: int = 50
    """Sockets of one user that one process holds open; one more is closed with 4429."""

    MAX_POSTS_PER_MINUTE: int = 240
    """POST requests of one user to one address of the API, in one process; more are answered with 429."""

    MAX_BAD_FRAMES: int = 20
    """Frames of one socket that could not be understood, per minute; more closes it with 4429."""

    OUTBOX_FRAMES: int = 256
    """Frames that wait for a slow client; beyond it streamed text is dropped and events are read from the log later."""

    OUTBOX_BYTES: int = 1_048_576
    """The same limit in bytes."""

    SEND_TIMEOUT: float = 20.0
    """How long one frame may take to leave before a client that does not read is let go (close code 1013)."""

    MAX_INLINE_EVENT_BYTES: int = 32_768
    """A larger event goes through the channel layer as its number only; sockets read it from the log."""

    LAYER_TIMEOUT: float = 1.0
    """How long the channel layer may take to accept a message; what is lost is read from the log later."""

    READY_TIMEOUT: float = 2.0
    """How long `/readyz` waits for the database and for the channel layer; it answers then, whatever hangs."""

    CSP: str | None = (
        "default-src 'self'; img-src 'self' data:; connect-src 'self' {websocket}; "
        "frame-ancestors 'none'; base-uri 'self'; form-action 'self'; object-src 'none'"
    )
    """The Content-Security-Policy of every page; `{websocket}` is this host's. None leaves it to the host project."""

    MAX_PASSWORD_CHECKS: int = 1
    """Passwords that one process checks at a time; each takes a processor for a good part of a second."""

    MAX_WAITING_SIGN_INS: int = 8
    """Sign-ins of one process that wait for that; one more is answered with 429, unchecked."""

    TRUSTED_PROXIES: Sequence[str] = ()
    """Addresses and networks of the proxies whose `X-Forwarded-For` is believed."""

    TOKEN_TOUCH_INTERVAL: float = 60.0
    """How often the last use of an API token is written down."""


app_settings = WebchatSettings()
NUMBERS = tuple(
    name for name, kind in WebchatSettings.__annotations__.items() if kind in (int, float)
)
