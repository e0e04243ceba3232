"""What people do with files before they send them: attach them, and take them back."""

from uuid import UUID

from governance.db import run_in_db_thread
from turns.attachments import file_storage, rows
from turns.attachments.file_parsing import Readable, ReadFile, read_file
from turns.attachments.file_writes import write_file
from turns.attachments.threads import in_parsing_thread, in_storage_thread
from turns.core.wire import AttachmentContent
from turns.exceptions import AttachmentNotFound
from turns.models import Attachment
from turns.processes.background import shielded
from turns.storage.access import User, reload


@shielded
async def add_attachment(*, user: User, name: str, source: Readable) -> AttachmentContent:
    """Read and store a file; return the block that stands for it in a message.

    Raises:
        AttachmentRejected, AttachmentNotFound, NotAllowed
    """
    file_storage.storage()
    file = await in_parsing_thread(read_file, source)
    row = await _reserve(user, name, file)
    await write_file(row, file.content)
    return row.as_block()


@shielded
async def discard_attachment(*, user: User, attachment_id: UUID) -> None:
    """Remove a file that no message has claimed. Raise `AttachmentNotFound`, `NotAllowed`."""
    path = await _condemn_own(user, attachment_id)
    await in_storage_thread(file_storage.remove, path)
    await run_in_db_thread(rows.delete_removed)([attachment_id])


@run_in_db_thread
def _reserve(user: User, name: str, file: ReadFile) -> Attachment:
    return rows.reserve(reload(user).pk, name, file)


@run_in_db_thread
def _condemn_own(user: User, attachment_id: UUID) -> str:
    """Take an unclaimed file away; return where it is."""
    own = Attachment.objects.filter(pk=attachment_id, owner=reload(user).pk, conversation=None)
    if not rows.mark_for_removal(own):
        raise AttachmentNotFound
    return Attachment.objects.values_list("path", flat=True).get(pk=attachment_id)
