"""Admin pages for conversations and their attachments. Messages are shown on the pages of their turns."""

from collections.abc import Iterable
from typing import Any, ClassVar

from asgiref.sync import async_to_sync
from django.contrib import admin, messages
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.defaultfilters import filesizeformat
from django.urls import path
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from console import exports, filters, search
from console.filters import time_filter
from console.formats import Column
from console.links import (
    USERNAME,
    Link,
    anchor,
    link_column,
    links_of_conversations,
    reader_of,
    turns_address,
)
from console.lists import SearchedList, may_view_content
from console.people import ForgetPage
from console.usage_words import usage_words
from governance.hidden_characters import visible
from turns import services
from turns.models import Conversation, Turn
from turns.selectors import usage_of

_LINKS = [
    link_column("user", ordering="owner"),
    link_column("agent", ordering="agent"),
    link_column("chat"),
]
# Filters the conversations that start no turn until a person resumes them.
ParkedFilter = filters.choice(
    "parked", _("state"), {"yes": (_("Parked"), Q(parked_at__isnull=False))}
)


def _part_of_title(rows: QuerySet[Any], term: str) -> QuerySet[Any]:
    """Find conversations by a part of their title. This reads every title, but a site has far fewer conversations than
    calls.
    """
    return rows.filter(title__icontains=term)


class ConversationAdmin(SearchedList):
    """The admin list of every conversation, newest first."""

    content_fields = ("title",)
    usual_values: ClassVar[Any] = {"attended_number": 0}
    export_order = ("pk",)  # the list's own order can change
    export_columns = [exports.OWNERS]
    list_display = [
        "updated_at", "title", *_LINKS[:2], "turns_so_far", "parked_at", "deleted_at",
    ]  # fmt: skip
    list_filter = [time_filter("updated_at"), ParkedFilter, *filters.OF_CONVERSATIONS]
    actions = ["resume_conversations"]
    fields = [
        "title", *_LINKS, "turns_so_far", "usage", "parent", "last_seq", "last_position", "unattended_since",
        "attended_number", "parked_at", "parked_reason", "pinned_at", "edited_at", "deleted_at", "emptied_at", "created_at", "updated_at",
    ]  # fmt: skip
    list_select_related = ["owner"]
    id_fields = ("pk",)
    search_fields = [f"owner__{USERNAME}"]
    search_help_text = _("Full id, full user name, or part of a title")

    turns_so_far = Column(
        _("turns"),
        lambda row: anchor(Link(str(row.last_number), turns_address(reader_of(row), q=row.pk))),
        ordering="last_number",
    )

    usage = Column(
        _("usage"), lambda row: usage_words(usage_of(Turn.objects.filter(conversation=row)))
    )

    def get_urls(self) -> list[Any]:
        view = self.admin_site.admin_view(self.forget_view)
        forget = path("forget/<path:user_id>/", view, name="turns_forget_user")
        return [forget, *super().get_urls()]

    def forget_view(self, request: HttpRequest, user_id: str) -> HttpResponse:
        """Show the page on which staff can forget a person."""
        return ForgetPage(self, request, user_id).respond()

    def sentence(self, row: Conversation) -> str:
        """Return the owner and the number of turns, because not everybody may see the title."""
        words = ngettext(
            "%(user)s’s conversation with %(count)d turn",
            "%(user)s’s conversation with %(count)d turns",
            row.last_number,
        )
        return words % {"user": visible(row.owner.get_username()), "count": row.last_number}

    def part_finder(self, request: HttpRequest) -> Any:
        return _part_of_title if may_view_content(request) else search.nothing

    def prepare_rows(self, request: HttpRequest, rows: Iterable[Any]) -> None:
        """Read the related objects of all conversations in one query."""
        super().prepare_rows(request, rows)
        links = links_of_conversations(request.user, rows)
        for conversation in rows:
            conversation.links = links[str(conversation.pk)]

    def has_resume_permission(self, request: HttpRequest) -> bool:
        """Return whether the user may resume conversations."""
        return request.user.has_perm("turns.cancel_any")

    @admin.action(description=_("Resume the selected parked conversations"), permissions=["resume"])
    def resume_conversations(self, request: HttpRequest, queryset: QuerySet[Conversation]) -> None:
        """Resume the selected parked conversations through the same service as every other client."""
        resumed = sum(
            async_to_sync(services.resume_conversation)(conversation_id=pk, user=request.user)
            for pk in queryset.filter(parked_at__isnull=False).values_list("pk", flat=True)
        )
        text = ngettext(
            "%(count)d conversation was resumed.", "%(count)d conversations were resumed.", resumed
        )
        self.message_user(
            request, text % {"count": resumed}, messages.SUCCESS if resumed else messages.WARNING
        )


class AttachmentAdmin(SearchedList):
    """The admin list of attachments, with owner and size. The file itself is only shown in its conversation."""

    content_fields = ("name", "text")
    list_display = ["created_at", "owner", "name", "media_type", "room", "status", "conversation"]
    list_filter = [time_filter("created_at")]
    list_select_related = ["owner", "conversation"]
    id_fields = ("pk", "conversation_id")
    search_fields = [f"owner__{USERNAME}"]
    search_help_text = _("Full id of a file or conversation, or full user name")
    exclude = ["path"]

    room = Column(_("size"), lambda attachment: filesizeformat(attachment.size))
