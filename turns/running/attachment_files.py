"""Files for a chat model. Each is put into the workspace, and given as the model can take it, else as text."""

import asyncio
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
from turns.attachments import file_storage
from turns.attachments.rows import STORED
from turns.attachments.threads import in_storage_thread
from turns.conf import PDF
from turns.core.messages import AttachmentBlock, Block, Message, TextBlock
from turns.core.prompt_markers import ATTACHED, SHOWN
from turns.exceptions import TurnsError
from turns.models import Attachment

DIRECTORY = "attachments"  # of a workspace
MOST_BYTES = 20_000_000  # of files in one request; providers take 32 MB, as base64
MOST_FILES = 50
MOST_PAGES = 100  # of PDF files in one request: Anthropic takes no more
MOST_TEXT = 400_000  # characters of documents in one request


@dataclass(slots=True)
class _Room:
    """What a request still has room for."""

    files: int = field(default_factory=lambda: MOST_FILES)
    size: int = MOST_BYTES
    pages: int = field(default_factory=lambda: MOST_PAGES)
    text: int = field(default_factory=lambda: MOST_TEXT)

    def takes(self, size: int, pages: int) -> bool:
        """Take a file if there is room for all of it."""
        if not self.files or size > self.size or pages > self.pages:
            return False
        self.files -= 1
        self.size -= size
        self.pages -= pages
        return True

    def cut(self, length: int) -> int:
        """Take as much of a text as there is room for; return how many characters."""
        taken = min(length, self.text)
        self.text -= taken
        return taken


@dataclass(slots=True, kw_only=True)
class _Share:
    """What of a file has room in a request: all of it, or the beginning of its text."""

    path: str
    is_image: bool
    is_whole: bool
    length: int  # of all its text
    taken: int = 0  # characters of it
    text: str = ""


async def with_files(
    messages: Sequence[Message], *, media: Collection[str], workspace: Path | None
) -> Sequence[Message]:
    """Return the messages with their files, as a chat model gets them. The latest files go first where room is short."""
    # Each step asks this of the whole history, so it is not a loop of Python.
    with_some = list(filter(attrgetter("attachments"), messages))
    if not with_some:
        return messages
    files: dict[str, AttachmentBlock] = {}
    for message in reversed(with_some):
        for block in message.attachments:
            files.setdefault(block.attachment_id, block)
    shares = await run_in_query_thread(_shares)(files, media)
    missing = await asyncio.to_thread(_missing, files, workspace)
    given = _Given()
    for pk, block in files.items():
        given.blocks[pk] = await _give(block, shares.get(pk), workspace, is_missing=pk in missing)
    return [
        replace(message, content=tuple(chain.from_iterable(given(b) for b in message.content)))
        if message.attachments
        else message
        for message in messages
    ]


def path_of(block: AttachmentBlock) -> str:
    """Return where a file is in a workspace: two of one name have two places."""
    return f"{DIRECTORY}/{block.attachment_id[:8]}-{block.name}"


def _shares(ids: Iterable[str], media: Collection[str]) -> dict[str, _Share]:
    """Share the room out in this order, by what the rows say; read no text that has none (sync ORM)."""
    rows = Attachment.objects.filter(pk__in=[UUID(each) for each in ids], status=STORED)
    found = {str(row.pk): row for row in rows.defer("text").annotate(length=Length("text"))}
    room = _Room()
    shares = {each: _share(found[each], media, room) for each in ids if each in found}
    with_text = [each for each, share in shares.items() if share.taken]
    for pk, text in rows.filter(pk__in=with_text).values_list("pk", "text"):
        share = shares[str(pk)]
        share.text = text[: share.taken]
    return shares


def _share(row: Any, media: Collection[str], room: _Room) -> _Share:
    kind = "image" if row.is_image else "pdf" if row.media_type == PDF else ""
    # A provider refuses each request with a PDF that it cannot open.
    is_whole = kind in media and row.pages != 0 and room.takes(row.size, row.pages or 0)
    taken = 0 if is_whole or row.is_image else room.cut(row.length)
    return _Share(
        path=row.path, is_image=row.is_image, is_whole=is_whole, length=row.length, taken=taken
    )


class _Given:
    """What each block becomes."""

    def __init__(self) -> None:
        self.blocks: dict[str, tuple[Block, ...]] = {}

    def __call__(self, block: Block) -> tuple[Block, ...]:
        return self.blocks[block.attachment_id] if isinstance(block, AttachmentBlock) else (block,)


def _missing(files: Mapping[str, AttachmentBlock], workspace: Path | None) -> set[str]:
    """Return which files the workspace does not have yet."""
    if workspace is None:
        return set()
    return {pk for pk, block in files.items() if not os.path.lexists(workspace / path_of(block))}


async def _give(
    block: AttachmentBlock, share: _Share | None, workspace: Path | None, *, is_missing: bool
) -> tuple[Block, ...]:
    """Read a file if that is needed, and put it into the workspace if it is missing there."""
    if share is None:
        return (_header(block, "It is not there any more."),)
    content = b""
    try:
        if share.is_whole or is_missing:
            content = await in_storage_thread(file_storage.read, share.path)
        if workspace is not None and is_missing:
            await asyncio.to_thread(put_file, workspace, path_of(block), content)
    except (OSError, TurnsError):
        return (_header(block, "It cannot be read now."),)
    place = f" In the workspace it is {path_of(block)!r}." if workspace else ""
    if share.is_whole:
        return (_header(block, f"It follows.{place}"), replace(block, content=content))
    return (_as_text(block, share, place=place),)


def _as_text(block: AttachmentBlock, share: _Share, *, place: str) -> Block:
    """Return what is said of a file that a chat model cannot see, with as much text as fits."""
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
