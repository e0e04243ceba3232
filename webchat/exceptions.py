"""Errors between a client and the server.

WebchatError
├── ProtocolError   a frame that cannot be parsed
├── SignedOut       credentials that are no longer valid
└── Refused         a valid request that was refused with a status
"""

from django.db import InterfaceError, OperationalError
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

DATABASE_FAILURES = (OperationalError, InterfaceError)  # the database is unreachable or locked
DATABASE_IS_AWAY = _("The database is not responding right now. Please try again.")
RETRY_AFTER = 2  # seconds


class WebchatError(Exception):
    """The base class of webchat's exceptions, with a stable `code` and a sentence that is safe to show."""

    def __init__(self, code: str, sentence: str | Promise) -> None:
        super().__init__(code)
        self.code = code
        self.sentence = sentence


class ProtocolError(WebchatError):
    """A client's frame is too large, is not JSON, or lacks fields of its type."""


class SignedOut(WebchatError):
    """The session has ended, the token was revoked, or the account was switched off."""


class Refused(WebchatError):
    """The request is valid but was refused with `status`."""

    def __init__(self, status: int, code: str, sentence: str) -> None:
        super().__init__(code, sentence)
        self.status = status
