"""Images that calls show. Each is read like a file of a person, and belongs to the turn and to the conversation's owner."""

from django.db import transaction
from django.utils import translation

from governance import ImageRefused, ResultImage
from governance.db import run_in_db_thread
from turns.attachments import rows
from turns.attachments.file_parsing import ReadFile, read_image
from turns.attachments.file_writes import write_file
from turns.attachments.media_types import saved_name
from turns.attachments.threads import in_parsing_thread
from turns.core.exceptions import Fenced
from turns.core.ports import ClaimedTurn
from turns.exceptions import AttachmentNotFound, AttachmentRejected
from turns.models import Attachment
from turns.processes.background import shielded
from turns.storage.turn_lock import lock_live_turn


async def keep_image(turn: ClaimedTurn, content: bytes, *, name: str) -> ResultImage:
    """Read and store an image. Raise `ImageRefused`, in English: it is the chat model that reads why."""
    with translation.override("en"):
        try:
            return await _keep(turn, content, name)
        except (AttachmentNotFound, AttachmentRejected) as rejected:
            raise ImageRefused(str(rejected)) from None


@shielded
async def _keep(turn: ClaimedTurn, content: bytes, name: str) -> ResultImage:
    file = await in_parsing_thread(read_image, content)
    row = await _reserve(turn, saved_name(name, file.media_type), file)
    await write_file(row, file.content)
    return ResultImage(
        id=str(row.pk),
        name=row.name,
        media_type=row.media_type,
        size=row.size,
        width=row.width or 0,
        height=row.height or 0,
    )


@run_in_db_thread
def _reserve(turn: ClaimedTurn, name: str, file: ReadFile) -> Attachment:
    with transaction.atomic():
        row = lock_live_turn(turn.id, epoch=turn.epoch)
        if row is None:
            raise Fenced(f"turn {turn.id} is not ours any more")
        return rows.reserve(row.conversation.owner_id, name, file, turn=row)
