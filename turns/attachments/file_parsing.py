"""Reads what people attach: tells its type, and lets a bounded worker process open it. Blocks."""

import json
import math
import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, Protocol

from django.utils.translation import gettext as _

from governance.sanitize import sanitize_text
from turns.attachments.media_types import media_type_of
from turns.conf import IMAGE_TYPES, PDF, TEXT, app_settings
from turns.exceptions import AttachmentRejected

MEMORY = 1_500_000_000  # bytes of address space of a worker
_LEFT_OUT = "\n… the rest of the text is left out …"  # chat models read it
_WORKER = Path(__file__).with_name("file_worker.py")


class Readable(Protocol):
    """Where the bytes of a file come from."""

    def read(self, size: int, /) -> bytes: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadFile:
    """A file as it is stored. An image is redrawn; other files stay as they are, with their text."""

    media_type: str
    content: bytes
    text: str = ""
    width: int | None = None
    height: int | None = None
    pages: int | None = None  # of a PDF; 0 = it cannot be opened


def read_file(source: Readable) -> ReadFile:
    """Read a file of a person. Raise `AttachmentRejected`, with a sentence that says what can be done."""
    content = source.read(app_settings.ATTACHMENT_MAX_BYTES + 1)
    if not content:
        raise AttachmentRejected(_("The file is empty."))
    if len(content) > app_settings.ATTACHMENT_MAX_BYTES:
        raise too_large()
    media_type = media_type_of(content)
    if media_type not in app_settings.ATTACHMENT_TYPES:
        raise _unknown_type()
    if media_type == TEXT:
        text = content.decode("utf-8-sig")
        return ReadFile(media_type=TEXT, content=content, text=_cut(text))
    if media_type == PDF:
        return _read_pdf(content)
    facts, painted = _ask_worker("image", content, max_pixels=app_settings.ATTACHMENT_MAX_PIXELS)
    if "refused" in facts:
        raise _refused(facts["refused"])
    return ReadFile(content=painted, **facts)


def read_image(content: bytes) -> ReadFile:
    """Read an image that a tool has. Raise `AttachmentRejected` for whatever else the bytes are, a drawing too (SVG)."""
    if not media_type_of(content).startswith("image/"):
        kinds = [name for name in app_settings.ATTACHMENT_TYPES if name in IMAGE_TYPES]
        raise AttachmentRejected(f"It is none of these: {_kinds(kinds) or 'nothing is taken'}.")
    return read_file(BytesIO(content))


def too_large() -> AttachmentRejected:
    megabytes = app_settings.ATTACHMENT_MAX_BYTES / 1_000_000
    return AttachmentRejected(
        _("The file is too large: at most %(limit)s MB.") % {"limit": f"{megabytes:g}"}
    )


def _unknown_type() -> AttachmentRejected:
    return AttachmentRejected(
        _("Files of this type are not taken. These are: %(kinds)s. A text has to be in UTF-8.")
        % {"kinds": _kinds(app_settings.ATTACHMENT_TYPES)}
    )


def _kinds(media_types: Iterable[str]) -> str:
    return ", ".join(
        "TXT" if name == TEXT else name.rpartition("/")[2].upper() for name in media_types
    )


def _read_pdf(content: bytes) -> ReadFile:
    """A PDF with what was found in it. Its pages stay unknown where nothing here could look: a chat model still may."""
    facts, text = _ask_worker("pdf", content, max_characters=app_settings.ATTACHMENT_TEXT_LENGTH)
    is_closed = facts.get("refused") in ("encrypted", "unreadable")
    return ReadFile(
        media_type=PDF,
        content=content,
        text=_cut(text.decode("utf-8", "replace")),
        pages=0 if is_closed else facts.get("pages"),
    )


def _cut(text: str) -> str:
    limit = app_settings.ATTACHMENT_TEXT_LENGTH
    kept = sanitize_text(text, limit=limit)
    return kept if len(text) <= limit else f"{kept}{_LEFT_OUT}"


def _ask_worker(kind: str, content: bytes, **asked: int) -> tuple[dict[str, Any], bytes]:
    """Let a worker process open the file: it has no secrets, little time, little memory, and may write no file."""
    seconds = app_settings.ATTACHMENT_TIMEOUT
    wanted = {"kind": kind, "seconds": math.ceil(seconds), "memory": MEMORY, **asked}
    try:
        ended = subprocess.run(  # noqa: S603 - our own program, under our own interpreter
            [sys.executable, "-P", "-B", str(_WORKER), json.dumps(wanted)],
            input=content,
            capture_output=True,
            timeout=seconds,
            env={"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "LC_ALL": "C.UTF-8"},
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"refused": "too_slow"}, b""
    line, _newline, data = ended.stdout.partition(b"\n")
    facts = json.loads(line) if ended.returncode == 0 and line else {"refused": "unreadable"}
    return facts, data


def _refused(code: str) -> AttachmentRejected:
    match code:
        case "too_many_pixels":
            millions = app_settings.ATTACHMENT_MAX_PIXELS / 1_000_000
            sentence = _("The image is too large: at most %(limit)s million pixels.") % {
                "limit": f"{millions:g}"
            }
        case "too_slow":
            sentence = _("It takes too long to read this file. Try a smaller one.")
        case "not_installed":
            sentence = _(
                "This site cannot read such files. An administrator can install the extra “files”."
            )
        case _:
            sentence = _("The file cannot be read: it is damaged, or not what it seems to be.")
    return AttachmentRejected(sentence)
