"""What a file is, told from its first bytes and never from its name. Makes names fit to be shown and saved."""

import unicodedata
from pathlib import PurePosixPath

from turns.conf import PDF, TEXT

NAME_LENGTH = 150
NAME_BYTES = 200  # of a name in a workspace: file systems take 255, and an id stands before it
_SUFFIXES = {
    "image/png": (".png",),
    "image/jpeg": (".jpg", ".jpeg"),
    "image/gif": (".gif",),
    "image/webp": (".webp",),
    PDF: (".pdf",),
    # No browser and no desktop runs a file because it has one of these names.
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
    """Return the type of a file; empty = one that is not known."""
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


def clean_name(name: str) -> str:
    """Return a file's name without directories and without what cannot be seen; its ending stays."""
    last = PurePosixPath(name.replace("\\", "/")).name
    seen = "".join(c for c in last if not unicodedata.category(c).startswith("C"))
    path = PurePosixPath(" ".join(seen.split()).strip(". ") or "file")
    suffix = _begin(path.suffix[:20], NAME_BYTES // 2)
    stem = path.stem[: NAME_LENGTH - len(suffix)]
    return _begin(stem, NAME_BYTES - len(suffix.encode())) + suffix


def saved_name(name: str, media_type: str) -> str:
    """Return the name under which a browser saves a file: its ending fits its type, so that nothing runs it."""
    suffixes = _SUFFIXES[media_type]
    return name if name.lower().endswith(suffixes) else name + suffixes[0]


def _begin(text: str, size: int) -> str:
    """Return as much of a text as has room in so many bytes."""
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
