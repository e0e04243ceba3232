"""Numbers of the protocol: its version and the close codes."""

from enum import IntEnum

PROTOCOL_VERSION = 1


class CloseCode(IntEnum):
    """Why a socket is closed; a client that comes back at once says so."""

    RESTARTING = 1012
    COMING_BACK = 4000
    BAD_FIRST_FRAME = 4400
    SIGNED_OUT = 4401
    NO_SUCH_CONVERSATION = 4404
    TOO_MANY = 4429
