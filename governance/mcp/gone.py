"""The one exception for a server that cannot be used, whatever the cause."""


class ServerGone(Exception):
    """The server cannot be used; `reason` is a clause that is safe to show: "it ended with exit code 3"."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


FORGOTTEN = "it has forgotten the session"
