"""Files for a chat model. Each is put into the workspace, and given as the model can take it, else as text."""

import asyncio
import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from uuid import UUID

from governance.db import run_in_query_thread
from governance.runtime import put_file
from turns.attachments import file_storage
from turns.attachments.rows import STORED
from turns.conf import PDF
from turns.core.messages import AttachmentBlock, Block, Message, TextBlock
from turns.core.prompt_markers import ATTACHED, SHOWN
from turns.exceptions import TurnsError
from turns.models import Attachment

DIRECTORY = "attachments"  # of a workspace
MOST_BYTES = 20_000_000  # of files in one request; providers take 32 MB, as base64
MOST_FILES = 50
MOST_TEXT = 400_000  # characters of documents in one request


@dataclass(slots=True)
class _Room:
    """What a request still has room for."""

    files: int = field(default_factory=lambda: MOST_FILES)
    size: int = MOST_BYTES
    text: int = MOST_TEXT

    def takes(self, content: bytes) -> bool:
        if not self.files or len(content) > self.size:
            return False
        self.files -= 1
        self.size -= len(content)
        return True

    def cut(self, text: str) -> str:
        """Take as much of a text as there is room for."""
        taken = text[: self.text]
        self.text -= len(taken)
        return taken


async def with_files(
    messages: Sequence[Message], *, media: Collection[str], workspace: Path | None
) -> Sequence[Message]:
    """Return the messages with their files, as a chat model gets them. The latest files go first where room is short."""
    blocks = [block for message in reversed(messages) for block in message.attachments]
    if not blocks:
        return messages
    rows = await run_in_query_thread(_rows)({block.attachment_id for block in blocks})
    given = await asyncio.to_thread(_give, blocks, rows, media, workspace)
    return [
        replace(message, content=tuple(chain.from_iterable(given(b) for b in message.content)))
        if message.attachments
        else message
        for message in messages
    ]


def path_of(block: AttachmentBlock) -> str:
    """Return where a file is in a workspace: two of one name have two places."""
    return f"{DIRECTORY}/{block.attachment_id[:8]}-{block.name}"


def _rows(ids: Collection[str]) -> dict[str, Attachment]:
    rows = Attachment.objects.filter(pk__in=[UUID(each) for each in ids], status=STORED)
    return {str(row.pk): row for row in rows}


class _Given:
    """What each block becomes."""

    def __init__(self) -> None:
        self.blocks: dict[str, tuple[Block, ...]] = {}

    def __call__(self, block: Block) -> tuple[Block, ...]:
        return self.blocks[block.attachment_id] if isinstance(block, AttachmentBlock) else (block,)


def _give(
    blocks: Sequence[AttachmentBlock],
    rows: dict[str, Attachment],
    media: Collection[str],
    workspace: Path | None,
) -> _Given:
    """Read the files, and put those into the workspace that are not there yet. Blocks."""
    given, room = _Given(), _Room()
    for block in blocks:
        if block.attachment_id in given.blocks:
            continue
        row = rows.get(block.attachment_id)
        try:
            parts = (
                (_header(block, "It is not there any more."),)
                if row is None
                else _parts(block, row, media=media, workspace=workspace, room=room)
            )
        except (OSError, TurnsError):
            parts = (_header(block, "It cannot be read now."),)
        given.blocks[block.attachment_id] = parts
    return given


def _parts(
    block: AttachmentBlock,
    row: Attachment,
    *,
    media: Collection[str],
    workspace: Path | None,
    room: _Room,
) -> tuple[Block, ...]:
    is_seen = ("image" if row.is_image else "pdf" if row.media_type == PDF else "") in media
    content = _copy_to_workspace(block, row, workspace=workspace, is_read=is_seen)
    place = f" In the workspace it is {path_of(block)!r}." if workspace else ""
    if is_seen and room.takes(content):
        return (_header(block, f"It follows.{place}"), replace(block, content=content))
    return (_as_text(block, row, place=place, room=room),)


def _copy_to_workspace(
    block: AttachmentBlock, row: Attachment, *, workspace: Path | None, is_read: bool
) -> bytes:
    """Put a file into the workspace unless it is there; return its content if that was read."""
    is_placed = workspace is None or os.path.lexists(workspace / path_of(block))
    content = file_storage.read(row.path) if is_read or not is_placed else b""
    if workspace is not None and not is_placed:
        put_file(workspace, path_of(block), content)
    return content


def _as_text(block: AttachmentBlock, row: Attachment, *, place: str, room: _Room) -> Block:
    """Return what is said of a file that a chat model cannot see, with as much text as fits."""
    if row.is_image:
        return _header(block, f"You cannot see it.{place}")
    text = room.cut(row.text)
    if not row.text:
        return _header(block, f"Its text cannot be read here.{place}")
    if not text:
        return _header(block, f"There is no room for its text.{place}")
    if len(text) < len(row.text):
        begins = f"The first {len(text)} of {len(row.text)} characters of its text follow."
        return _header(block, f"{begins}{place}", text)
    return _header(block, f"Its text follows.{place}", text)


def _header(block: AttachmentBlock, sentence: str, text: str = "") -> TextBlock:
    size = f", {block.width} × {block.height} pixels" if block.width else ""
    mark = f"{SHOWN} Call {block.tool_use_id}:" if block.tool_use_id else ATTACHED
    first = f"{mark} {block.name} ({block.media_type}{size}). {sentence}"
    return TextBlock(text=f"{first}\n{text}" if text else first)
