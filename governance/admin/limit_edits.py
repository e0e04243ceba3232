"""What the pages of limits share: the span of figures, the forms of rows, and how edits are saved."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from governance import services, statistics
from governance.admin import policy_status
from governance.admin.formatting import format_time
from governance.admin.forms import ToolPolicyRowForm
from governance.admin.limits import LimitsAdmin, editor_of, values_of
from governance.admin.tool_rows import SHARES, ToolRow
from governance.conf import app_settings
from governance.durations import format_duration
from governance.models import PolicyChange, ToolPolicy
from governance.suggestions import read_last_calls, suggest
from governance.temporary_limits import parse_end

DEFAULT_SPAN = "24h"
SPAN_LABELS = {
    "1h": gettext_lazy("Last hour"),
    "24h": gettext_lazy("Last 24 hours"),
    "7d": gettext_lazy("Last 7 days"),
    "30d": gettext_lazy("Last 30 days"),
}
EXACT = gettext_lazy("The figures are exact: each is counted from the row of its call.")
BINNED = gettext_lazy(
    "Hours that are over are counted in hourly roll-ups. There a duration may show up to a sixteenth longer than it was. A month of a dozen busy tools takes the server about an eighth of a second."
)


@dataclass(slots=True, kw_only=True)
class Choice:
    """A link that shows the page otherwise."""

    label: Any
    query: str
    is_chosen: bool


class TuningPage:
    """One request for a page with rows of tools, of which each may be edited."""

    may_prolong = False  # whether an end without another edit is meant for the tool of the page
    end_problem = ""

    def __init__(self, model_admin: LimitsAdmin, request: HttpRequest) -> None:
        if not model_admin.has_view_or_change_permission(request):
            raise PermissionDenied
        self._admin = model_admin
        self._request = request
        self.span = self._chosen("span", SPAN_LABELS, DEFAULT_SPAN)

    @cached_property
    def rows(self) -> Sequence[ToolRow]:
        raise NotImplementedError

    @cached_property
    def statistics(self) -> statistics.Statistics:
        """How long calls ran in the chosen span."""
        return statistics.read(statistics.SPANS[self.span])

    @property
    def context(self) -> dict[str, Any]:
        return {
            **self._admin.admin_site.each_context(self._request),
            "is_nav_sidebar_enabled": False,  # tables and charts take the whole width
            "opts": self._admin.opts,
            "media": self._admin.media,
            "why": self._reason,
            "is_note_required": app_settings.LIMIT_NOTE_REQUIRED,
            "until": self._request.POST.get("until", ""),
            "end_problem": self.end_problem,
            **policy_status.context(self._admin.opts, self._request.user),
            "span": self.span,
            "spans": self._choices("span", SPAN_LABELS, self.span),
            "shares": [f"p{share}" for share in SHARES],
            "since": format_time(self.statistics.since),
            "is_partial": self.statistics.is_partial,
            "precision": EXACT if self.statistics.is_exact else BINNED,
        }

    def _save_rows(self) -> HttpResponse | None:
        """Save every row that was edited, all or none. Return None if the page says what is wrong."""
        self._bind_forms(self._request.POST)
        forms = [(row, row.form) for row in self.rows if row.form is not None]
        until = self._end()
        if not all(form.is_valid() for _row, form in forms) or self.end_problem:
            return None
        try:
            with transaction.atomic():
                saved = [
                    self._save_row(row, form, until)
                    for row, form in forms
                    if form.edited or (until and self.may_prolong)
                ]
        except ValidationError as refusal:
            self._admin.say_refused(self._request, refusal)
            return None
        return self._say(saved)

    def _save_row(
        self, row: ToolRow, form: ToolPolicyRowForm, until: datetime | None
    ) -> PolicyChange | None:
        return services.save_tool_policy(
            tool_name=row.name,
            values=values_of(form),
            by=editor_of(self._request),
            revision=form.cleaned_data["revision"] or 0,
            reason=self._reason,
            until=until,
        )

    def _refused(self, *sentences: str) -> None:
        """Say why nothing was done; what was typed stays."""
        for sentence in sentences:
            self._admin.message_user(self._request, sentence, messages.ERROR)
        self._bind_forms(self._request.POST, is_preview=True)

    def _end(self) -> datetime | None:
        """Return until when the edits count, if they are temporary."""
        try:
            return parse_end(self._request.POST.get("until", ""))
        except ValidationError as problem:
            self.end_problem = problem.messages[0]
            return None

    def _may_edit(self, row: ToolRow) -> bool:
        if row.is_stored:
            return self._admin.has_change_permission(self._request)
        return self._admin.has_add_permission(self._request)

    def _bind_forms(self, data: Any, *, is_preview: bool = False) -> None:
        for row in self.rows:
            if self._may_edit(row):
                row.form = ToolPolicyRowForm(data, instance=row.row, prefix=row.name)
                row.form.is_preview = is_preview
                row.form.shown = row.durations

    def _preview(self) -> None:
        """Say what the limits that were typed would have done; nothing is saved."""
        self._bind_forms(self._request.POST, is_preview=True)
        for row in self.rows:
            if row.form is not None and row.form.is_valid():
                row.told = row.form.effect

    def _effect_of(self, name: str) -> JsonResponse:
        """Answer the page, while somebody types, what the limit of one tool would have done: `told`, in words."""
        stored = ToolPolicy.objects.filter(tool_name=name).first()
        instance = stored or ToolPolicy(tool_name=name)
        form = ToolPolicyRowForm(self._request.POST, instance=instance, prefix=name)
        form.is_preview = True
        return JsonResponse({"told": form.effect if form.is_valid() else ""})

    def _suggest(self, names: Collection[str], *, may_cut_successes: bool = False) -> None:
        """Fill in what the last calls suggest, with what it would have done; nothing is saved."""
        data = self._request.POST.copy()
        problems = {}
        for row in self.rows:
            if row.name in names and self._may_edit(row):
                durations = read_last_calls(row.name).durations
                found = suggest(durations, may_cut_successes=may_cut_successes)
                problems[row.name] = found.problem
                if found.limit_ms is not None:
                    data[f"{row.name}-timeout_ms"] = format_duration(found.limit_ms)
        self._bind_forms(data, is_preview=True)
        for row in self.rows:
            if row.form is not None and row.form.is_valid():
                row.told = problems.get(row.name) or row.form.effect

    def _say(self, saved: Sequence[PolicyChange | None]) -> HttpResponse:
        for change in saved:
            self._admin.say_saved(self._request, change)
        if not any(saved):
            self._admin.message_user(self._request, _("Nothing to change."))
        return HttpResponseRedirect(self._request.get_full_path())

    @property
    def _reason(self) -> str:
        return self._request.POST.get("why", "").strip()

    def _chosen(self, name: str, known: Any, default: str) -> str:
        value = self._request.GET.get(name, default)
        return value if value in known else default

    def _choices(self, name: str, labels: Any, chosen: str) -> list[Choice]:
        return [
            Choice(label=label, query=self._query(**{name: key}), is_chosen=key == chosen)
            for key, label in labels.items()
        ]

    def _query(self, **changes: Any) -> str:
        query = self._request.GET.copy()
        query.pop("p", None)
        for name, value in changes.items():
            query[name] = value
        return f"?{query.urlencode()}"
