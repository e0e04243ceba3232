"""One turn on the page of what runs now: its state, its clocks and its calls, at one moment."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.utils.safestring import SafeString
from django.utils.text import Truncator
from django.utils.translation import gettext as _

from governance import CallStatus, WaitsFor, running_calls
from governance.admin.calls import preformatted
from governance.admin.formatting import NO_BREAK, NOTHING, format_span, format_time
from governance.admin.links import anchor, anchors
from governance.approval_store import ApprovalRow
from governance.call_links import Link, Links
from governance.hidden_characters import visible
from governance.running_calls import CallRow
from turns.admin.clocks import Pauses
from turns.admin.rows import link
from turns.calls.serializers import is_interruptible
from turns.core.turns import TurnStatus
from turns.models import RunningTurn

MARK = ":"  # between the ids of a turn and of its call, in the value of a button
TITLE_SHOWN = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Rights:
    """What the user may see and do here; each is a permission of its own."""

    reader: Any
    content: bool
    cancel: bool
    decide: bool


class CallView:
    """One call of a turn that waits or runs."""

    def __init__(
        self,
        row: CallRow,
        question: ApprovalRow | None,
        *,
        at: datetime,
        rights: Rights,
        pauses: Pauses,
    ) -> None:
        self._row = row
        self._pauses = pauses
        self._at = at
        self.rights = rights
        self.question = question
        self.key = f"{row.group}{MARK}{row.call_id}"
        self.tool = visible(row.tool_name)
        self.is_ending = row.status == CallStatus.CANCELLING
        self.is_asking = row.status == CallStatus.AWAITING_APPROVAL
        self.can_decide = self.is_asking and question is not None and rights.decide
        self.is_stuck = row.status == CallStatus.RUNNING and not is_interruptible(row)
        self.can_extend = bool(row.timeout_ms) and row.status == CallStatus.RUNNING

    @property
    def link(self) -> SafeString | str:
        """Its tool, with its page."""
        reader = self.rights.reader
        return link("governance_toolcall", self._row.pk, self.tool, reader=reader)

    @property
    def input(self) -> str:
        return input_of(self._row) if self.rights.content else ""

    @property
    def asked_input(self) -> str:
        """All of the arguments that a person is asked about."""
        shows = self.rights.content and self.question is not None
        return preformatted(self.question.input) if shows and self.question else ""

    @property
    def asked_host(self) -> str:
        """The host that it is asked about, if it is."""
        return self.question.host if self.rights.content and self.question else ""

    @property
    def state(self) -> str:
        """Where it is, in words."""
        return _waits(self._row) or str(self._row.get_status_display())

    @property
    def since(self) -> SafeString | str:
        """When it began; of one that waits, when it was asked for."""
        return format_time(self._row.started_at or self._row.requested_at)

    @property
    def age(self) -> str:
        """How long that is ago."""
        return _since(self._row.started_at or self._row.requested_at, self._at)

    @property
    def left(self) -> str:
        row = self._row
        if row.started_at is None or row.timeout_ms is None:
            return NOTHING
        return _left(row.timeout_ms, row.started_at, self._pauses, self._at)


class RunningTurnView:
    """One turn as the page shows it, at one moment."""

    def __init__(
        self,
        turn: RunningTurn,
        calls: Iterable[CallView],
        links: Links,
        *,
        at: datetime,
        rights: Rights,
        pauses: Pauses,
    ) -> None:
        self._turn = turn
        self._pauses = pauses
        self._links = links
        self._at = at
        self.rights = rights
        self.calls = list(calls)
        self.key = str(turn.pk)
        self.is_ending = turn.status == TurnStatus.CANCELLING
        self.user = str(turn.conversation.owner.get_username())
        self._is_asking = any(call.is_asking for call in self.calls)

    @property
    def name(self) -> str:
        """What it is called for those who cannot see where its button stands."""
        return f"#{self._turn.number}, {self.user}"

    @property
    def link(self) -> SafeString | str:
        """Its number in its conversation, with its page."""
        return anchor(self._links["turn"])

    @property
    def conversation(self) -> SafeString | str:
        """Its conversation with its page; what it is called is for those who may see what was said."""
        title = self._turn.conversation.title if self.rights.content else ""
        text = Truncator(title).chars(TITLE_SHOWN) or _("conversation")
        return anchor(Link(text, self._links["conversation"].address))

    @property
    def chat(self) -> str:
        """The address of its chat page."""
        return self._links["chat"].address

    @property
    def whose(self) -> SafeString | str:
        """Its user and its agent, each with what there is of them."""
        return anchors(self._links, ("user", "agent"))

    @property
    def state(self) -> str:
        """Where the turn is, in words; a person who is asked is what it waits for."""
        status: str = self._turn.get_status_display()
        return _("waits for a person") if self._is_asking else status

    @property
    def since(self) -> SafeString | str:
        """When it began; of one that waits, when its message came."""
        return format_time(self._turn.started_at or self._turn.queued_at)

    @property
    def age(self) -> str:
        """How long that is ago."""
        return _since(self._turn.started_at or self._turn.queued_at, self._at)

    @property
    def left(self) -> str:
        """What is left of its limit; its clock stands still while a person is asked."""
        turn = self._turn
        return _left(turn.turn_timeout_ms, turn.started_at, self._pauses, self._at)

    @property
    def process(self) -> SafeString | str:
        return anchor(self._links["process"])


def input_of(row: Any) -> str:
    """Return the beginning of a call's arguments, as `running_calls` has read it."""
    start = getattr(row, "input_start", "") or ""
    return visible(f"{start}…" if len(start) >= running_calls.INPUT_SHOWN else str(start))


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


def _since(moment: datetime, at: datetime) -> str:
    return _whole(_ms(at - moment))


def _left(limit_ms: int | None, started_at: datetime | None, pauses: Pauses, at: datetime) -> str:
    if not limit_ms:
        return _("no limit")
    if pauses.is_still:
        return _("stands still")
    passed = _ms(at - started_at - pauses.lasted(at)) if started_at else 0
    return _whole(limit_ms - passed)


def _whole(milliseconds: int) -> str:
    """A span in whole seconds: it moves while one looks."""
    return format_span(milliseconds // 1_000 * 1_000) if milliseconds >= 1_000 else f"0{NO_BREAK}s"


def _ms(passed: timedelta) -> int:
    return round(passed.total_seconds() * 1_000)
