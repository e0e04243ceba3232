"""Services that attach files before a message is sent, and discard them."""

from uuid import UUID

from governance.db import run_in_db_thread
from turns.attachments import file_storage, rows
from turns.attachments.file_parsing import Readable, ReadFile, read_file
from turns.attachments.media_types import HEAD_LENGTH, is_text_or_unknown
from turns.attachments.threads import in_reading_thread, in_storage_thread, uploads
from turns.core.wire import AttachmentContent
from turns.exceptions import AttachmentNotFound
from turns.models import Attachment
from turns.processes.background import shielded
from turns.storage.access import User, reload


async def add_attachment(*, user: User, name: str, source: Readable) -> AttachmentContent:
    """Read and store a file; return its block for a message.

    If the calling task is cancelled, this stops waiting, but a file that has already been read is still stored.

    Raises: AttachmentRejected, AttachmentNotFound, NotAllowed
    """
    file_storage.storage()
    await _require_room(user)
    head = await in_reading_thread(source.read, HEAD_LENGTH)
    if is_text_or_unknown(head):
        file = await in_reading_thread(read_file, source, head=head)
    else:
        file = await uploads.run(user.pk, lambda token: read_file(source, head=head, token=token))
    return await _store(user, name, file)


@shielded
async def _store(user: User, name: str, file: ReadFile) -> AttachmentContent:
    row = await _reserve(user, name, file)
    await rows.write_file(row, file.content)
    return row.as_block()


@shielded
async def discard_attachment(*, user: User, attachment_id: UUID) -> None:
    """Delete an attached file that has not been sent with a message. Raise `AttachmentNotFound` or `NotAllowed`."""
    path = await _mark_own_for_removal(user, attachment_id)
    await in_storage_thread(file_storage.remove, path)
    await run_in_db_thread(rows.delete_removed)([attachment_id])


@run_in_db_thread
def _require_room(user: User) -> None:
    owner_id = reload(user).pk
    rows.require_room(owner_id, waiting=uploads.count(owner_id))


@run_in_db_thread
def _reserve(user: User, name: str, file: ReadFile) -> Attachment:
    return rows.reserve(reload(user).pk, name, file)


@run_in_db_thread
def _mark_own_for_removal(user: User, attachment_id: UUID) -> str:
    """Mark an unsent file for deletion; return its path."""
    own = Attachment.objects.filter(pk=attachment_id, owner=reload(user).pk, conversation=None)
    if not rows.mark_for_removal(own):
        raise AttachmentNotFound
    return Attachment.objects.values_list("path", flat=True).get(pk=attachment_id)
