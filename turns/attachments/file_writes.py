"""Writes of files: each is stored under a row that waits for it, or it is not kept."""

from governance.db import run_in_db_thread
from turns.attachments import file_storage, rows
from turns.attachments.threads import in_storage_thread
from turns.exceptions import AttachmentNotFound
from turns.models import Attachment


async def write_file(row: Attachment, content: bytes) -> None:
    """Store the file of a reserved row. Raise `AttachmentNotFound` if the row was taken away meanwhile."""
    try:
        await in_storage_thread(file_storage.write, row.path, content)
    except Exception:
        await run_in_db_thread(rows.mark_for_removal)(Attachment.objects.filter(pk=row.pk))
        raise
    if not await run_in_db_thread(rows.settle)(row.pk):
        await in_storage_thread(file_storage.remove, row.path)
        raise AttachmentNotFound
