"""Exceptions for a server that cannot be used, and for a lost response."""


class ServerUnavailable(Exception):
    """The server cannot be used; `reason` is a clause that is safe to show: "it ended with exit code 3"."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class RequestNotSent(Exception):
    """The server never receives the call, because its session is over (`reason`, a clause) or the caller left."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason


class ResponseLost(Exception):
    """The server received the call, and its effect is unknown; the text is a sentence for the model."""


FORGOTTEN = "it has forgotten the session"
