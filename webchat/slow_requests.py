# ruff: noqa: N802 - the names of the methods are Twisted's
# mypy: disable-error-code="no-untyped-call"
"""Closes connections whose requests arrive too slowly, so that they do not use up the connections of `manage.py serve`."""

from typing import Any

from twisted.web.http import HTTPChannel

HEAD_SECONDS = (
    10  # until the end of the head, from the connection or the first byte of a later request
)
BODY_SECONDS = 60  # in which `BODY_BYTES` of a body, or the rest of it, must arrive
BODY_BYTES = 64 * 1024


class TimedChannel(HTTPChannel):
    """An HTTP connection with timeouts for requests.

    Twisted's own timeout restarts with each byte, so slow clients evade it.

    Between two requests, the connection stays open for a minute, as usual in Twisted, because proxies reuse
    connections.
    """

    _is_head = False
    _received = 0

    def connectionMade(self) -> None:
        """Start the timeout for the head of the first request."""
        super().connectionMade()
        self._await_head()

    def dataReceived(self, data: bytes) -> None:
        """Read a part of a request.

        The first part after a response begins a new request and starts the timeout for its head.
        """
        if not self._is_head and not self.requests:
            self._await_head()
        self._received += len(data)
        super().dataReceived(data)

    def resetTimeout(self) -> None:
        """Restart the timeout only while a body arrives, and only if it arrives fast enough."""
        if self._is_head or self._received < BODY_BYTES:
            return
        self._received = 0
        super().resetTimeout()

    def allHeadersReceived(self) -> Any:
        """Start the timeout for the body."""
        self._is_head = False
        self._received = 0
        self.setTimeout(BODY_SECONDS)
        return super().allHeadersReceived()

    def _await_head(self) -> None:
        self._is_head = True
        self.setTimeout(HEAD_SECONDS)
