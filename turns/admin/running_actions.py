"""The buttons on the page of what runs now.

Each checks the user again, says who and why, and takes the path of every client.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from asgiref.sync import async_to_sync
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from governance import CancelSource, running_calls
from governance.admin.search import as_id
from governance.db_clock import database_now
from turns import services
from turns.admin import running_results
from turns.admin.running_filter import RunningFilter
from turns.admin.running_turn_view import MARK
from turns.models import DeadlineOrder

CANCEL, DECIDE, CONTENT = "turns.cancel_any", "turns.decide_any", "governance.view_content"
EXTENSIONS = (30, 300)  # seconds
AT_ONCE = 200  # that one confirmation ends


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One kind of button: what it needs, and what it does. It returns what `running_results` reads; empty = nothing was done."""

    permissions: tuple[str, ...]
    needs_reason: bool
    perform: Callable[[Any, str, str], str]


def _cancel(user: Any, key: str, why: str) -> str:
    turn_id, tool_id = _parts(key)
    if turn_id is None:
        return ""
    _request_end(user, turn_id, tool_id, why)
    return f"cancel{MARK}{turn_id}{MARK}{tool_id}"


def _extend(user: Any, value: str, why: str) -> str:
    seconds, _mark, key = value.partition(MARK)
    turn_id, tool_id = _parts(key)
    call = running_calls.find(str(turn_id), tool_id) if turn_id else None
    if turn_id is None or call is None or seconds not in map(str, EXTENSIONS):
        return ""
    receipt = async_to_sync(services.set_deadline)(
        turn_id=turn_id, tool_id=tool_id, user=user, extend_ms=int(seconds) * 1_000, note=why
    )
    if receipt.outcome is not services.OpOutcome.ACCEPTED:
        return f"cancel{MARK}{turn_id}{MARK}{tool_id}"  # says how it had ended
    name = user.get_username()[:150]
    orders = DeadlineOrder.objects.filter(turn=turn_id, tool_id=tool_id, by_name=name)
    newest = orders.order_by("-pk").values_list("pk", flat=True).first()
    facts = (newest, len(call.deadline_changes), receipt.timeout_ms or 0)
    return MARK.join(["extend", *map(str, facts)])


def _decide(user: Any, value: str, why: str, *, decision: Any) -> str:
    question, _mark, key = value.partition(MARK)
    turn_id, tool_id = _parts(key)
    if turn_id is None or not question:
        return ""
    async_to_sync(services.decide_tool)(
        turn_id=turn_id,
        tool_id=tool_id,
        user=user,
        decision=decision,
        reason=why,
        question=question,
    )
    return f"decide{MARK}{question}"


def _allow(user: Any, value: str, why: str) -> str:
    return _decide(user, value, why, decision="approve")


def _deny(user: Any, value: str, why: str) -> str:
    return _decide(user, value, why, decision="deny")


ACTIONS: Mapping[str, Action] = {
    "cancel": Action(permissions=(CANCEL,), needs_reason=True, perform=_cancel),
    "extend": Action(permissions=(CANCEL,), needs_reason=False, perform=_extend),
    # Nobody allows what they cannot see.
    "allow": Action(permissions=(DECIDE, CONTENT), needs_reason=False, perform=_allow),
    "deny": Action(permissions=(DECIDE,), needs_reason=True, perform=_deny),
}
KINDS = {
    "turns": gettext_lazy("Turns, with what is queued behind them"),
    "calls": gettext_lazy("Calls of this tool; their turns go on"),
}


class EndOfMany:
    """The end of all that fits a filter, and that was there when it was counted."""

    def __init__(self, chosen: RunningFilter, *, kind: str, counted_at: datetime) -> None:
        self.kind = kind if chosen.tool else "turns"
        self._pairs = (
            _calls(chosen, counted_at) if self.kind == "calls" else _turns(chosen, counted_at)
        )

    @property
    def count(self) -> int:
        return len(self._pairs)

    def perform(self, user: Any, why: str) -> str:
        """Ask for the end of each, the oldest first; return what `running_results` reads."""
        since = database_now()
        now, later = self._pairs[:AT_ONCE], self._pairs[AT_ONCE:]
        outcomes = [  # what waits ends before a place becomes free for it
            _request_end(user, turn_id, tool_id, why) for turn_id, tool_id in reversed(now)
        ]
        accepted = outcomes.count(services.OpOutcome.ACCEPTED)
        within = map(running_results.to_number, (since, database_now()))
        return MARK.join(["all", *map(str, (*within, len(now), accepted, len(later)))])


def _turns(chosen: RunningFilter, until: datetime) -> list[tuple[UUID, str]]:
    rows = chosen.turns(until=until).values_list("pk", flat=True)
    return [(turn_id, "") for turn_id in rows]


def _calls(chosen: RunningFilter, until: datetime) -> list[tuple[UUID, str]]:
    return list(chosen.calls(until=until))


def _request_end(user: Any, turn_id: UUID, tool_id: str, why: str) -> services.OpOutcome:
    who: Any = {"turn_id": turn_id, "user": user, "source": CancelSource.ADMIN, "note": why}
    if tool_id:
        return async_to_sync(services.request_tool_cancel)(tool_id=tool_id, **who).outcome
    return async_to_sync(services.request_cancel)(**who).outcome


def needs_reason() -> str:
    """Return what is said to somebody who cancels or denies without a reason."""
    return _("Write why first: nothing was done.")


def _parts(key: str) -> tuple[UUID | None, str]:
    turn_id, _mark, tool_id = key.partition(MARK)
    return as_id(turn_id), tool_id
