"""The exceptions for a server that cannot be used, whatever the cause, and for an answer that is none."""


class ServerUnavailable(Exception):
    """The server cannot be used; `reason` is a clause that is safe to show: "it ended with exit code 3"."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class RequestNotSent(Exception):
    """The server has not heard of the call, and will not: its session is over (`reason`, a clause), or nobody waits."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason


class ResponseLost(Exception):
    """The server was asked and what it did is not known; the text is a sentence for the model."""


FORGOTTEN = "it has forgotten the session"
