"""The reasons and sources of a cancel. Each reason has a row that defines its labels and effects."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Self


def _(text: str) -> str:
    """Return the label unchanged. The call marks the label for translation, which Django does later."""
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """The labels and effects of a reason. People read `label` and `on_page`; the model reads `who` and `ended`.

    `on_page` follows the word "cancelled", `who` follows "cancelled by", and `ended` is a complete clause.
    `turn_status` is the status of a turn that ends for this reason. `is_by_person` means that a person requested the
    cancel, and `is_avoidable` that the model could have avoided it.
    """

    label: str
    on_page: str
    who: str
    ended: str
    turn_status: str = "cancelled"
    is_by_person: bool = False
    is_avoidable: bool = False


class CancelReason(StrEnum):
    """The reason for a cancel. The set of reasons is closed, and the glossary explains each."""

    row: _Row

    def __new__(cls, name: str, *rows: _Row) -> Self:
        """Create a member from its value, which is stored and sent over the wire, and its one row."""
        member = str.__new__(cls, name)
        member._value_ = name
        (member.row,) = rows  # variadic, because a lookup by value passes no row
        return member

    USER = (
        "user",
        _Row(
            label=_("a person"),
            on_page=_("by you"),
            who="the user",
            ended="the user cancelled it",
            is_by_person=True,
        ),
    )
    ADMIN = (
        "admin",
        _Row(
            label=_("an administrator"),
            on_page=_("by an admin"),
            who="an administrator",
            ended="an administrator cancelled it",
            is_by_person=True,
        ),
    )
    PARENT = (
        "parent",
        _Row(
            label=_("its parent turn"),
            on_page=_("together with the task that started it"),
            who="the parent turn",
            ended="the turn that it belongs to was cancelled",
        ),
    )
    DISCONNECT = (
        "disconnect",
        _Row(
            label=_("nobody was connected"),
            on_page=_("because nobody was connected"),
            who="the server, because nobody was connected any more",
            ended="it was cancelled automatically, because nobody was connected",
        ),
    )
    TIMEOUT = (
        "timeout",
        _Row(
            label=_("time limit"),
            on_page=_("because it reached its time limit"),
            who="the server, because the turn ran out of time",
            ended="its time limit was reached",
            turn_status="timed_out",
            is_avoidable=True,
        ),
    )
    LOOP = (
        "loop",
        _Row(
            label=_("a loop"),
            on_page=_("because it kept repeating itself"),
            who="the loop detector, automatically",
            ended="it was halted automatically, because the same calls were repeated",
            is_avoidable=True,
        ),
    )
    SUPERSEDED = (
        "superseded",
        _Row(
            label=_("a newer call"),
            on_page=_("because a newer call replaced it"),
            who="a newer call of the same tool, automatically",
            ended="it was cancelled automatically, because a newer call replaced it",
        ),
    )
    SHUTDOWN = (
        "shutdown",
        _Row(
            label=_("a server shutdown"),
            on_page=_("because the server restarted"),
            who="the server, which is shutting down",
            ended="the server was shut down",
            turn_status="interrupted",
        ),
    )
    ERROR = (
        "error",
        _Row(
            label=_("an error"),
            on_page=_("after an error"),
            who="the server, after an error in the turn",
            ended="an internal error ended it",
            turn_status="failed",
        ),
    )


class CancelSource(StrEnum):
    """The way in which a cancel was requested."""

    BUTTON = "button"
    TYPED = "typed"
    VOICE = "voice"
    API = "api"
    ADMIN = "admin"
    POLICY = "policy"
    WITHDRAWN = "withdrawn"
