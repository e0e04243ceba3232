"""Admin of conversations: whose they are and how long; what was said is on the pages of their turns."""

from django.contrib import admin
from django.utils.translation import gettext_lazy as _

from turns.admin.search import IdSearchAdmin
from turns.models import Conversation


@admin.register(Conversation)
class ConversationAdmin(IdSearchAdmin):
    """Every conversation, the latest first."""

    list_display = ["updated_at", "title", "owner", "agent", "last_number", "last_seq"]
    list_select_related = ["owner"]
    id_fields = ("pk",)
    search_fields = ["owner__username__exact", "title"]
    search_help_text = _("A whole id, a whole user name, or part of a title")
    date_hierarchy = "updated_at"
