"""What can go wrong between a client and the server.

WebchatError
├── ProtocolError           a frame that cannot be understood
├── UnsupportedMediaType    a body that is not declared as JSON
├── SignedOut               credentials that do not hold any more
├── CsrfFailed              a request that another site may have sent
└── Refused                 a request that was understood, and refused with a status
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


class UnsupportedMediaType(WebchatError):
    """The body is not declared as JSON."""


class CsrfFailed(WebchatError):
    """An unsafe request with a session's cookie came without the page's token: it may come from another site."""


class Refused(WebchatError):
    """The request was understood and refused; `status` says how."""

    def __init__(self, status: int, code: str, sentence: str) -> None:
        super().__init__(code, sentence)
        self.status = status
