"""Prepares files for a chat model: copies them into the workspace, and sends them natively if the model supports them,
or else as text.
"""

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Any
from uuid import UUID

from django.db.models.functions import Length

from governance.db import run_in_query_thread
from governance.runtime import put_file
from governance.threads import run_in_thread
from turns.attachments import file_storage
from turns.attachments.rows import STORED
from turns.attachments.threads import in_storage_thread
from turns.conf import PDF
from turns.core.messages import AttachmentBlock, Block, Message, TextBlock
from turns.core.texts import ATTACHED, SHOWN
from turns.exceptions import TurnsError
from turns.models import Attachment

DIRECTORY = "attachments"  # within a workspace
MOST_BYTES = 20_000_000  # total file size per request; providers accept 32 MB of base64
MOST_FILES = 50
MOST_PAGES = 100  # total PDF pages per request; Anthropic's limit
MOST_TEXT = 400_000  # total characters of documents per request


@dataclass(slots=True)
class _Room:
    """The remaining capacity of a request."""

    files: int = field(default_factory=lambda: MOST_FILES)
    size: int = MOST_BYTES
    pages: int = field(default_factory=lambda: MOST_PAGES)
    text: int = field(default_factory=lambda: MOST_TEXT)

    def takes(self, size: int, pages: int) -> bool:
        """Reserve room for a whole file; return False if there is not enough."""
        if not self.files or size > self.size or pages > self.pages:
            return False
        self.files -= 1
        self.size -= size
        self.pages -= pages
        return True

    def cut(self, length: int) -> int:
        """Reserve room for as much text as fits; return the number of characters."""
        count = min(length, self.text)
        self.text -= count
        return count


@dataclass(slots=True, kw_only=True)
class _Share:
    """The part of a file that a request includes: all of it, or the start of its text."""

    path: str
    is_image: bool
    is_whole: bool
    length: int  # characters of the whole text
    taken: int = 0  # characters included
    text: str = ""


async def with_files(
    messages: Sequence[Message], *, media: Collection[str], workspace: Path | None
) -> Sequence[Message]:
    """Return the messages with their files in the form that the chat model receives.

    If there is not enough room for all files, the most recent ones have priority.
    """
    # `filter` runs in C, which matters because every step scans the whole history.
    with_some = list(filter(attrgetter("attachments"), messages))
    if not with_some:
        return messages
    files: dict[str, AttachmentBlock] = {}
    for message in reversed(with_some):
        for block in message.attachments:
            files.setdefault(block.attachment_id, block)
    shares = await run_in_query_thread(_shares)(files, media)
    missing = await run_in_thread(_missing, files, workspace)
    contents = {
        pk: await _give(block, shares.get(pk), workspace, is_missing=pk in missing)
        for pk, block in files.items()
    }

    def content_of(block: Block) -> tuple[Block, ...]:
        return contents[block.attachment_id] if isinstance(block, AttachmentBlock) else (block,)

    return [
        replace(message, content=tuple(chain.from_iterable(map(content_of, message.content))))
        if message.attachments
        else message
        for message in messages
    ]


def path_of(block: AttachmentBlock) -> str:
    """Return a file's path in a workspace; files of the same name have different paths."""
    return f"{DIRECTORY}/{block.attachment_id[:8]}-{block.name}"


def _shares(ids: Iterable[str], media: Collection[str]) -> dict[str, _Share]:
    """Allocate the room to the files in the given order, based on their rows; texts without room are not read (sync
    ORM).
    """
    rows = Attachment.objects.filter(pk__in=[UUID(each) for each in ids], status=STORED)
    rows_by_id = {str(row.pk): row for row in rows.defer("text").annotate(length=Length("text"))}
    room = _Room()
    shares = {each: _share(rows_by_id[each], media, room) for each in ids if each in rows_by_id}
    with_text = [each for each, share in shares.items() if share.taken]
    for pk, text in rows.filter(pk__in=with_text).values_list("pk", "text"):
        share = shares[str(pk)]
        share.text = text[: share.taken]
    return shares


def _share(row: Any, media: Collection[str], room: _Room) -> _Share:
    kind = "image" if row.is_image else "pdf" if row.media_type == PDF else ""
    # Providers reject a whole request if they cannot open one of its PDFs.
    is_whole = kind in media and row.pages != 0 and room.takes(row.size, row.pages or 0)
    characters = 0 if is_whole or row.is_image else room.cut(row.length)
    return _Share(
        path=row.path, is_image=row.is_image, is_whole=is_whole, length=row.length, taken=characters
    )


def _missing(files: Mapping[str, AttachmentBlock], workspace: Path | None) -> set[str]:
    """Return the ids of the files that the workspace does not contain yet."""
    if workspace is None:
        return set()
    return {pk for pk, block in files.items() if not os.path.lexists(workspace / path_of(block))}


async def _give(
    block: AttachmentBlock, share: _Share | None, workspace: Path | None, *, is_missing: bool
) -> tuple[Block, ...]:
    """Return the blocks for a file. Read it if needed, and copy it to the workspace if it is missing there."""
    if share is None:
        return (_header(block, "It is not there any more."),)
    content = b""
    try:
        if share.is_whole or is_missing:
            content = await in_storage_thread(file_storage.read, share.path)
        if workspace is not None and is_missing:
            await run_in_thread(put_file, workspace, path_of(block), content)
    except (OSError, TurnsError):
        return (_header(block, "It cannot be read now."),)
    place = f" In the workspace it is {path_of(block)!r}." if workspace else ""
    if share.is_whole:
        return (_header(block, f"It follows.{place}"), replace(block, content=content))
    return (_as_text(block, share, place=place),)


def _as_text(block: AttachmentBlock, share: _Share, *, place: str) -> Block:
    """Describe a file that the chat model cannot read, with as much text as fits."""
    if share.is_image:
        return _header(block, f"You cannot see it.{place}")
    if not share.length:
        return _header(block, f"Its text cannot be read here.{place}")
    if not share.text:
        return _header(block, f"There is no room for its text.{place}")
    if len(share.text) < share.length:
        begins = f"The first {len(share.text)} of {share.length} characters of its text follow."
        return _header(block, f"{begins}{place}", share.text)
    return _header(block, f"Its text follows.{place}", share.text)


def _header(block: AttachmentBlock, sentence: str, text: str = "") -> TextBlock:
    size = f", {block.width} × {block.height} pixels" if block.width else ""
    mark = f"{SHOWN} Call {block.tool_use_id}:" if block.tool_use_id else ATTACHED
    first = f"{mark} {block.name} ({block.media_type}{size}). {sentence}"
    return TextBlock(text=f"{first}\n{text}" if text else first)
