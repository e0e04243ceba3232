"""Reads attached files: detects the type, and opens the file in a limited worker process. All functions block.

If bubblewrap is available, the worker runs in the sandbox for commands, without network or access to the server's
files.
"""

import functools
import importlib.util
import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, Protocol

from django.utils.translation import gettext as _

from governance import CancellationToken
from governance.sanitize import sanitize_text
from governance.toolbox.sandbox import sandboxed
from turns.attachments.media_types import media_type_of
from turns.conf import IMAGE_TYPES, PDF, TEXT, app_settings
from turns.exceptions import AttachmentRejected

MEMORY = 1_500_000_000  # bytes of address space of a worker
_LEFT_OUT = "\n… the rest of the text is left out …"  # read by chat models
_WORKER = Path(__file__).with_name("file_worker.py")
_IMPORTED = ("PIL", "pypdf")


class Readable(Protocol):
    """A source of a file's bytes."""

    def read(self, size: int, /) -> bytes: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadFile:
    """A file that has been read and can be stored. Images are re-encoded; other files are unchanged, with their text
    extracted.
    """

    media_type: str
    content: bytes
    text: str = ""
    width: int | None = None
    height: int | None = None
    pages: int | None = None  # the number of pages of a PDF; 0 if it cannot be opened


def read_file(
    source: Readable, *, head: bytes = b"", token: CancellationToken | None = None
) -> ReadFile:
    """Read a person's file, whose start (`head`) has already been read. A cancel ends its worker process.

    Raises: AttachmentRejected: with a sentence about what the person can do.
    """
    content = head + source.read(app_settings.ATTACHMENT_MAX_BYTES + 1 - len(head))
    if not content:
        raise AttachmentRejected(_("The file is empty."))
    if len(content) > app_settings.ATTACHMENT_MAX_BYTES:
        raise too_large()
    media_type = media_type_of(content)
    if media_type not in app_settings.ATTACHMENT_TYPES:
        raise AttachmentRejected(
            _("This file type is not supported. Supported types: %(kinds)s. Text must be in UTF-8.")
            % {"kinds": _kinds(app_settings.ATTACHMENT_TYPES)}
        )
    if media_type == TEXT:
        text = content.decode("utf-8-sig")
        return ReadFile(media_type=TEXT, content=content, text=_cut(text))
    if media_type == PDF:
        return _read_pdf(content, token)
    facts, reencoded = _ask_worker(
        "image", content, token, max_pixels=app_settings.ATTACHMENT_MAX_PIXELS
    )
    if "refused" in facts:
        raise _refused(facts["refused"])
    return ReadFile(content=reencoded, **facts)


def read_image(content: bytes, *, token: CancellationToken | None = None) -> ReadFile:
    """Read a tool's image. Raise `AttachmentRejected` for anything that is not a supported image, including SVG."""
    if not media_type_of(content).startswith("image/"):
        kinds = [name for name in app_settings.ATTACHMENT_TYPES if name in IMAGE_TYPES]
        raise AttachmentRejected(f"It is none of these: {_kinds(kinds) or 'nothing is taken'}.")
    return read_file(BytesIO(content), token=token)


def too_large() -> AttachmentRejected:
    megabytes = app_settings.ATTACHMENT_MAX_BYTES / 1_000_000
    return AttachmentRejected(
        _("The file is too large. The limit is %(limit)s MB.") % {"limit": f"{megabytes:g}"}
    )


def _kinds(media_types: Iterable[str]) -> str:
    return ", ".join(
        "TXT" if name == TEXT else name.rpartition("/")[2].upper() for name in media_types
    )


def _read_pdf(content: bytes, token: CancellationToken | None) -> ReadFile:
    """Read a PDF. If no library can open it, the number of pages stays unknown, but a chat model may still read the
    file.
    """
    facts, text = _ask_worker(
        "pdf", content, token, max_characters=app_settings.ATTACHMENT_TEXT_LENGTH
    )
    is_unreadable = facts.get("refused") in ("encrypted", "unreadable")
    return ReadFile(
        media_type=PDF,
        content=content,
        text=_cut(text.decode("utf-8", "replace")),
        pages=0 if is_unreadable else facts.get("pages"),
    )


def _cut(text: str) -> str:
    limit = app_settings.ATTACHMENT_TEXT_LENGTH
    start = sanitize_text(text, limit=limit)
    return start if len(text) <= limit else f"{start}{_LEFT_OUT}"


def _ask_worker(
    kind: str, content: bytes, token: CancellationToken | None, **limits: int
) -> tuple[dict[str, Any], bytes]:
    """Open the file in a worker process, which has no secrets, limited time and memory, and cannot write files."""
    seconds = app_settings.ATTACHMENT_TIMEOUT
    task = {"kind": kind, "seconds": math.ceil(seconds), "memory": MEMORY, **limits}
    libraries = _libraries()
    # Use the interpreter outside the virtual environment, because that may be in a private directory.
    python = os.path.realpath(sys.executable)
    command = sandboxed(
        (python, "-P", "-B", str(_WORKER), json.dumps(task)),
        readable=(sys.base_prefix, *libraries, str(_WORKER)),
    )
    with subprocess.Popen(  # noqa: S603 - our own program, under our own interpreter
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={"PYTHONPATH": os.pathsep.join(libraries), "LC_ALL": "C.UTF-8"},
        cwd="/",
        start_new_session=True,
    ) as process:
        forget = token.on_cancel(lambda _: _end(process)) if token is not None else None
        try:
            output, _errors = process.communicate(content, timeout=seconds)
        except subprocess.TimeoutExpired:
            _end(process)
            return {"refused": "too_slow"}, b""
        finally:
            if forget is not None:
                forget()
    line, _newline, data = output.partition(b"\n")
    facts = json.loads(line) if process.returncode == 0 and line else {"refused": "unreadable"}
    return facts, data


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Kill the worker and its sandbox, which may not have started completely."""
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


@functools.cache
def _libraries() -> tuple[str, ...]:
    """Return the directories of the libraries that the worker imports. It cannot read others, because those of the
    project may contain secrets.
    """
    specs = [importlib.util.find_spec(name) for name in _IMPORTED]
    origins = [spec.origin for spec in specs if spec is not None and spec.origin]
    return tuple(dict.fromkeys(str(Path(origin).parents[1]) for origin in origins))


def _refused(code: str) -> AttachmentRejected:
    match code:
        case "too_many_pixels":
            millions = app_settings.ATTACHMENT_MAX_PIXELS / 1_000_000
            sentence = _("The image is too large. The limit is %(limit)s million pixels.") % {
                "limit": f"{millions:g}"
            }
        case "too_slow":
            sentence = _("Reading this file takes too long. Try a smaller one.")
        case "not_installed":
            sentence = _(
                "This site cannot read such files. An administrator can install the “files” extra."
            )
        case _:
            sentence = _("The file cannot be read. It is damaged or not of the expected type.")
    return AttachmentRejected(sentence)
