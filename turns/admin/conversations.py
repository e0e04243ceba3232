"""Admin of conversations: whose they are and how long; what was said is on the pages of their turns."""

from collections.abc import Iterable
from typing import Any

from asgiref.sync import async_to_sync
from django.contrib import admin, messages
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from governance.admin.filters import ConditionFilter
from governance.admin.links import anchor, column, reader_of
from governance.admin.readonly import ReadOnlyAdmin, may_view_content
from governance.admin.search import USERNAME, ExactSearchAdmin
from governance.admin.time_filter import time_filter
from governance.call_links import Link
from turns import services
from turns.admin import turn_filters
from turns.admin.turn_links import LABELS, links_of_conversations, turns_address
from turns.models import Conversation, ConversationChange

LINKS: dict[str, Any] = {
    "user": column("user", LABELS["user"], ordering="owner"),
    "agent": column("agent", LABELS["agent"], ordering="agent"),
    "chat": column("chat", LABELS["chat"]),
}


class ParkedFilter(ConditionFilter):
    """Which conversations begin no turn until somebody lets them."""

    title = _("parked")
    parameter_name = "parked"
    conditions = {"yes": (_("Parked"), Q(parked_at__isnull=False))}


@admin.register(ConversationChange)
class ConversationChangeAdmin(ReadOnlyAdmin):
    """Every conversation that was deleted, newest first."""

    list_display = ["at", "conversation_id", "by_name"]
    list_filter = [time_filter("at")]
    search_fields = ["by_name"]
    search_help_text = _("Who deleted it")
    fields = ["at", "conversation_id", "by_name"]


@admin.register(Conversation)
class ConversationAdmin(ExactSearchAdmin):
    """Every conversation, the latest first."""

    content_fields = ("title",)
    export_order = ("pk",)  # what it is listed by changes
    list_display = [
        "updated_at",
        "title",
        LINKS["user"],
        LINKS["agent"],
        "turns_so_far",
        "parked_at",
        "deleted_at",
    ]
    list_filter = [time_filter("updated_at"), ParkedFilter, *turn_filters.of_conversations()]
    actions = ["resume_conversations"]
    readonly_fields = [*LINKS.values(), "turns_so_far"]
    fields = [
        "title",
        *LINKS.values(),
        "turns_so_far",
        "parent",
        "last_seq",
        "last_position",
        "unattended_since",
        "attended_number",
        "parked_at",
        "parked_reason",
        "pinned_at",
        "edited_at",
        "deleted_at",
        "emptied_at",
        "created_at",
        "updated_at",
    ]
    list_select_related = ["owner"]
    id_fields = ("pk",)
    search_fields = [f"owner__{USERNAME}"]
    search_help_text = _("A whole id, a whole user name, or part of a title")

    def search_part(
        self, request: HttpRequest, queryset: QuerySet[Any], term: str
    ) -> QuerySet[Any]:
        """Find a part of a title for those who may see titles. They are as many as conversations, not as calls."""
        if not may_view_content(request):
            return queryset.none()
        return queryset.filter(title__icontains=term)

    def prepare_rows(self, request: HttpRequest, rows: Iterable[Any]) -> None:
        """Read what all conversations belong to at once."""
        super().prepare_rows(request, rows)
        links = links_of_conversations(request.user, rows)
        for conversation in rows:
            conversation.links = links[str(conversation.pk)]

    @admin.display(description=_("turns"), ordering="last_number")
    def turns_so_far(self, obj: Conversation) -> SafeString | str:
        """How many turns it has had, with their list."""
        return anchor(Link(str(obj.last_number), turns_address(reader_of(obj), q=obj.pk)))

    def has_resume_permission(self, request: HttpRequest) -> bool:
        """Whether the action is offered at all."""
        return request.user.has_perm("turns.cancel_any")

    @admin.action(
        description=_("Let the selected parked conversations go on"), permissions=["resume"]
    )
    def resume_conversations(self, request: HttpRequest, queryset: QuerySet[Conversation]) -> None:
        """Resume the chosen conversations that are parked, by the path that every request takes."""
        resumed = sum(
            async_to_sync(services.resume_conversation)(conversation_id=pk, user=request.user)
            for pk in queryset.filter(parked_at__isnull=False).values_list("pk", flat=True)
        )
        text = ngettext(
            "%(count)d conversation goes on.", "%(count)d conversations go on.", resumed
        )
        self.message_user(
            request, text % {"count": resumed}, messages.SUCCESS if resumed else messages.WARNING
        )
