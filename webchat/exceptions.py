"""What can go wrong between a client and the server.

WebchatError
├── ProtocolError           a frame that cannot be understood
└── SignedOut               the connection's credentials do not hold any more
"""

from django.utils.functional import Promise


class WebchatError(Exception):
    """Base of everything that webchat raises: a stable `code` and a sentence that is safe to show."""

    def __init__(self, code: str, sentence: str | Promise) -> None:
        super().__init__(code)
        self.code = code
        self.sentence = sentence


class ProtocolError(WebchatError):
    """A client's frame is too large, is not JSON, or does not have the fields of its type."""


class SignedOut(WebchatError):
    """The session has ended, the token was revoked, or the account was switched off."""
