"""The rows of attachments: how many one may have, which message claims them, what is removed (sync ORM)."""

import logging
from collections.abc import Collection, Sequence
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID

from django.contrib.auth import get_user_model
from django.db import transaction
from django.db.models import Q, QuerySet, Sum
from django.utils.translation import gettext as _

from governance.db_clock import database_now
from turns.attachments import file_storage
from turns.attachments.file_parsing import ReadFile
from turns.attachments.media_types import clean_name
from turns.conf import app_settings
from turns.core.wire import AttachmentContent
from turns.exceptions import AttachmentNotFound, AttachmentRejected
from turns.models import Attachment, Turn

logger = logging.getLogger(__name__)

STORING, STORED, REMOVING = "storing", "stored", "removing"
UNCLAIMED_FOR = timedelta(days=1)  # so long a file waits for its message
AT_ONCE = 500  # files to remove that one look finds
MOST_UNCLAIMED = 100  # files of one user that no message has claimed


def reserve(owner_id: Any, name: str, file: ReadFile, *, turn: Turn | None = None) -> Attachment:
    """Make the row of a file that is stored next. Raise `AttachmentRejected` where its owner has no room.

    A file that a call of a turn shows is that turn's from the beginning.
    """
    with transaction.atomic():
        get_user_model()._default_manager.select_for_update().get(pk=owner_id)
        own = Attachment.objects.filter(owner=owner_id)
        used = own.aggregate(total=Sum("size"))["total"] or 0
        if used + len(file.content) > app_settings.ATTACHMENT_QUOTA:
            raise AttachmentRejected(
                _("Your files take all the room that you have. Delete conversations with files.")
            )
        if turn is None and own.filter(conversation=None).count() >= MOST_UNCLAIMED:
            raise AttachmentRejected(_("Too many files wait to be sent. Send or remove some."))
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


def settle(attachment_id: UUID) -> bool:
    """Note that a file is stored; return whether its row still waits for it."""
    waiting = Attachment.objects.filter(pk=attachment_id, status=STORING)
    return waiting.update(status=STORED) == 1


def claim(attachment_ids: Sequence[UUID], *, turn: Turn, owner_id: Any) -> list[AttachmentContent]:
    """Give files to the message of a turn, in the transaction that stores it; return their blocks.

    A file that the conversation has already may be given again: a message that is edited keeps its files.

    Raises:
        AttachmentNotFound: one is not there, or is not this user's, or is another conversation's.
        AttachmentRejected: there are too many.
    """
    if not attachment_ids:
        return []
    wanted = list(dict.fromkeys(attachment_ids))
    if len(wanted) > app_settings.ATTACHMENTS_PER_MESSAGE:
        raise AttachmentRejected(
            _("Too many files: at most %(limit)d with one message.")
            % {"limit": app_settings.ATTACHMENTS_PER_MESSAGE}
        )
    free = Q(conversation=None) | Q(conversation=turn.conversation_id)
    found = Attachment.objects.filter(free, pk__in=wanted, owner=owner_id, status=STORED)
    if found.update(conversation=turn.conversation_id, turn=turn.pk) != len(wanted):
        raise AttachmentNotFound
    rows = Attachment.objects.defer("text").in_bulk(wanted)
    return [rows[pk].as_block() for pk in wanted]


def orphans() -> "QuerySet[Attachment]":
    """Return the files that no message has claimed in time, and those whose upload did not come to its end."""
    return Attachment.objects.filter(
        conversation=None, created_at__lt=database_now() - UNCLAIMED_FOR
    )


def mark_for_removal(found: "QuerySet[Attachment]") -> int:
    """Take files away from everybody; they are removed next. Return how many there were."""
    return found.exclude(status=REMOVING).update(status=REMOVING)


def marked_for_removal(*, behind: UUID | None = None) -> list[tuple[UUID, str]]:
    """Return the ids and the paths of the next files that are to be removed, those behind an id.

    They wait where no storage is set any more.
    """
    if not file_storage.is_configured():
        return []
    rows = Attachment.objects.filter(status=REMOVING).order_by("pk")
    if behind is not None:
        rows = rows.filter(pk__gt=behind)
    return list(rows.values_list("pk", "path")[:AT_ONCE])


def has_marked(conversation_ids: Collection[UUID]) -> bool:
    """Return whether files of conversations are still to be removed."""
    own = Attachment.objects.filter(conversation__in=conversation_ids, status=REMOVING)
    return file_storage.is_configured() and own.exists()


def delete_removed(attachment_ids: Collection[UUID]) -> None:
    gone = Attachment.objects.filter(pk__in=attachment_ids, status=REMOVING)
    gone.update(path="")
    gone.delete()


def sweep() -> int:
    """Remove what is marked; return how much. What the storage refuses to remove stays marked, for the next time."""
    removed, refusals = 0, Refusals()
    last: UUID | None = None
    while found := marked_for_removal(behind=last):
        for last, path in found:
            if not refusals.remove(path):
                continue
            delete_removed([last])
            removed += 1
    refusals.log()
    return removed


class Refusals:
    """What the storage refuses to remove in one look at it: counted, and logged together."""

    def __init__(self) -> None:
        self._count = 0
        self._first: Exception | None = None

    def remove(self, path: str) -> bool:
        """Remove a file from the storage; return whether it is gone."""
        try:
            file_storage.remove(path)
        except Exception as refusal:  # noqa: BLE001 - any storage of Django's; it is logged with the others
            self._count += 1
            self._first = self._first or refusal
            return False
        return True

    def log(self) -> None:
        if self._first is not None:
            logger.error(
                "Files are left in the storage", extra={"files": self._count}, exc_info=self._first
            )


def follow_row(*, instance: Attachment, **_signal: Any) -> None:
    """Remove the file of a row that was deleted with its user or its conversation, as the signal `post_delete` tells."""
    if instance.path:
        transaction.on_commit(partial(_remove, instance.path))


def _remove(path: str) -> None:
    try:
        file_storage.remove(path)
    except Exception:
        logger.exception("A file is left behind in the storage", extra={"path": path})
