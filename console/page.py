"""The base of all pages that are neither a list nor a form: query, choices, refusals, redirect and response."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse


@dataclass(slots=True, kw_only=True)
class Choice:
    """A link that shows the page with another option."""

    label: Any
    query: str
    is_chosen: bool


class Page:
    """One request for a page. Subclasses define its `context` and handle its form in `act`."""

    template: str
    title: Any = ""

    def __init__(self, model_admin: Any, request: HttpRequest) -> None:
        self.admin = model_admin
        self.request = request
        if not self.may_see():
            raise PermissionDenied

    def may_see(self) -> bool:
        return bool(self.admin.has_view_or_change_permission(self.request))

    def respond(self) -> HttpResponse:
        return self.act() if self.request.method == "POST" else self.show()

    def act(self) -> HttpResponse:
        return self.show()

    def show(self) -> HttpResponse:
        return self.render(self.template, **self.context)

    @property
    def context(self) -> dict[str, Any]:
        return {}

    def render(self, template: str, **context: Any) -> HttpResponse:
        of_every_page = {
            **self.admin.admin_site.each_context(self.request),
            "title": self.title,
            "opts": self.admin.opts,
            "media": self.admin.media,
        }
        return TemplateResponse(self.request, template, {**of_every_page, **context})

    def say(self, *sentences: str, level: int = messages.ERROR) -> None:
        for sentence in sentences:
            self.admin.message_user(self.request, sentence, level)

    def refuse(self, *sentences: str) -> HttpResponse:
        """Show the page again with the errors and the values that the user entered."""
        self.say(*sentences)
        return self.show()

    def back(self, **changes: str) -> HttpResponse:
        """Redirect to the page with the same query, so that a reload does not submit the form again."""
        return HttpResponseRedirect(self.address(**changes))

    # The query in the address

    @property
    def asked(self) -> Mapping[str, Any]:
        """Return the parameters that the page's links keep."""
        return self.request.GET.dict()

    def address(self, **changes: Any) -> str:
        """Return the page's address with some parameters changed."""
        query = {**self.asked, **changes}
        return f"{self.request.path}?{urlencode(query)}" if query else self.request.path

    def chosen(self, name: str, options: Any, default: str) -> str:
        value = self.request.GET.get(name, default)
        return value if value in options else default

    def choices(self, name: str, labels: Mapping[str, Any], selection: str) -> list[Choice]:
        return [
            Choice(label=label, query=self.address(**{name: key}), is_chosen=key == selection)
            for key, label in labels.items()
        ]
