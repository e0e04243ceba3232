"""Read access to attached files, for users who may see the conversation."""

from dataclasses import dataclass
from uuid import UUID

from governance.db import run_in_query_thread
from turns.attachments import file_storage
from turns.attachments.media_types import saved_name
from turns.attachments.rows import STORED
from turns.attachments.threads import in_storage_thread
from turns.exceptions import AttachmentNotFound, ConversationNotFound
from turns.models import Attachment
from turns.storage.access import User, conversation_for, reload


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachedFile:
    """A file to send to a browser; the extension of `name` matches the file's type."""

    name: str
    media_type: str
    content: bytes

    @property
    def is_image(self) -> bool:
        return self.media_type.startswith("image/")


async def attached_file(*, attachment_id: UUID, user: User) -> AttachedFile:
    """Return a file of the user, or of a conversation that the user may see. Raise `AttachmentNotFound`."""
    row = await _row(attachment_id, user)
    try:
        content = await in_storage_thread(file_storage.read, row.path)
    except FileNotFoundError:  # it was just removed
        raise AttachmentNotFound from None
    name = saved_name(row.name, row.media_type)
    return AttachedFile(name=name, media_type=row.media_type, content=content)


@run_in_query_thread
def _row(attachment_id: UUID, user: User) -> Attachment:
    user_id = reload(user).pk
    row = Attachment.objects.filter(pk=attachment_id, status=STORED).defer("text").first()
    if row is None:
        raise AttachmentNotFound
    if row.conversation_id is None:
        if row.owner_id != user_id:
            raise AttachmentNotFound
        return row
    try:
        conversation_for(user, row.conversation_id, permission="turns.view_all")
    except ConversationNotFound:
        raise AttachmentNotFound from None
    return row
