"""Forgetting a person: the page that shows what will be removed, and its links from the project's user admin."""

from collections.abc import Mapping
from typing import Any

from asgiref.sync import async_to_sync
from django.contrib import admin, messages
from django.contrib.admin.options import IS_POPUP_VAR
from django.contrib.auth import get_user_model
from django.core.exceptions import PermissionDenied
from django.db import ProgrammingError
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from console.links import address, address_of_list
from console.page import Page
from console.running_actions import needs_reason
from governance.admin import editor_of
from turns import services
from turns.endings import forgetting

_WORDS: Mapping[str, Any] = {
    "conversations": gettext_lazy("conversations"),
    "turns": gettext_lazy("turns"),
    "messages": gettext_lazy("messages"),
    "calls": gettext_lazy("tool calls"),
    "events": gettext_lazy("events"),
    "attachments": gettext_lazy("attachments"),
    "notes": gettext_lazy("notes"),
    "names": gettext_lazy("other people’s events and activity entries with the name"),
}


class ForgetPage(Page):
    """A page that shows how much a person has written, with a button to remove it."""

    template = "console/forget.html"
    title = gettext_lazy("Forget a person")

    def __init__(self, model_admin: Any, request: HttpRequest, user_id: str) -> None:
        super().__init__(model_admin, request)
        self._user = _find(user_id)
        if not forgetting.may_forget(self._user, by=request.user):
            raise PermissionDenied

    def may_see(self) -> bool:
        return self.request.user.has_perm(forgetting.PERMISSION)

    @property
    def context(self) -> dict[str, Any]:
        counts = forgetting.count(self._user)
        return {
            "person": self._user.get_username(),
            "counts": [(words, counts[name]) for name, words in _WORDS.items()],
        }

    def act(self) -> HttpResponse:
        why = self.request.POST.get("why", "").strip()
        if not why:
            return self.refuse(needs_reason())
        try:
            async_to_sync(services.forget_user)(
                user_id=self._user.pk, by=editor_of(self.request), why=why
            )
        except ProgrammingError:  # on a PostgreSQL database set up as in docs/howto/audit.md
            return self.refuse(
                _(
                    "The site’s database role may not change the audit. Run “manage.py forget_user” with the role that owns the tables."
                )
            )
        name = _find(self._user.pk).get_username()
        self.say(
            _("The person is now called %(name)s. Their content is removed within seconds.")
            % {"name": name},
            level=messages.SUCCESS,
        )
        reader = self.request.user
        record = address_of_list(reader, "governance_activity", action__exact="forget")
        return HttpResponseRedirect(record or address(reader, "index"))


def _find(user_id: Any) -> Any:
    users = get_user_model()
    try:
        return users._default_manager.get(pk=users._meta.pk.to_python(user_id))
    except (users.DoesNotExist, ValueError) as error:
        raise Http404 from error


class ForgetsPeople:
    """A mixin for the project's user admin: an action, and a link on the page that deletes a user."""

    delete_confirmation_template = "console/delete_user.html"

    @admin.action(description=gettext_lazy("Forget the selected person"), permissions=["forget"])
    def forget(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
        """Redirect to the confirmation page, or report that exactly one person must be selected."""
        pks = list(queryset.values_list("pk", flat=True)[:2])
        if len(pks) == 1:
            return HttpResponseRedirect(address(request.user, "turns_forget_user", pks[0]))
        messages.error(request, _("Select exactly one person."))
        return None

    def has_forget_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm(forgetting.PERMISSION)

    def get_actions(self, request: HttpRequest) -> Any:
        """Return the actions of the project's user admin, with the action that forgets a person."""
        actions = super().get_actions(request)  # type: ignore[misc]  # of the project's admin
        if self.has_forget_permission(request) and IS_POPUP_VAR not in request.GET:
            func, name, description = self.get_action("forget")  # type: ignore[attr-defined]
            actions[name] = (func, name, description)
        return actions

    def delete_view(self, request: HttpRequest, object_id: str, extra_context: Any = None) -> Any:
        """Offer forgetting as an alternative to deletion."""
        person = get_user_model()._default_manager.filter(pk=object_id).first()
        may_forget = person is not None and forgetting.may_forget(person, by=request.user)
        page = address(request.user, "turns_forget_user", object_id) if may_forget else ""
        context = {**(extra_context or {}), "forget_page": page}
        return super().delete_view(request, object_id, context)  # type: ignore[misc]
