"""What the admin of every kind of limits shares: readable values, honest messages, one audit trail."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from django.contrib import admin, messages
from django.contrib.auth.base_user import AbstractBaseUser
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from governance.admin.forms import LimitsForm
from governance.durations import format_limit
from governance.models import Limits, PolicyChange, ToolPolicy
from governance.services import PolicyConflict

if TYPE_CHECKING:
    LimitsModelAdmin = admin.ModelAdmin[Limits]
else:
    LimitsModelAdmin = admin.ModelAdmin

# People who may look but not edit see the same values with their units.
_READABLE = {
    "timeout_ms": "total_limit",
    "idle_timeout_ms": "idle_limit",
    "ceiling_ms": "hint_ceiling",
    "approval_timeout_ms": "approval_limit",
    "revision": "edits",
}


_OBEYED_WHILE_RUNNING = {"timeout_ms", "idle_timeout_ms", "ceiling_ms", "is_active"}


class LimitsAdmin(LimitsModelAdmin):
    """What both kinds of limits share: readable values, honest messages, one audit trail."""

    def get_fields(self, request: HttpRequest, obj: Limits | None = None) -> Any:
        """Show durations with their units to those who may not edit."""
        return self._readable(request, super().get_fields(request, obj))

    def get_list_display(self, request: HttpRequest) -> Any:
        """Show durations with their units to those who may not edit."""
        return self._readable(request, super().get_list_display(request))

    def get_readonly_fields(self, request: HttpRequest, obj: Limits | None = None) -> Any:
        """Declare the readable values, so that the page may show them."""
        return [*super().get_readonly_fields(request, obj), *_READABLE.values()]

    def changeform_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Answer an edit that came between the form's check and its save with words."""
        try:
            return super().changeform_view(request, *args, **kwargs)
        except (PolicyConflict, ValidationError) as refusal:
            return self.refused(request, refusal)

    def log_addition(self, request: HttpRequest, obj: Limits, message: Any) -> Any:
        """Leave the log to the service, which knows the old and the new values."""

    def log_change(self, request: HttpRequest, obj: Limits, message: Any) -> Any:
        """Leave the log to the service, which knows the old and the new values."""

    def log_deletions(self, request: HttpRequest, queryset: Any) -> Any:
        """Leave the log to the service, which knows the old and the new values."""

    @admin.display(description=gettext_lazy("total limit"))
    def total_limit(self, obj: Limits) -> str:
        """The total limit with its unit."""
        return format_limit(obj.timeout_ms)

    @admin.display(description=gettext_lazy("idle limit"))
    def idle_limit(self, obj: Limits) -> str:
        """The idle limit with its unit."""
        return format_limit(obj.idle_timeout_ms)

    @admin.display(description=gettext_lazy("ceiling for hints"))
    def hint_ceiling(self, obj: Limits) -> str:
        """The ceiling with its unit."""
        return format_limit(obj.ceiling_ms)

    @admin.display(description=gettext_lazy("approval limit"))
    def approval_limit(self, obj: Limits) -> str:
        """How long a person may take, with its unit."""
        return format_limit(obj.approval_timeout_ms)

    @admin.display(description=gettext_lazy("edit"))
    def edits(self, obj: Limits) -> int:
        """How often the row was edited."""
        return obj.revision

    def _readable(self, request: HttpRequest, names: Sequence[Any]) -> Sequence[Any]:
        if self.has_change_permission(request):
            return names
        return [_READABLE.get(name, name) for name in names]

    def refused(
        self, request: HttpRequest, refusal: PolicyConflict | ValidationError
    ) -> HttpResponse:
        """Say in words why nothing was saved, and show the page anew."""
        words = refusal.messages if isinstance(refusal, ValidationError) else [str(refusal)]
        for sentence in words:
            self.message_user(request, sentence, messages.ERROR)
        return HttpResponseRedirect(request.get_full_path())

    def say_saved(self, request: HttpRequest, change: PolicyChange | None) -> None:
        """Say what was saved, and for which calls it counts; when other processes see it is not known here."""
        if change is None:
            return
        words = {
            "version": change.version,
            "what": change.tool_name or _("default limits"),
            "summary": change.summary or _("nothing is set yet"),
        }
        sentence = _("Version %(version)s. %(what)s: %(summary)s.") % words
        self.message_user(request, f"{sentence} {_reach(change)}".rstrip(), messages.INFO)


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


def editor_of(request: HttpRequest) -> AbstractBaseUser:
    """Return who edits."""
    return cast(AbstractBaseUser, request.user)  # the admin lets nobody else in
