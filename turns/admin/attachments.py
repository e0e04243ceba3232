"""Admin of attachments: whose files take how much room; a file itself is only shown in its conversation."""

from django.contrib import admin
from django.template.defaultfilters import filesizeformat
from django.utils.translation import gettext_lazy as _

from governance.admin.search import USERNAME, ExactSearchAdmin
from governance.admin.time_filter import time_filter
from turns.models import Attachment


@admin.register(Attachment)
class AttachmentAdmin(ExactSearchAdmin):
    """Every file, the latest first."""

    content_fields = ("name", "text")
    list_display = ["created_at", "owner", "name", "media_type", "room", "status", "conversation"]
    list_filter = [time_filter("created_at")]
    list_select_related = ["owner", "conversation"]
    id_fields = ("pk", "conversation_id")
    search_fields = [f"owner__{USERNAME}"]
    search_help_text = _("A whole id of a file or a conversation, or a whole user name")
    exclude = ["path"]

    @admin.display(description=_("size"))
    def room(self, obj: Attachment) -> str:
        return filesizeformat(obj.size)
