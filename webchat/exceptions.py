"""Exceptions that are reported to clients.

WebchatError
├── ProtocolError   a frame cannot be parsed
├── SignedOut       credentials are not valid, or no longer valid
└── Refused         an API request is refused with an HTTP status
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
    """A client's frame is too large, is not JSON, or has missing or invalid fields."""


class SignedOut(WebchatError):
    """The session has ended, the token is unknown or revoked, or the account was deactivated."""


class Refused(WebchatError):
    """An API request is refused with the HTTP status `status`."""

    def __init__(self, status: int, code: str, sentence: str) -> None:
        super().__init__(code, sentence)
        self.status = status
