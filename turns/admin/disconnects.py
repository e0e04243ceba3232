"""Admin of the disconnect policy: one row, in words and durations; every edit is audited and counts at once (C11)."""

from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.utils import label_for_field
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.text import format_lazy
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from governance.admin.fields import UNITS_HELP, DurationField
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

    grace_ms = DurationField(
        label=gettext_lazy("Grace"),
        help_text=format_lazy(
            "{} {}",
            gettext_lazy("For “cancel after a grace”. A reload takes a few seconds."),
            UNITS_HELP,
        ),
    )
    unattended_limit_ms = DurationField(
        label=gettext_lazy("Unattended limit"),
        help_text=format_lazy(
            "{} {}",
            gettext_lazy("For “let it go on”. 0 = no limit but the turn's own."),
            UNITS_HELP,
        ),
    )

    class Meta:
        model = DisconnectPolicy
        fields = disconnects.FIELDS

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
class DisconnectPolicyAdmin(PolicyModelAdmin):
    """The one row of it."""

    form = DisconnectPolicyForm
    fields = (*disconnects.FIELDS, "updated_at")
    readonly_fields = ("updated_at",)

    def has_add_permission(self, request: HttpRequest) -> bool:
        """There is one row, always."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """There is one row, always."""
        return False

    def get_fields(self, request: HttpRequest, obj: DisconnectPolicy | None = None) -> Any:
        """Show durations with their units to those who may not edit."""
        if self.has_change_permission(request, obj):
            return self.fields
        return ("policy", "grace", "unattended_limit", "updated_at")

    def get_readonly_fields(
        self, request: HttpRequest, obj: DisconnectPolicy | None = None
    ) -> tuple[str, ...]:
        """Declare the readable values, so that the page may show them."""
        return (*self.readonly_fields, "grace", "unattended_limit")

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """Go to the one row."""
        if not self.has_view_or_change_permission(request):
            return super().changelist_view(request, extra_context)
        name = f"{self.admin_site.name}:turns_disconnectpolicy_change"
        return HttpResponseRedirect(reverse(name, args=[1]))

    def get_object(
        self, request: HttpRequest, object_id: str, from_field: str | None = None
    ) -> DisconnectPolicy | None:
        """Make the row on its first visit."""
        if object_id == "1":
            DisconnectPolicy.objects.get_or_create(pk=1)
        return super().get_object(request, object_id, from_field)

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

    @admin.display(description=gettext_lazy("grace"))
    def grace(self, obj: DisconnectPolicy) -> str:
        """The grace with its unit."""
        return format_limit(obj.grace_ms)

    @admin.display(description=gettext_lazy("unattended limit"))
    def unattended_limit(self, obj: DisconnectPolicy) -> str:
        """The limit with its unit."""
        return format_limit(obj.unattended_limit_ms)


def _in_words(name: str, value: Any) -> str:
    if name == "policy":
        return str(dict(DisconnectPolicy._meta.get_field("policy").flatchoices)[value])
    if name == "grace_ms" and not value:
        return _("none")
    return format_limit(value)
