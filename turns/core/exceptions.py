"""What can go wrong while a turn runs.

TurnCoreError
├── Fenced                another owner has taken the turn over, or it has ended
└── TurnRefused           the turn cannot be run, or not to its end
    └── ChatModelError    the chat model could not answer
"""


class TurnCoreError(Exception):
    """Base of what the core of turns raises."""


class Fenced(TurnCoreError):
    """The turn is not ours any more: write nothing, end its tools."""


class TurnRefused(TurnCoreError):
    """The turn cannot be run: a stable `code` and a sentence that is safe to show to the person."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class ChatModelError(TurnRefused):
    """The chat model could not answer."""
