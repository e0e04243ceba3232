"""Lists with actions: one that is refused leaves the ticks, the action and the reason as they were."""

from copy import copy
from http import HTTPStatus
from typing import Any

from django.contrib import messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.forms import Media
from django.http import HttpRequest, HttpResponse
from django.utils.safestring import SafeString

from governance.admin.lookups import LookupsAdmin, Row


class ActionsAdmin(LookupsAdmin[Row]):
    """Shows the list again, as it was sent, when one of its actions is refused. Django would forget what was chosen."""

    show_full_result_count = False

    @property
    def media(self) -> Media:
        """Take over that rows beyond this page were chosen, too; put actions below the rows. On a phone these are cards."""
        return super().media + Media(
            css={"all": ["governance/admin.css"]},
            js=["governance/actions.js", "governance/cards.js"],
        )

    def refuse_action(self, request: HttpRequest, words: str, *, field: str = "") -> HttpResponse:
        """Say why nothing was done, and show what was chosen. `field` is where the answer is missing."""
        self.message_user(request, words, messages.ERROR)
        return self._show_again(request, field)

    def response_action(
        self, request: HttpRequest, queryset: Any, *args: Any, **kwargs: Any
    ) -> HttpResponse:
        """Carry the action out; where Django says that no action or no row is chosen, keep the rest."""
        answer: HttpResponse | None = super().response_action(request, queryset, *args, **kwargs)
        return self._show_again(request) if answer is None else answer

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """Keep the action and the reason where Django says that no row is chosen, and would read the page again."""
        answer = super().changelist_view(request, extra_context)
        is_action = request.method == "POST" and "index" in request.POST
        is_empty = is_action and not request.POST.getlist(ACTION_CHECKBOX_NAME)
        return (
            self._show_again(request)
            if is_empty and answer.status_code == HTTPStatus.FOUND
            else answer
        )

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        """Note which rows were chosen. Count once, below the list: what is beside the search would claim to know all."""
        changelist = super().get_changelist_instance(request)
        changelist.full_result_count = changelist.result_count
        chosen = set(request.POST.getlist(ACTION_CHECKBOX_NAME))
        for row in changelist.result_list:
            row.is_chosen = str(row.pk) in chosen
        return changelist

    def action_checkbox(self, obj: Any) -> SafeString:
        """Let the box of a row stay ticked."""
        box = super().action_checkbox(obj)
        return (
            SafeString(box.replace("<input", "<input checked", 1))
            if getattr(obj, "is_chosen", False)
            else box
        )

    def _show_again(self, request: HttpRequest, field: str = "") -> HttpResponse:
        posted = request.POST
        form: Any = self.action_form(auto_id=None, initial={**posted.dict(), "select_across": 0})
        form.fields["action"].choices = self.get_action_choices(request)
        if posted.get("select_across") == "1":
            form.fields["select_across"].widget.attrs["data-chosen"] = ""
        if field:
            form.fields[field].widget.attrs |= {"autofocus": True, "aria-invalid": "true"}
        shown = copy(request)
        shown.method = "GET"
        return self.changelist_view(shown, {"action_form": form})
