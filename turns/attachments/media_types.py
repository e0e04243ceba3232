"""Detects a file's type from its first bytes, never from its name, and makes names safe to show and save."""

import unicodedata
from pathlib import PurePosixPath

from turns.conf import PDF, TEXT

HEAD_LENGTH = 16  # bytes needed to detect an image or a PDF
NAME_LENGTH = 150
NAME_BYTES = 200  # maximum in a workspace; file systems allow 255, including the id before it
_SUFFIXES = {
    "image/png": (".png",),
    "image/jpeg": (".jpg", ".jpeg"),
    "image/gif": (".gif",),
    "image/webp": (".webp",),
    PDF: (".pdf",),
    # Neither browsers nor desktops execute files with these extensions.
    TEXT: tuple(
        f".{name}"
        for name in [
            "txt",
            "md",
            "csv",
            "tsv",
            "json",
            "jsonl",
            "log",
            "yaml",
            "yml",
            "toml",
            "ini",
            "cfg",
            "rst",
            "tex",
            "sql",
            "css",
            "diff",
            "patch",
            "py",
            "c",
            "h",
            "cpp",
            "java",
            "rs",
            "go",
            "rb",
            "ts",
        ]
    ),
}
_BOM = b"\xef\xbb\xbf"
_CONTROLS = bytes(set(range(32)) - set(b"\t\n\r\f\x1b")) + b"\x7f"


def media_type_of(content: bytes) -> str:
    """Return the media type of a file; empty if it is unknown."""
    if content.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if content.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if content.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "image/webp"
    if content.startswith(b"%PDF-"):
        return PDF
    return TEXT if _is_text(content) else ""


def is_text_or_unknown(head: bytes) -> bool:
    """Return whether a file needs no worker process, because it is text or of an unsupported type."""
    return media_type_of(head) in ("", TEXT)


def clean_name(name: str) -> str:
    """Return a file's name without directories and invisible characters, with its extension."""
    base = PurePosixPath(name.replace("\\", "/")).name
    visible = "".join(c for c in base if not unicodedata.category(c).startswith("C"))
    path = PurePosixPath(" ".join(visible.split()).strip(". ") or "file")
    suffix = _begin(path.suffix[:20], NAME_BYTES // 2)
    stem = path.stem[: NAME_LENGTH - len(suffix)]
    return _begin(stem, NAME_BYTES - len(suffix.encode())) + suffix


def saved_name(name: str, media_type: str) -> str:
    """Return the name under which a browser saves a file, with the extension of its type so that it is not executed."""
    suffixes = _SUFFIXES[media_type]
    return name if name.lower().endswith(suffixes) else name + suffixes[0]


def _begin(text: str, size: int) -> str:
    """Return the longest prefix of a string that fits into this number of bytes."""
    return text.encode()[:size].decode("utf-8", "ignore")


def _is_text(content: bytes) -> bool:
    if not content.removeprefix(_BOM).strip() or len(content.translate(None, _CONTROLS)) != len(
        content
    ):
        return False
    try:
        content.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
