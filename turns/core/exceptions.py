"""The errors of a running turn.

TurnCoreError
├── Fenced                another owner has taken the turn over, or it has ended
├── NotStored             this process still owns the turn, but its changes could not be stored
└── TurnRefused           the turn cannot be run or completed
    └── ChatModelError    the chat model could not answer
"""


class TurnCoreError(Exception):
    """The base class of the errors of a running turn."""


class Fenced(TurnCoreError):
    """The turn has another owner, so its tools are ended and this process writes nothing more."""


class NotStored(TurnCoreError):
    """This process still owns the turn, but cannot continue it because its changes could not be stored."""


class TurnRefused(TurnCoreError):
    """The turn cannot run. The error has a stable `code` and a sentence that is safe to show (`message`).

    `detail` is the provider's message without secrets, for users who may see content.
    """

    def __init__(self, code: str, message: str, *, detail: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.detail = detail


class ChatModelError(TurnRefused):
    """The chat model could not answer.

    If the request may be repeated, `cut_off` is the cause of the interruption, as the start of a sentence. If it
    `is_too_long`, a shorter request may be accepted.
    """

    cut_off = ""
    is_too_long = False
