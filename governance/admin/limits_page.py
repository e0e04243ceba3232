"""Tool limits: the page on which every tool's limits stand beside how long its calls ran, and are edited."""

from collections.abc import Sequence
from functools import cached_property, partial
from typing import Any

from django.core.exceptions import PermissionDenied, ValidationError
from django.core.paginator import Page, Paginator
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from governance import services
from governance.admin.limit_edits import TuningPage
from governance.admin.limits import LimitsAdmin, editor_of
from governance.admin.tool_rows import CHOICES, ORDERS, ToolRow, read_rows

PER_PAGE = 50
TIGHT_SUGGESTION = "suggest_tight"
SUGGESTIONS = {
    "suggest": gettext_lazy("Suggest total limits (none chosen: for all)"),
    TIGHT_SUGGESTION: gettext_lazy("Suggest total limits, also under the slowest success"),
}
TEMPLATE = "admin/governance/toolpolicy/change_list.html"
ACTIONS = {
    "allow": (gettext_lazy("Allow these tools"), {"tool_enabled": True}),
    "forbid": (
        gettext_lazy("Forbid these tools"),
        {"tool_enabled": False, "is_active": True},
    ),
    "put_in_force": (gettext_lazy("Put in force"), {"is_active": True}),
    "put_out_of_force": (
        gettext_lazy("Put out of force (the next level counts)"),
        {"is_active": False},
    ),
    "reset": (gettext_lazy("Take their own limits away (the next level counts)"), None),
}


class LimitsPage(TuningPage):
    """One request for the page."""

    def __init__(self, model_admin: LimitsAdmin, request: HttpRequest) -> None:
        super().__init__(model_admin, request)
        self.shown = self._chosen("show", CHOICES, "")
        self.order = self._chosen("o", ORDERS, "name")
        self.term = request.GET.get("q", "").strip()

    def respond(self) -> HttpResponse:
        """Show the page, or carry out what it was sent back with."""
        if self._request.method != "POST":
            self._bind_forms(None)
            return self._show()
        if name := self._request.POST.get("_tell"):
            return self._effect_of(name)
        if "_preview" in self._request.POST:
            self._preview()
            return self._show()
        if "_act" in self._request.POST:
            return self._act(self._request.POST.get("action", ""))
        return self._save_rows() or self._show()

    @cached_property
    def rows(self) -> Sequence[ToolRow]:
        """The rows of this page of the list; of those that may be edited, the ones that were sent back."""
        sent = {row.name for row in self._all_rows if f"{row.name}-revision" in self._request.POST}
        if not sent:
            return list(self.page.object_list)
        shown = sent | {row.name for row in self.page.object_list if not self._may_edit(row)}
        return [row for row in self._all_rows if row.name in shown]

    @cached_property
    def page(self) -> "Page[ToolRow]":
        is_shown, term = CHOICES[self.shown][1], self.term.casefold()
        rows = [row for row in self._all_rows if is_shown(row) and term in row.name.casefold()]
        return Paginator(rows, PER_PAGE).get_page(self._request.GET.get("p"))

    @cached_property
    def _all_rows(self) -> Sequence[ToolRow]:
        return sorted(read_rows(self.statistics), key=ORDERS[self.order])

    def _show(self) -> HttpResponse:
        kept = ("span", "show", "o")
        shows = {key: words for key, (words, _is_shown) in CHOICES.items()}
        pages = {str(number): number for number in self.page.paginator.page_range}
        context = {
            **self.context,
            "title": _("Tool limits"),
            "page": self.page,
            "rows": self.rows,
            "term": self.term,
            "kept": [(name, self._request.GET[name]) for name in kept if name in self._request.GET],
            "shows": self._choices("show", shows, self.shown),
            "orders": {name: self._query(o=name) for name in ORDERS},
            "may_edit": any(row.form for row in self.rows),
            "chosen": self._ticked,
            "action": self._request.POST.get("action", ""),
            "actions": SUGGESTIONS | {name: words for name, (words, _is) in ACTIONS.items()},
            "is_told": any(row.told for row in self.rows),
            "has_errors": any(row.form and row.form.errors for row in self.rows)
            or bool(self.end_problem),
            "pages": self._choices("p", pages, str(self.page.number)),
        }
        return TemplateResponse(self._request, TEMPLATE, context)

    @cached_property
    def _ticked(self) -> Sequence[str]:
        """The tools that are chosen for an action."""
        return self._request.POST.getlist("chosen")

    def _act(self, action: str) -> HttpResponse:
        """Do the same to every tool that was ticked, all or none."""
        if action in SUGGESTIONS:
            names = self._ticked or [row.name for row in self.rows]
            self._suggest(names, may_cut_successes=action == TIGHT_SUGGESTION)
            return self._show()
        if action not in ACTIONS or not self._ticked:
            self._refused(_("Choose tools, and what to do with them: nothing was done."))
            return self._show()
        values = ACTIONS[action][1]
        if not self._admin.has_change_permission(self._request):
            raise PermissionDenied
        edit: Any = services.delete_tool_policy
        if values is not None:
            edit = partial(services.save_tool_policy, values=values)
        elif not self._admin.has_delete_permission(self._request):
            raise PermissionDenied
        names = [
            row.name for row in self._all_rows if row.name in self._ticked and self._may_edit(row)
        ]
        by = editor_of(self._request)
        try:
            with transaction.atomic():
                saved = [edit(tool_name=name, by=by, reason=self._reason) for name in names]
        except ValidationError as refusal:
            self._refused(*refusal.messages)
            return self._show()
        return self._say(saved)
