"""Admin of conversations: whose they are and how long; what was said is on the pages of their turns."""

from asgiref.sync import async_to_sync
from django.contrib import admin, messages
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from governance.admin.filters import ConditionFilter
from turns import services
from turns.admin.search import IdSearchAdmin
from turns.models import Conversation


class ParkedFilter(ConditionFilter):
    """Which conversations begin no turn until somebody lets them."""

    title = _("parked")
    parameter_name = "parked"
    conditions = {"yes": (_("Parked"), Q(parked_at__isnull=False))}


@admin.register(Conversation)
class ConversationAdmin(IdSearchAdmin):
    """Every conversation, the latest first."""

    list_display = ["updated_at", "title", "owner", "agent", "last_number", "last_seq", "parked_at"]
    list_filter = [ParkedFilter]
    actions = ["resume_conversations"]
    list_select_related = ["owner"]
    id_fields = ("pk",)
    search_fields = ["owner__username__exact", "title"]
    search_help_text = _("A whole id, a whole user name, or part of a title")
    date_hierarchy = "updated_at"

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
