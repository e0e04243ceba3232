"""Exceptions for a server that cannot be used, and for a response that is none."""


class ServerUnavailable(Exception):
    """The server cannot be used; `reason` is a clause that is safe to show: "it ended with exit code 3"."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class RequestNotSent(Exception):
    """The server never gets the call: its session is over (`reason`, a clause), or the caller left."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason


class ResponseLost(Exception):
    """The server got the call, and its effect is not known; the text is a sentence for the model."""


FORGOTTEN = "it has forgotten the session"
