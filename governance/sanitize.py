"""Makes what models and tools produce fit for every database: no NUL, no lone surrogate, no NaN."""

import math
import re
from typing import Any

_REPLACEMENT = "\ufffd"
_AS_THEY_ARE = (bool, int, type(None))
_TURNS_AROUND = re.compile("[\u202a-\u202e\u2066-\u2069]")  # the direction of what stands behind it


def sanitize_text(text: str, *, limit: int | None = None) -> str:
    """Return the text with what PostgreSQL refuses replaced, cut off at `limit` characters."""
    if text.isascii() and "\x00" not in text:
        return text if limit is None else text[:limit]
    clean = text.replace("\x00", _REPLACEMENT) if "\x00" in text else text
    if not clean.isascii():
        clean = clean.encode("utf-8", "replace").decode()
    return clean if limit is None else clean[:limit]


def sanitize_line(text: str, *, limit: int | None = None) -> str:
    """Return a text as one line that stands among others: a title. Nothing in it turns its direction around."""
    return sanitize_text(" ".join(_TURNS_AROUND.sub("", text).split()), limit=limit)


def sanitize_json(value: Any) -> Any:
    """Return the JSON value with what PostgreSQL refuses replaced, at every depth."""
    if isinstance(value, dict):
        return _sanitize_dict(value)
    if isinstance(value, str):
        return sanitize_text(value)
    if isinstance(value, list | tuple):
        return [sanitize_json(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _sanitize_dict(value: dict[Any, Any]) -> dict[str, Any]:
    """Do it for a dict. Every event is one, so what is plain is left without a call for each item."""
    clean = {}
    for key, item in value.items():
        if type(key) is not str or not key.isascii() or "\x00" in key:
            key = sanitize_text(str(key))
        kind = type(item)
        if kind is str and item.isascii() and "\x00" not in item:
            clean[key] = item
        else:
            clean[key] = item if kind in _AS_THEY_ARE else sanitize_json(item)
    return clean
