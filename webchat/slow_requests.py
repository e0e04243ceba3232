# ruff: noqa: N802 - the names of the methods are Twisted's
# mypy: disable-error-code="no-untyped-call"
"""Ends requests that arrive too slowly, so that they do not occupy all connections of `manage.py serve`."""

from typing import Any

from twisted.web.http import HTTPChannel

HEAD_SECONDS = (
    10  # from the connection, or the first byte of a later request, to the end of the head
)
BODY_SECONDS = 60  # in which this many bytes of a body arrive, or the rest of it
BODY_BYTES = 64 * 1024


class TimedChannel(HTTPChannel):
    """One connection. Twisted's own timeout starts again with each byte, so a slow client never reaches it.

    Between two requests the connection stays open for Twisted's usual minute, because proxies keep connections open.
    """

    _is_head = False
    _received = 0

    def connectionMade(self) -> None:
        """Start the timeout of the first request's head."""
        super().connectionMade()
        self._await_head()

    def dataReceived(self, data: bytes) -> None:
        """Read a part of a request. The first part after an answer begins a new request."""
        if not self._is_head and not self.requests:
            self._await_head()
        self._received += len(data)
        super().dataReceived(data)

    def resetTimeout(self) -> None:
        """Restart the timeout only for a body that arrives fast enough."""
        if self._is_head or self._received < BODY_BYTES:
            return
        self._received = 0
        super().resetTimeout()

    def allHeadersReceived(self) -> Any:
        """Start the timeout of the body."""
        self._is_head = False
        self._received = 0
        self.setTimeout(BODY_SECONDS)
        return super().allHeadersReceived()

    def _await_head(self) -> None:
        self._is_head = True
        self.setTimeout(HEAD_SECONDS)
