"""The admin page of the disconnect policy, a single row. Every edit is audited and takes effect immediately."""

from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from console.lists import EditedList, OneRow
from governance.admin import editor_of
from governance.form_fields import VersionedForm
from turns.models import DisconnectPolicy
from turns.presence import disconnects

MAX_MS = 365 * 24 * 3_600_000


class DisconnectPolicyForm(VersionedForm):
    class Meta:
        model = DisconnectPolicy
        fields = disconnects.FIELDS
        help_texts = {
            "grace_ms": gettext_lazy(
                "For “cancel after a grace period”. A reload takes a few seconds."
            ),
            "unattended_limit_ms": gettext_lazy(
                "For “let it continue”. 0 = no limit except the turn’s own."
            ),
        }

    def clean(self) -> dict[str, Any] | None:
        """Warn once about a duration below one second."""
        cleaned = super().clean()
        self.warn()
        return cleaned

    def clean_grace_ms(self) -> int:
        """Refuse a negative duration, or one of more than a year."""
        return self._sensible("grace_ms")

    def clean_unattended_limit_ms(self) -> int:
        """Refuse a negative duration, or one of more than a year."""
        return self._sensible("unattended_limit_ms")

    def _sensible(self, name: str) -> int:
        value: int = self.cleaned_data[name]
        if not 0 <= value <= MAX_MS:
            raise forms.ValidationError(_("Enter a duration of at most one year."))
        return value


class DisconnectPolicyAdmin(OneRow, EditedList):
    form = DisconnectPolicyForm
    fields = (*disconnects.FIELDS, "updated_at")
    readonly_fields = ("updated_at",)

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """For editors, add the hidden fields that detect conflicts and remember warnings."""
        fields = super().get_fields(request, obj)
        return [*fields, "seen", "accepted"] if self.has_change_permission(request, obj) else fields

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: Any) -> None:
        """Save only the fields that the editor changed."""
        values = {
            name: form.cleaned_data[name]
            for name in form.changed_data
            if name in disconnects.FIELDS
        }
        by = editor_of(request)
        if changes := disconnects.save(values, by=by, version=form.loaded_updated_at):
            text = _(
                "%(changes)s. This applies immediately, including to turns that already have no viewer."
            )
            self.message_user(request, text % {"changes": changes}, messages.INFO)
