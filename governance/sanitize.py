"""Makes what models and tools produce fit for every database: no NUL, no lone surrogate, no NaN."""

import math
import re
from typing import Any

import pydantic_core

_REPLACEMENT = "\ufffd"
_MAY_BE_REFUSED = re.compile(rb"\\u0000|NaN|Infinity")  # in JSON, where other texts may say so, too
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
    """Return a copy of the JSON value with what PostgreSQL refuses replaced, at every depth."""
    try:
        written = pydantic_core.to_json(value)
        # Next to nothing has to be replaced, and this copies it several times as fast.
        return (
            _sanitized(value)
            if _MAY_BE_REFUSED.search(written)
            else pydantic_core.from_json(written)
        )
    except ValueError:  # half a character, or deeper than it is read there
        return _sanitized(value)


def _sanitized(value: Any) -> Any:
    if isinstance(value, dict):
        return {sanitize_text(str(key)): _sanitized(item) for key, item in value.items()}
    if isinstance(value, str):
        return sanitize_text(value)
    if isinstance(value, list | tuple):
        return [_sanitized(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
