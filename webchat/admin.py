"""The admin's pages of API tokens: make one (shown once), look, revoke, and see who did. Nothing else can be changed."""

from typing import TYPE_CHECKING, Any, cast

from django.contrib import admin, messages
from django.contrib.auth import get_user_model
from django.contrib.auth.base_user import AbstractBaseUser
from django.db.models import OuterRef, QuerySet, Subquery
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from governance.admin.formatting import format_time
from governance.admin.mixins import AuditedAdmin
from governance.admin.readonly import ReadOnlyAdmin
from governance.admin.time_filter import time_filter
from webchat import api_tokens
from webchat.models import ApiToken, ApiTokenChange

if TYPE_CHECKING:
    Base = admin.ModelAdmin[ApiToken]
else:  # generic for the type checker only
    Base = admin.ModelAdmin


class OriginFilter(admin.SimpleListFilter):
    """The tokens to look at after an update: good ones of superusers, made by nobody knows whom."""

    title = gettext_lazy("made by")
    parameter_name = "origin"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        """Name the choice."""
        return [("unknown", gettext_lazy("Nobody knows, and of a superuser"))]

    def queryset(self, request: HttpRequest, queryset: QuerySet[ApiToken]) -> QuerySet[ApiToken]:
        """Apply it."""
        if self.value() != "unknown":
            return queryset
        return queryset.filter(pk__in=api_tokens.of_unknown_origin().values("pk"))


@admin.register(ApiToken)
class ApiTokenAdmin(AuditedAdmin[ApiToken], Base):
    """Tokens stay in the list after they were revoked: who used what, and until when."""

    list_display = (
        "name",
        "user",
        "start",
        "created",
        "made_by",
        "last_used",
        "revoked",
    )
    list_filter = (("revoked_at", admin.EmptyFieldListFilter), OriginFilter)
    list_select_related = ("user",)
    search_fields = ("name", f"user__{get_user_model().USERNAME_FIELD}")
    readonly_fields = ("start", "created_at", "made_by", "last_used_at", "revoked_at")
    actions = ("revoke",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[ApiToken]:
        """Add who made each, in the same query."""
        made = ApiTokenChange.objects.filter(token=OuterRef("pk"), action="add")
        return super().get_queryset(request).annotate(maker=Subquery(made.values("by_name")[:1]))

    def get_fields(self, request: HttpRequest, obj: ApiToken | None = None) -> tuple[str, ...]:
        """Show the traces of a token once it exists; let superusers alone choose for whom one is made."""
        if obj is not None:
            return ("name", "user", *self.readonly_fields)
        return ("name", "user") if _is_superuser(request) else ("name",)

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
        """Make the token and show it, this once: for the person at the screen, unless a superuser has chosen."""
        editor = _editor(request)
        user = form.cleaned_data.get("user", editor)
        made, token = api_tokens.issue(user=user, name=obj.name, by=editor)
        obj.pk, obj.user, obj.start = made.pk, made.user, made.start
        text = _("The token is %(token)s: copy it now, it is not stored and cannot be shown again.")
        messages.warning(request, text % {"token": token})

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """Tell a superuser of tokens that somebody else may hold."""
        if _is_superuser(request) and request.method == "GET":
            _warn_of_unknown_origin(request)
        return super().changelist_view(request, extra_context)

    @admin.action(description=gettext_lazy("Revoke the selected tokens"), permissions=["change"])
    def revoke(self, request: HttpRequest, queryset: QuerySet[ApiToken]) -> None:
        """Make the selected tokens useless from now on."""
        count = api_tokens.revoke(queryset, by=_editor(request))
        text = ngettext("%(count)s token was revoked.", "%(count)s tokens were revoked.", count)
        messages.success(request, text % {"count": count})

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        """Suggest the person at the screen as the token's user."""
        return {**super().get_changeform_initial_data(request), "user": str(request.user.pk)}

    @admin.display(description=gettext_lazy("created"), ordering="created_at")
    def created(self, obj: ApiToken) -> str:
        """When it was made."""
        return format_time(obj.created_at)

    @admin.display(description=gettext_lazy("last used"), ordering="last_used_at")
    def last_used(self, obj: ApiToken) -> str:
        """When it was used last, to the minute or so."""
        return format_time(obj.last_used_at)

    @admin.display(description=gettext_lazy("revoked"), ordering="revoked_at")
    def revoked(self, obj: ApiToken) -> str:
        """When it was revoked."""
        return format_time(obj.revoked_at)

    @admin.display(description=gettext_lazy("made by"), ordering="maker")
    def made_by(self, obj: ApiToken) -> str:
        """Who made it; of the first tokens nobody has written that down."""
        maker: str | None = getattr(obj, "maker", None)
        return _("not known") if maker is None else maker


@admin.register(ApiTokenChange)
class ApiTokenChangeAdmin(ReadOnlyAdmin):
    """Every token that was made or revoked, newest first."""

    list_display = ["when", "token_name", "whose", "what", "by_name"]
    list_filter = [time_filter("at"), "action"]
    search_fields = ["token_name", "whose", "by_name"]
    search_help_text = gettext_lazy("Token, its user, or who made or revoked it")
    fields = ["at", "token_name", "whose", "what", "by_name"]
    readonly_fields = ["what"]

    @admin.display(description=gettext_lazy("at"), ordering="at")
    def when(self, obj: ApiTokenChange) -> str:
        """When it happened."""
        return format_time(obj.at)

    @admin.display(description=gettext_lazy("what"), ordering="action")
    def what(self, obj: ApiTokenChange) -> str:
        """What happened to it."""
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
