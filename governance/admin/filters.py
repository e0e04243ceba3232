"""Filters of the list of tool calls; none scans the table for its choices."""

from typing import Any

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from governance.admin.search import known_tools
from governance.core.calls import OPEN_STATUSES, CallStatus, ErrorType
from governance.core.deadline import Limit
from governance.models import ToolCall
from governance.recorder import UNWATCHED

_HAPPENINGS: dict[str, tuple[Any, Q]] = {
    "open": (_("Not ended yet"), Q(status__in=OPEN_STATUSES)),
    "asked": (_("Waits for a person"), Q(status=CallStatus.AWAITING_APPROVAL)),
    "timed_out": (_("Timed out"), Q(error_type=ErrorType.TIMEOUT)),
    "cancelled": (_("Cancelled"), Q(error_type=ErrorType.CANCELLED)),
    "abandoned": (_("Abandoned: may still run"), Q(status=CallStatus.ABANDONED, late_kind="")),
    "unwatched": (
        _("Abandoned: its end was not seen"),
        Q(status=CallStatus.ABANDONED, late_kind=UNWATCHED),
    ),
    "repaired": (_("Repaired"), Q(status=CallStatus.REPAIRED)),
    "late": (_("Settled after its end"), ~Q(late_kind__in=("", UNWATCHED))),
    "moved": (_("Limit changed while it ran"), ~Q(deadline_changes=[])),
    "capped": (_("Asked for more than it got"), Q(asked_timeout_ms__isnull=False)),
}
_LIMITS: dict[str, tuple[Any, Q]] = {
    "total": (_("The call's limit"), Q(error_type=ErrorType.TIMEOUT, limit_reached=Limit.TOTAL)),
    "idle": (_("The idle limit"), Q(error_type=ErrorType.TIMEOUT, limit_reached=Limit.IDLE)),
    "turn": (_("The turn's limit"), Q(limit_reached=Limit.TURN)),
    "approval": (
        _("The time to decide"),
        Q(error_type=ErrorType.EXPIRED, limit_reached=Limit.APPROVAL),
    ),
}
_DURATIONS: dict[str, tuple[Any, Q]] = {
    "1": (_("Under 1 s"), Q(duration_ms__lt=1_000)),
    "10": (_("1 to 10 s"), Q(duration_ms__gte=1_000, duration_ms__lt=10_000)),
    "30": (_("10 to 30 s"), Q(duration_ms__gte=10_000, duration_ms__lt=30_000)),
    "120": (_("30 s to 2 min"), Q(duration_ms__gte=30_000, duration_ms__lt=120_000)),
    "more": (_("2 min and more"), Q(duration_ms__gte=120_000)),
}


class ConditionFilter(admin.SimpleListFilter):
    """A choice among named conditions."""

    conditions: dict[str, tuple[Any, Q]]

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [(key, words) for key, (words, _condition) in self.conditions.items()]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Apply the chosen one. An unknown one finds nothing: an export would have all rows under its name."""
        value = self.value()
        if not value:
            return queryset
        chosen = self.conditions.get(value)
        return queryset.filter(chosen[1]) if chosen else queryset.none()


class CallOutcomeFilter(ConditionFilter):
    """What became of a call."""

    title = _("what happened")
    parameter_name = "happened"
    conditions = _HAPPENINGS


class LimitFilter(ConditionFilter):
    """Which limit ran out."""

    title = _("limit that ran out")
    parameter_name = "ran_out"
    conditions = _LIMITS


class DurationFilter(ConditionFilter):
    """How long a call ran."""

    title = _("ran")
    parameter_name = "ran"
    conditions = _DURATIONS


class ToolFilter(admin.SimpleListFilter):
    """Filters by the tools that the site offers or has limits for; search finds the others by whole names."""

    title = _("tool")
    parameter_name = "tool"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(name, name) for name in known_tools()]

    def queryset(self, request: HttpRequest, queryset: QuerySet[ToolCall]) -> QuerySet[ToolCall]:
        return queryset.filter(tool_name=self.value()) if self.value() else queryset
