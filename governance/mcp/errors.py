"""Exceptions for a server that cannot be used, a request that was not sent, and a lost response."""


class ServerUnavailable(Exception):
    """The server cannot be used. `reason` is a clause that is safe to show, such as "it ended with exit code 3"."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class RequestNotSent(Exception):
    """The call was not sent to the server, because the session has ended or the caller has left.

    `reason` is a clause that says why the session has ended; it is empty if the caller has left.
    """

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason


class ResponseLost(Exception):
    """The server received the call, but gave no usable response, so the effect is unknown.

    The exception's message is a sentence for the chat model.
    """


FORGOTTEN = "it has forgotten the session"
