"""Why and by what means something is cancelled: one row for each reason, from which its labels and effects follow."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Self


def _(text: str) -> str:
    """Mark a label for translation; Django translates it."""
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """What a reason means. `label` and `on_page` are for people, `who` and `ended` for the model.

    `on_page` follows "cancelled", `who` follows "cancelled by", `ended` is a clause. `turn_status` is the status of a
    turn that ends for this reason. `is_by_person`: a person asked. `is_avoidable`: the model can act otherwise.
    """

    label: str
    on_page: str
    who: str
    ended: str
    turn_status: str = "cancelled"
    is_by_person: bool = False
    is_avoidable: bool = False


class CancelReason(StrEnum):
    """Why something was cancelled; a closed set (glossary)."""

    row: _Row

    def __new__(cls, name: str, *rows: _Row) -> Self:
        """Make a member from its name in the database and on the wire, and its one row."""
        member = str.__new__(cls, name)
        member._value_ = name
        (member.row,) = (
            rows  # variadic only because a lookup by value looks like a call without a row
        )
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
            label=_("the turn that it worked for"),
            on_page=_("with the turn that asked for it"),
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
            on_page=_("it reached its time limit"),
            who="the server, because the turn ran out of time",
            ended="its time limit was reached",
            turn_status="timed_out",
            is_avoidable=True,
        ),
    )
    LOOP = (
        "loop",
        _Row(
            label=_("went round in circles"),
            on_page=_("because it was going round in circles"),
            who="the loop detector, automatically",
            ended="it was halted automatically, because the same calls were repeated",
            is_avoidable=True,
        ),
    )
    SUPERSEDED = (
        "superseded",
        _Row(
            label=_("a newer call"),
            on_page=_("in favour of a newer call"),
            who="a newer call of the same tool, automatically",
            ended="it was cancelled automatically, because a newer call replaced it",
        ),
    )
    SHUTDOWN = (
        "shutdown",
        _Row(
            label=_("the server went down"),
            on_page=_("by a restart of the server"),
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
    """By what means the request was made."""

    BUTTON = "button"
    TYPED = "typed"
    VOICE = "voice"
    API = "api"
    ADMIN = "admin"
    POLICY = "policy"
