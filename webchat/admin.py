"""The admin's page of API tokens: make one (shown once), look, revoke. Nothing else can be changed."""

from typing import TYPE_CHECKING, Any

from django.contrib import admin, messages
from django.contrib.auth import get_user_model
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from webchat import tokens
from webchat.models import ApiToken

if TYPE_CHECKING:
    Base = admin.ModelAdmin[ApiToken]
else:  # generic for the type checker only
    Base = admin.ModelAdmin


@admin.register(ApiToken)
class ApiTokenAdmin(Base):
    """Tokens stay in the list after they were revoked: who used what, and until when."""

    list_display = ("name", "user", "start", "created_at", "last_used_at", "revoked_at")
    list_filter = (("revoked_at", admin.EmptyFieldListFilter),)
    list_select_related = ("user",)
    search_fields = ("name", f"user__{get_user_model().USERNAME_FIELD}")
    fields = ("name", "user")
    readonly_fields = ("start", "created_at", "last_used_at", "revoked_at")
    actions = ("revoke",)

    def get_fields(self, request: HttpRequest, obj: ApiToken | None = None) -> tuple[str, ...]:
        """Show the traces of a token once it exists."""
        return ("name", "user") if obj is None else ("name", "user", *self.readonly_fields)

    def get_autocomplete_fields(self, request: HttpRequest) -> tuple[str, ...]:
        """Find users by typing where the project's own admin can; else they are listed."""
        users = self.admin_site._registry.get(get_user_model())
        return ("user",) if users is not None and users.get_search_fields(request) else ()

    def has_change_permission(self, request: HttpRequest, obj: ApiToken | None = None) -> bool:
        """Refuse to edit: what a token may do must not change under its holder."""
        return obj is None and super().has_change_permission(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: ApiToken | None = None) -> bool:
        """Refuse to delete: a revoked token stays on record."""
        return False

    def save_model(self, request: HttpRequest, obj: ApiToken, form: Any, change: Any) -> None:
        """Make the token and show it, this once."""
        token = tokens.fresh()
        tokens.stamp(obj, token)
        super().save_model(request, obj, form, change)
        text = _("The token is %(token)s: copy it now, it is not stored and cannot be shown again.")
        messages.warning(request, text % {"token": token})

    @admin.action(description=gettext_lazy("Revoke the selected tokens"), permissions=["change"])
    def revoke(self, request: HttpRequest, queryset: QuerySet[ApiToken]) -> None:
        """Make the selected tokens useless from now on."""
        count = tokens.revoke(queryset)
        text = ngettext("%(count)s token was revoked.", "%(count)s tokens were revoked.", count)
        messages.success(request, text % {"count": count})

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        """Suggest the person at the screen as the token's user."""
        return {**super().get_changeform_initial_data(request), "user": str(request.user.pk)}
