"""Admin of conversations: whose they are and how long; what was said is on the pages of their turns."""

from typing import Any

from asgiref.sync import async_to_sync
from django.contrib import admin, messages
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from governance.admin.filters import ConditionFilter
from governance.admin.formatting import format_time
from governance.admin.search import USERNAME, ExactSearchAdmin
from governance.admin.time_filter import time_filter
from turns import services
from turns.models import Conversation


class ParkedFilter(ConditionFilter):
    """Which conversations begin no turn until somebody lets them."""

    title = _("parked")
    parameter_name = "parked"
    conditions = {"yes": (_("Parked"), Q(parked_at__isnull=False))}


@admin.register(Conversation)
class ConversationAdmin(ExactSearchAdmin):
    """Every conversation, the latest first."""

    list_display = ["updated", "title", "owner", "agent", "turns_so_far", "parked"]
    list_filter = [time_filter("updated_at"), ParkedFilter]
    actions = ["resume_conversations"]
    list_select_related = ["owner"]
    id_fields = ("pk",)
    search_fields = [f"owner__{USERNAME}"]
    search_help_text = _("A whole id, a whole user name, or part of a title")

    def search_part(self, queryset: QuerySet[Any], term: str) -> QuerySet[Any]:
        """Find a part of a title; titles are as many as conversations, not as calls."""
        return queryset.filter(title__icontains=term)

    @admin.display(description=_("updated at"), ordering="updated_at")
    def updated(self, obj: Conversation) -> str:
        """When something happened in it last."""
        return format_time(obj.updated_at)

    @admin.display(description=_("turns"), ordering="last_number")
    def turns_so_far(self, obj: Conversation) -> int:
        """How many turns it has had."""
        return obj.last_number

    @admin.display(description=_("parked at"), ordering="parked_at")
    def parked(self, obj: Conversation) -> str:
        """Since when it begins no turn."""
        return format_time(obj.parked_at)

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
