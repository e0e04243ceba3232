"""One turn as the page of what runs now shows it: its state, its clocks and its calls, at one moment."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from governance import CallStatus, WaitsFor
from governance.admin.formatting import NO_BREAK, NOTHING, format_span
from governance.selectors import CallRow
from turns.admin.rows import link
from turns.calls.serializers import is_interruptible
from turns.models import RunningTurn

CALL_MARK = ":"  # between the ids of a turn and of its call, in the value of a button


class RunningTurnView:
    """One turn as the page shows it, at one moment."""

    def __init__(
        self, turn: RunningTurn, calls: Iterable[CallRow], *, at: datetime, may_cancel: bool
    ) -> None:
        self._turn = turn
        self._open = list(calls)
        self._at = at
        self._may_cancel = may_cancel
        self._is_asking = any(row.status == CallStatus.AWAITING_APPROVAL for row in self._open)

    @property
    def state(self) -> str:
        """Where the turn is, in words."""
        status: str = self._turn.get_status_display()
        return _("waits for a person") if self._is_asking else status

    @property
    def age(self) -> str:
        """Since when it runs; of one that waits, since when."""
        return _since(self._turn.started_at or self._turn.queued_at, self._at)

    @property
    def left(self) -> str:
        """What is left of its limit; its clock stands still while a person is asked."""
        if not self._turn.turn_timeout_ms:
            return _("no limit")
        if self._is_asking:
            return _("stands still")
        return _left(self._turn.turn_timeout_ms, self._turn.started_at, self._at)

    @property
    def calls(self) -> SafeString | str:
        """The calls in lines: tool, state, age, what is left, a button."""
        lines = [(self._line(row),) for row in self._open]
        return format_html_join("", "<div>{}</div>", lines) or NOTHING

    def _line(self, row: CallRow) -> SafeString:
        facts = [_waits(row) or str(row.get_status_display())]
        if row.started_at is not None:
            facts.append(_since(row.started_at, self._at))
            if row.timeout_ms:
                left = _left(row.timeout_ms, row.started_at, self._at)
                facts.append(_("%(left)s left") % {"left": left})
        text = format_html(
            "{}: {} ", link("governance_toolcall", row.pk, row.tool_name), ", ".join(facts)
        )
        return text + self._button(row)

    def _button(self, row: CallRow) -> SafeString:
        if not self._may_cancel or row.status == CallStatus.CANCELLING:
            return SafeString("")
        value = f"{self._turn.pk}{CALL_MARK}{row.call_id}"
        if row.status == CallStatus.RUNNING and not is_interruptible(row):
            label = _("Stop waiting for this call of %(tool)s") % {"tool": row.tool_name}
            return button(value, text=_("Stop waiting"), label=label)
        label = _("Cancel this call of %(tool)s") % {"tool": row.tool_name}
        return button(value, text=_("Cancel"), label=label)


def _waits(row: CallRow) -> str:
    """Return what a call that has not started waits for, in words; empty where that is not known."""
    if row.status != CallStatus.PENDING or not row.waits_for:
        return ""
    words = {
        WaitsFor.CALL: _("waits until %(tool)s has ended"),
        WaitsFor.SCOPE: _("waits: its conversation runs as many calls as it may"),
        WaitsFor.SLOT: _("waits for a free place on the server"),
    }
    said = words.get(row.waits_for["kind"], "")
    return said % {"tool": row.waits_for["tool_name"]} if "%" in said else said


def view_of(turn: RunningTurn) -> RunningTurnView:
    """Return what the page has read of a turn."""
    found: RunningTurnView = turn.view  # type: ignore[attr-defined]  # set by get_changelist_instance
    return found


def button(value: str, *, text: str, label: str) -> SafeString:
    """Return a button of the form that Django puts around the list."""
    return format_html(
        '<button class="button" type="submit" name="end" value="{}" aria-label="{}">{}</button>',
        value,
        label,
        text,
    )


def _since(moment: datetime, at: datetime) -> str:
    return _whole(_ms(at - moment))


def _left(limit_ms: int, started_at: datetime | None, at: datetime) -> str:
    passed = _ms(at - started_at) if started_at else 0
    return _whole(limit_ms - passed)


def _whole(milliseconds: int) -> str:
    """A span in whole seconds: it moves while one looks."""
    return format_span(milliseconds // 1_000 * 1_000) if milliseconds >= 1_000 else f"0{NO_BREAK}s"


def _ms(passed: timedelta) -> int:
    return round(passed.total_seconds() * 1_000)
