"""The admin of API tokens: issue one (shown once), list them, revoke them, and read their audit."""

from typing import TYPE_CHECKING, Any, cast

from django.contrib import admin, messages
from django.contrib.auth import get_user_model
from django.contrib.auth.base_user import AbstractBaseUser
from django.db.models import OuterRef, Q, QuerySet, Subquery
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from governance.admin.filters import ConditionFilter
from governance.admin.mixins import AuditedAdmin, TimesAdmin
from governance.admin.readonly import ReadOnlyAdmin
from governance.admin.time_filter import time_filter
from webchat import api_tokens
from webchat.models import ApiToken, ApiTokenChange

if TYPE_CHECKING:
    Base = admin.ModelAdmin[ApiToken]
else:  # generic for the type checker only
    Base = admin.ModelAdmin


class OriginFilter(ConditionFilter):
    """Filters the active tokens of superusers whose issuer is unknown: review them after an update."""

    title = gettext_lazy("made by")
    parameter_name = "origin"
    conditions = {
        "unknown": (
            gettext_lazy("Nobody knows, and of a superuser"),
            Q(pk__in=api_tokens.of_unknown_origin().values("pk")),
        )
    }


@admin.register(ApiToken)
class ApiTokenAdmin(AuditedAdmin[ApiToken], TimesAdmin[ApiToken], Base):
    """Lists tokens. Revoked ones stay, so that their use can be traced."""

    list_display = (
        "name",
        "user",
        "start",
        "created_at",
        "made_by",
        "last_used_at",
        "revoked_at",
    )
    list_filter = (("revoked_at", admin.EmptyFieldListFilter), OriginFilter)
    list_select_related = ("user",)
    search_fields = ("name", f"user__{get_user_model().USERNAME_FIELD}")
    readonly_fields = ("start", "created_at", "made_by", "last_used_at", "revoked_at")
    actions = ("revoke",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[ApiToken]:
        """Load the issuer of each token in the same query."""
        made = ApiTokenChange.objects.filter(token=OuterRef("pk"), action="add")
        return super().get_queryset(request).annotate(maker=Subquery(made.values("by_name")[:1]))

    def get_fields(self, request: HttpRequest, obj: ApiToken | None = None) -> tuple[str, ...]:
        """Show the use of an existing token. Only superusers choose whom a new one is for."""
        if obj is not None:
            return ("name", "user", *self.readonly_fields)
        return ("name", "user") if _is_superuser(request) else ("name",)

    def get_autocomplete_fields(self, request: HttpRequest) -> tuple[str, ...]:
        """Search for users where the project's user admin has search fields; else list them all."""
        users = self.admin_site._registry.get(get_user_model())
        return ("user",) if users is not None and users.get_search_fields(request) else ()

    def has_change_permission(self, request: HttpRequest, obj: ApiToken | None = None) -> bool:
        """Refuse edits: the rights of a token must not change under its holder."""
        return obj is None and super().has_change_permission(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: ApiToken | None = None) -> bool:
        """Refuse deletion: a revoked token stays on record."""
        return False

    def save_model(self, request: HttpRequest, obj: ApiToken, form: Any, change: Any) -> None:
        """Issue the token and show it once. It is for the signed-in user, unless a superuser chose another one."""
        editor = _editor(request)
        user = form.cleaned_data.get("user", editor)
        made, token = api_tokens.issue(user=user, name=obj.name, by=editor)
        obj.pk, obj.user, obj.start = made.pk, made.user, made.start
        text = _("The token is %(token)s: copy it now, it is not stored and cannot be shown again.")
        messages.warning(request, text % {"token": token})

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """Warn superusers of tokens whose issuer is unknown."""
        if _is_superuser(request) and request.method == "GET":
            _warn_of_unknown_origin(request)
        return super().changelist_view(request, extra_context)

    @admin.action(description=gettext_lazy("Revoke the selected tokens"), permissions=["change"])
    def revoke(self, request: HttpRequest, queryset: QuerySet[ApiToken]) -> None:
        count = api_tokens.revoke(queryset, by=_editor(request))
        text = ngettext("%(count)s token was revoked.", "%(count)s tokens were revoked.", count)
        messages.success(request, text % {"count": count})

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        """Preselect the signed-in user."""
        return {**super().get_changeform_initial_data(request), "user": str(request.user.pk)}

    @admin.display(description=gettext_lazy("made by"), ordering="maker")
    def made_by(self, obj: ApiToken) -> str:
        # Nobody recorded the issuers of the first tokens.
        maker: str | None = getattr(obj, "maker", None)
        return _("not known") if maker is None else maker


@admin.register(ApiTokenChange)
class ApiTokenChangeAdmin(ReadOnlyAdmin):
    """Lists every issue and every revocation, newest first."""

    list_display = ["at", "token_name", "whose", "what", "by_name"]
    list_filter = [time_filter("at"), "action"]
    search_fields = ["token_name", "whose", "by_name"]
    search_help_text = gettext_lazy("Token, its user, or who made or revoked it")
    fields = ["at", "token_name", "whose", "what", "by_name"]
    readonly_fields = ["what"]

    @admin.display(description=gettext_lazy("what"), ordering="action")
    def what(self, obj: ApiTokenChange) -> str:
        return _("made") if obj.action == "add" else _("revoked")


def _warn_of_unknown_origin(request: HttpRequest) -> None:
    count = api_tokens.of_unknown_origin().count()
    if not count:
        return
    text = ngettext(
        "%(count)s token of a superuser was made when nobody wrote down by whom.",
        "%(count)s tokens of superusers were made when nobody wrote down by whom.",
        count,
    )
    messages.warning(
        request,
        format_html(
            '{} {} <a href="?origin=unknown">{}</a>',
            text % {"count": count},
            _("Staff could make tokens for others then, so somebody else may hold them."),
            _("Look at them, and revoke those that you cannot account for."),
        ),
    )


def _editor(request: HttpRequest) -> AbstractBaseUser:
    return cast(AbstractBaseUser, request.user)  # the admin lets nobody else in


def _is_superuser(request: HttpRequest) -> bool:
    return bool(getattr(request.user, "is_superuser", False))
