"""Admin of the disconnect policy: one row, in words and durations; every edit is audited and counts at once (C11)."""

from typing import TYPE_CHECKING, Any, cast

from django import forms
from django.contrib import admin, messages
from django.contrib.auth.base_user import AbstractBaseUser
from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from governance.admin.mixins import AuditedAdmin, DurationsAdmin, OneRowAdmin, TimesAdmin
from governance.admin.readonly import ReadOnlyAdmin
from governance.admin.time_filter import time_filter
from governance.form_fields import VersionedForm
from turns.models import DisconnectPolicy, DisconnectPolicyChange
from turns.presence import disconnects

if TYPE_CHECKING:
    PolicyModelAdmin = admin.ModelAdmin[DisconnectPolicy]
    PolicyModelForm = forms.ModelForm[DisconnectPolicy]
else:  # generic for the type checker only
    PolicyModelAdmin = admin.ModelAdmin
    PolicyModelForm = forms.ModelForm

MAX_MS = 365 * 24 * 3_600_000


class DisconnectPolicyForm(VersionedForm, PolicyModelForm):
    """What happens, and after how long."""

    class Meta:
        model = DisconnectPolicy
        fields = disconnects.FIELDS
        help_texts = {
            "grace_ms": gettext_lazy("For “cancel after a grace”. A reload takes a few seconds."),
            "unattended_limit_ms": gettext_lazy(
                "For “let it go on”. 0 = no limit but the turn's own."
            ),
        }

    def clean(self) -> dict[str, Any] | None:
        """Warn once of a span below a second."""
        cleaned = super().clean()
        self.warn()
        return cleaned

    def clean_grace_ms(self) -> int:
        """Refuse spans that no one can mean."""
        return self._sensible("grace_ms")

    def clean_unattended_limit_ms(self) -> int:
        """Refuse spans that no one can mean."""
        return self._sensible("unattended_limit_ms")

    def _sensible(self, name: str) -> int:
        value: int = self.cleaned_data[name]
        if not 0 <= value <= MAX_MS:
            raise forms.ValidationError(_("Between 0 and a year."))
        return value


@admin.register(DisconnectPolicy)
class DisconnectPolicyAdmin(
    AuditedAdmin[DisconnectPolicy],
    OneRowAdmin[DisconnectPolicy],
    TimesAdmin[DisconnectPolicy],
    DurationsAdmin[DisconnectPolicy],
    PolicyModelAdmin,
):
    """The one row of it."""

    form = DisconnectPolicyForm
    fields = (*disconnects.FIELDS, "updated_at")
    readonly_fields = ("updated_at",)

    def get_fields(self, request: HttpRequest, obj: DisconnectPolicy | None = None) -> Any:
        """Add what tells two editors apart, and what the form keeps of a warning."""
        fields = super().get_fields(request, obj)
        return [*fields, "seen", "accepted"] if self.has_change_permission(request, obj) else fields

    def save_model(
        self, request: HttpRequest, obj: DisconnectPolicy, form: Any, change: Any
    ) -> None:
        """Save what the editor has changed, and only that."""
        values = {
            name: form.cleaned_data[name]
            for name in form.changed_data
            if name in disconnects.FIELDS
        }
        by = cast(AbstractBaseUser, request.user)
        if changes := disconnects.save(values, by=by, seen=form.loaded_updated_at):
            text = _("%(changes)s. It counts now, also for turns that are left alone already.")
            self.message_user(request, text % {"changes": changes}, messages.INFO)


@admin.register(DisconnectPolicyChange)
class DisconnectPolicyChangeAdmin(ReadOnlyAdmin):
    """Every edit of it, newest first."""

    list_display = ["at", "action", "summary", "by_name"]
    list_filter = [time_filter("at")]
    search_fields = ["by_name"]
    fields = ["at", "action", "summary", "by_name"]
    readonly_fields = ["at", "summary"]

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Whoever may see the policy may see its history."""
        return request.user.has_perm("turns.view_disconnectpolicy")

    @admin.display(description=gettext_lazy("old → new"))
    def summary(self, obj: DisconnectPolicyChange) -> str:
        return obj.summary
