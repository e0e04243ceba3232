"""What can go wrong while a turn runs.

TurnCoreError
├── Fenced                another owner has taken the turn over, or it has ended
├── NotStored             the turn is ours, but the database does not take what has happened
└── TurnRefused           the turn cannot be run, or not to its end
    └── ChatModelError    the chat model could not answer
"""


class TurnCoreError(Exception):
    """Base of what the core of turns raises."""


class Fenced(TurnCoreError):
    """The turn is not ours any more: write nothing, end its tools."""


class NotStored(TurnCoreError):
    """The turn is still ours, but what has happened in it could not be written down: it cannot go on."""


class TurnRefused(TurnCoreError):
    """The turn cannot be run: a stable `code` and a sentence that is safe to show to the person."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class ChatModelError(TurnRefused):
    """The chat model could not answer."""
