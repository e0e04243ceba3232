"""What the admin of every kind of limits shares: readable values, honest messages, one audit trail."""

from typing import TYPE_CHECKING, Any, cast

from django.contrib import admin, messages
from django.contrib.auth.base_user import AbstractBaseUser
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET

from governance import policy_reports
from governance.admin import policy_status
from governance.admin.formatting import format_time
from governance.admin.forms import LimitsForm
from governance.admin.mixins import AuditedAdmin, DurationsAdmin
from governance.core.policy import LIMITS
from governance.models import Limits, PolicyChange, ToolPolicy

if TYPE_CHECKING:
    LimitsModelAdmin = admin.ModelAdmin[Limits]
else:
    LimitsModelAdmin = admin.ModelAdmin

_OBEYED_WHILE_RUNNING = {f"{name}_ms" for name, limit in LIMITS.items() if limit.is_live} | {
    "is_active"
}


class LimitsAdmin(AuditedAdmin[Limits], DurationsAdmin[Limits], LimitsModelAdmin):
    """What both kinds of limits share: readable values, honest messages, one audit trail."""

    change_form_template = "admin/governance/limits_form.html"

    class Media:
        js = ["governance/refresh.js"]

    def get_urls(self) -> list[Any]:
        """Add the address of the line that says where the limits are in force."""
        view = self.admin_site.admin_view(require_GET(self.in_force_view))
        return [
            path("in-force/", view, name=policy_status.view_name(self.opts)),
            *super().get_urls(),
        ]

    def in_force_view(self, request: HttpRequest) -> HttpResponse:
        """Say in how many processes the limits are in force."""
        if not self.has_view_or_change_permission(request):
            raise PermissionDenied
        return policy_status.respond(request, self.opts)

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        """Say the same on the page of a row: it is what a save leads to."""
        shown = {**context, **policy_status.context(self.opts, request.user)}
        return super().render_change_form(request, shown, *args, **kwargs)

    def get_fields(self, request: HttpRequest, obj: Limits | None = None) -> Any:
        """Ask only those for a reason who may edit."""
        fields = super().get_fields(request, obj)
        may_edit = obj is None or self.has_change_permission(request, obj)
        return [name for name in fields if may_edit or name not in ("why", "accepted")]

    @admin.display(description=gettext_lazy("changed at"))
    def changed(self, obj: Limits) -> SafeString | str:
        return format_time(None if obj._state.adding else obj.updated_at)

    def say_saved(self, request: HttpRequest, change: PolicyChange | None) -> None:
        """Say what was saved, and which calls it covers; other processes follow later."""
        if change is None:
            return
        words = {
            "version": change.version,
            "what": change.tool_name or _("default limits"),
            "summary": change.summary or _("nothing is set yet"),
        }
        sentence = _("Version %(version)s. %(what)s: %(summary)s.") % words
        told = [sentence, _reach(change), policy_reports.reach_text(change.version)]
        self.message_user(request, " ".join(filter(None, told)), messages.INFO)


def _reach(change: PolicyChange) -> str:
    """Return in a sentence for which calls a change counts."""
    fields = change.changes.keys() - {"note"}
    if not fields:
        return ""
    if "is_active" not in fields and _is_out_of_force(change.tool_name):
        return _("This row is out of force: no call obeys it.")
    if fields & _OBEYED_WHILE_RUNNING:
        return _(
            "Calls that run in this process obey now, those of other processes when these look for edits."
        )
    return _(
        "It counts for calls that start from now on, in other processes when these look for edits."
        " What runs goes on."
    )


def _is_out_of_force(tool_name: str) -> bool:
    return ToolPolicy.objects.filter(tool_name=tool_name, is_active=False).exists()


def values_of(form: Any) -> Any:
    """Return what the editor has changed, and only that."""
    form = cast(LimitsForm, form)
    return {name: form.cleaned_data[name] for name in form.edited}


def why_of(form: Any) -> str:
    """Return why the editor changes the limits, as far as they say."""
    return str(form.cleaned_data.get("why", ""))


def editor_of(request: HttpRequest) -> AbstractBaseUser:
    return cast(AbstractBaseUser, request.user)  # the admin admits only users
