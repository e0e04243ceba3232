"""Admin of the disconnect policy: one row, in words and durations; every edit is audited and counts at once (C11)."""

from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.utils import label_for_field
from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from governance.admin.mixins import DurationsAdmin, OneRowAdmin
from governance.durations import format_limit
from turns.models import DisconnectPolicy
from turns.presence import disconnects

if TYPE_CHECKING:
    PolicyModelAdmin = admin.ModelAdmin[DisconnectPolicy]
    PolicyModelForm = forms.ModelForm[DisconnectPolicy]
else:  # generic for the type checker only
    PolicyModelAdmin = admin.ModelAdmin
    PolicyModelForm = forms.ModelForm

MAX_MS = 365 * 24 * 3_600_000


class DisconnectPolicyForm(PolicyModelForm):
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
    OneRowAdmin[DisconnectPolicy], DurationsAdmin[DisconnectPolicy], PolicyModelAdmin
):
    """The one row of it."""

    form = DisconnectPolicyForm
    fields = (*disconnects.FIELDS, "updated_at")
    readonly_fields = ("updated_at",)

    def save_model(
        self, request: HttpRequest, obj: DisconnectPolicy, form: Any, change: Any
    ) -> None:
        """Save what the editor has changed, and only that."""
        changes = disconnects.save({name: form.cleaned_data[name] for name in form.changed_data})
        form.audit = "; ".join(
            _("%(field)s: %(old)s → %(new)s")
            % {
                "field": label_for_field(name, DisconnectPolicy),
                "old": _in_words(name, old),
                "new": _in_words(name, new),
            }
            for name, (old, new) in changes.items()
        )
        if form.audit:
            text = _("%(changes)s. It counts now, also for turns that are left alone already.")
            self.message_user(request, text % {"changes": form.audit}, messages.INFO)

    def construct_change_message(
        self,
        request: HttpRequest,
        form: Any,
        formsets: Any,
        add: Any = False,  # noqa: FBT002 - Django's signature
    ) -> Any:
        """Keep the old and the new values in the row's history."""
        return form.audit


def _in_words(name: str, value: Any) -> str:
    if name == "policy":
        return str(dict(DisconnectPolicy._meta.get_field("policy").flatchoices)[value])
    if name == "grace_ms" and not value:
        return _("none")
    return format_limit(value)
