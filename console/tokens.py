"""Admin pages for API tokens: issue a token, which is shown once; list tokens and revoke them; and read the log of both."""

from typing import Any

from django.contrib import admin, messages
from django.contrib.auth import get_user_model
from django.db.models import OuterRef, Q, QuerySet, Subquery
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from console.filters import choice, time_filter
from console.formats import Column
from console.lists import EditedList, HistoryList
from governance.admin import editor_of
from webchat import api_tokens
from webchat.models import ApiToken, ApiTokenChange

# Active tokens of superusers with an unknown issuer; they need a review after an update.
OriginFilter = choice(
    "origin",
    gettext_lazy("issued by"),
    {
        "unknown": (
            gettext_lazy("Issuer unknown, superuser’s token"),
            Q(pk__in=api_tokens.of_unknown_origin().values("pk")),
        )
    },
)


class ApiTokenAdmin(EditedList):
    """The admin list of tokens. Revoked tokens are kept, so that their use can be traced."""

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

    made_by = Column(gettext_lazy("issued by"), lambda token: _maker(token), ordering="maker")

    def get_queryset(self, request: HttpRequest) -> Any:
        additions = ApiTokenChange.objects.filter(token=OuterRef("pk"), action="add")
        return (
            super().get_queryset(request).annotate(maker=Subquery(additions.values("by_name")[:1]))
        )

    def get_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        """Show the last use of an existing token. Only superusers may choose the user of a new one."""
        if obj is not None:
            return ("name", "user", *self.readonly_fields)
        return ("name", "user") if _is_superuser(request) else ("name",)

    def get_autocomplete_fields(self, request: HttpRequest) -> tuple[str, ...]:
        """Offer a search for users if the project's user admin has search fields; otherwise list all users."""
        users, site = get_user_model(), self.admin_site
        is_searchable = site.is_registered(users) and site.get_model_admin(users).get_search_fields(
            request
        )
        return ("user",) if is_searchable else ()

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Refuse edits, because a token's rights must not change after it was handed out."""
        return obj is None and super().has_change_permission(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Refuse deletion, because revoked tokens stay on record."""
        return False

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: Any) -> None:
        """Issue the token and show it once. Only superusers can issue it for another user."""
        editor = editor_of(request)
        user = form.cleaned_data.get("user", editor)
        record, token = api_tokens.issue(user=user, name=obj.name, by=editor)
        obj.pk, obj.user, obj.start = record.pk, record.user, record.start
        text = _("The token is %(token)s. Copy it now: it is not stored and cannot be shown again.")
        messages.warning(request, text % {"token": token})

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        if _is_superuser(request) and request.method == "GET":
            _warn_of_unknown_origin(request)
        return super().changelist_view(request, extra_context)

    @admin.action(description=gettext_lazy("Revoke the selected tokens"), permissions=["change"])
    def revoke(self, request: HttpRequest, queryset: QuerySet[ApiToken]) -> None:
        count = api_tokens.revoke(queryset, by=editor_of(request))
        text = ngettext("%(count)s token was revoked.", "%(count)s tokens were revoked.", count)
        messages.success(request, text % {"count": count})

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        """Preselect the signed-in user."""
        return {**super().get_changeform_initial_data(request), "user": str(request.user.pk)}


class ApiTokenChangeAdmin(HistoryList):
    """The admin list of tokens that were issued or revoked, newest first."""

    list_display = ["at", "token_name", "whose", "what", "by_name"]
    list_filter = [time_filter("at"), "action"]
    search_fields = ["token_name", "whose", "by_name"]
    search_help_text = gettext_lazy("Token, its user, or who issued or revoked it")
    fields = ["at", "token_name", "whose", "what", "by_name"]
    readonly_fields = ["what"]

    what = Column(
        gettext_lazy("action"),
        lambda change: _("issued") if change.action == "add" else _("revoked"),
        ordering="action",
    )


def _maker(token: Any) -> str:
    """Return the issuer of a token. Early versions did not record it, so it may be unknown."""
    maker: str | None = getattr(token, "maker", None)
    return _("unknown") if maker is None else maker


def _warn_of_unknown_origin(request: HttpRequest) -> None:
    count = api_tokens.of_unknown_origin().count()
    if not count:
        return
    text = ngettext(
        "%(count)s superuser token has no recorded issuer.",
        "%(count)s superuser tokens have no recorded issuer.",
        count,
    )
    messages.warning(
        request,
        format_html(
            '{} {} <a href="?origin=unknown">{}</a>',
            text % {"count": count},
            _(
                "Earlier versions let staff issue tokens for other users, so another person may have them."
            ),
            _("Review these tokens and revoke any that you do not recognize."),
        ),
    )


def _is_superuser(request: HttpRequest) -> bool:
    return bool(getattr(request.user, "is_superuser", False))
