"""The rows of attachments and their files: quotas, assignment to messages, removal.

All functions except `write_file` use the synchronous ORM.
"""

import logging
from collections.abc import Collection, Sequence
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID

from django.contrib.auth import get_user_model
from django.db.models import Q, QuerySet, Sum
from django.utils.translation import gettext as _

from governance.db import atomic, on_commit, run_in_db_thread
from governance.db_clock import database_now
from turns.attachments import file_storage
from turns.attachments.file_parsing import ReadFile
from turns.attachments.media_types import clean_name
from turns.attachments.threads import in_storage_thread
from turns.conf import app_settings
from turns.core.wire import AttachmentContent
from turns.exceptions import AttachmentNotFound, AttachmentRejected
from turns.models import Attachment, Turn

logger = logging.getLogger(__name__)

STORING, STORED, REMOVING = "storing", "stored", "removing"
UNCLAIMED_FOR = timedelta(days=1)  # the time after which an unsent file is removed
BATCH_SIZE = 500  # files to remove per run
MOST_UNCLAIMED = 100  # unsent files per user


def require_room(owner_id: Any, *, waiting: int) -> None:
    """Raise `AttachmentRejected` if a user has no room for another file. `waiting` is the number of files that have not
    been stored yet.
    """
    own = Attachment.objects.filter(owner=owner_id)
    _check_room(own, size=1, waiting=waiting)


def reserve(owner_id: Any, name: str, file: ReadFile, *, turn: Turn | None = None) -> Attachment:
    """Create the row of a file before it is stored. Raise `AttachmentRejected` if its owner has no room left.

    A file shown by a tool call belongs to its turn from the start.
    """
    with atomic():
        get_user_model()._default_manager.select_for_update().get(pk=owner_id)
        own = Attachment.objects.filter(owner=owner_id)
        _check_room(own, size=len(file.content), waiting=None if turn is not None else 0)
        return Attachment.objects.create(
            owner_id=owner_id,
            turn=turn,
            conversation_id=None if turn is None else turn.conversation_id,
            name=clean_name(name),
            media_type=file.media_type,
            size=len(file.content),
            width=file.width,
            height=file.height,
            pages=file.pages,
            text=file.text,
            path=file_storage.new_path(),
        )


def _check_room(own: "QuerySet[Attachment]", *, size: int, waiting: int | None) -> None:
    """Raise `AttachmentRejected` if a quota is used up. `waiting` is the number of files that have not been stored yet;
    None means that the new file is not an unsent one.
    """
    total = own.aggregate(total=Sum("size"))["total"] or 0
    if total + size > app_settings.ATTACHMENT_QUOTA:
        raise AttachmentRejected(
            _("Your files use all available space. Delete conversations with files.")
        )
    if waiting is not None and own.filter(conversation=None).count() + waiting >= MOST_UNCLAIMED:
        raise AttachmentRejected(_("You have too many unsent files. Send or remove some."))


def settle(attachment_id: UUID) -> bool:
    """Mark a file as stored; return False if its row is no longer reserved."""
    waiting = Attachment.objects.filter(pk=attachment_id, status=STORING)
    return waiting.update(status=STORED) == 1


async def write_file(row: Attachment, content: bytes) -> None:
    """Store the file of a reserved row. Raise `AttachmentNotFound` if the row was removed in the meantime."""
    try:
        await in_storage_thread(file_storage.write, row.path, content)
    except Exception:
        await run_in_db_thread(mark_for_removal)(Attachment.objects.filter(pk=row.pk))
        raise
    if not await run_in_db_thread(settle)(row.pk):
        await in_storage_thread(file_storage.remove, row.path)
        raise AttachmentNotFound


def claim(attachment_ids: Sequence[UUID], *, turn: Turn, owner_id: Any) -> list[AttachmentContent]:
    """Assign files to the message of a turn, in the transaction that stores it; return their blocks.

    Files of the same conversation may be assigned again, because an edited message keeps its files.

    Raises:
        AttachmentNotFound: a file does not exist, or belongs to another user or conversation.
        AttachmentRejected: there are too many files.
    """
    if not attachment_ids:
        return []
    ids = list(dict.fromkeys(attachment_ids))
    if len(ids) > app_settings.ATTACHMENTS_PER_MESSAGE:
        raise AttachmentRejected(
            _("Too many files. The limit is %(limit)d per message.")
            % {"limit": app_settings.ATTACHMENTS_PER_MESSAGE}
        )
    is_assignable = Q(conversation=None) | Q(conversation=turn.conversation_id)
    files = Attachment.objects.filter(is_assignable, pk__in=ids, owner=owner_id, status=STORED)
    if files.update(conversation=turn.conversation_id, turn=turn.pk) != len(ids):
        raise AttachmentNotFound
    rows = Attachment.objects.defer("text").in_bulk(ids)
    return [rows[pk].as_block() for pk in ids]


def orphans() -> "QuerySet[Attachment]":
    """Return files that were not sent in time, and incomplete uploads."""
    return Attachment.objects.filter(
        conversation=None, created_at__lt=database_now() - UNCLAIMED_FOR
    )


def mark_for_removal(files: "QuerySet[Attachment]") -> int:
    """Hide files and schedule them for removal. Return their number."""
    return files.exclude(status=REMOVING).update(status=REMOVING)


def marked_for_removal(*, after: UUID | None = None) -> list[tuple[UUID, str]]:
    """Return the ids and paths of the next files to remove, after the given id.

    Without a configured storage, they stay marked.
    """
    if not file_storage.is_configured():
        return []
    rows = Attachment.objects.filter(status=REMOVING).order_by("pk")
    if after is not None:
        rows = rows.filter(pk__gt=after)
    return list(rows.values_list("pk", "path")[:BATCH_SIZE])


def has_marked(conversation_ids: Collection[UUID]) -> bool:
    """Return whether files of these conversations are still to be removed."""
    own = Attachment.objects.filter(conversation__in=conversation_ids, status=REMOVING)
    return file_storage.is_configured() and own.exists()


def delete_removed(attachment_ids: Collection[UUID]) -> None:
    files = Attachment.objects.filter(pk__in=attachment_ids, status=REMOVING)
    files.update(path="")  # so that `follow_row` does not remove them again
    files.delete()


def sweep() -> int:
    """Remove marked files; return their number. Files that the storage fails to remove stay marked for the next run."""
    removed, refusals = 0, Refusals()
    last: UUID | None = None
    while files := marked_for_removal(after=last):
        for last, path in files:
            if not refusals.remove(path):
                continue
            delete_removed([last])
            removed += 1
    refusals.log()
    return removed


class Refusals:
    """The files that the storage failed to remove in one run, logged together."""

    def __init__(self) -> None:
        self._count = 0
        self._first: Exception | None = None

    def remove(self, path: str) -> bool:
        """Remove a file from the storage; return whether it is gone."""
        try:
            file_storage.remove(path)
        except Exception as error:  # noqa: BLE001 - any storage backend; it is logged with the others
            self._count += 1
            self._first = self._first or error
            return False
        return True

    def log(self) -> None:
        if self._first is not None:
            logger.error(
                "Files are left in the storage", extra={"files": self._count}, exc_info=self._first
            )


def follow_row(*, instance: Attachment, **_signal: Any) -> None:
    """Remove the file after its row was deleted with its user or conversation (signal `post_delete`)."""
    if instance.path:
        on_commit(partial(_remove, instance.path))


def _remove(path: str) -> None:
    try:
        file_storage.remove(path)
    except Exception:
        logger.exception("A file is left behind in the storage", extra={"path": path})
