"""Replaces values that some databases refuse in the data of chat models and tools: NUL, lone surrogates and NaN."""

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pydantic_core

_REPLACEMENT = "\ufffd"
# JSON escapes of refused values; they may also occur as plain text.
_MAY_BE_REFUSED = re.compile(rb"\\u0000|NaN|Infinity")
_HALF = re.compile("[\ud800-\udfff]")  # a lone surrogate
_NO_TEXT = "the arguments hold half a character (a lone surrogate), which is not valid text"
_NAMES_MEET = (
    "two names in the arguments are the same once characters that cannot be stored are replaced"
)
_TOO_DEEP = "the arguments are nested too deeply"
_DIRECTION_CONTROLS = re.compile("[\u202a-\u202e\u2066-\u2069]")


def sanitize_text(text: str, *, limit: int | None = None) -> str:
    """Return the text without characters that PostgreSQL refuses, cut off at `limit` characters."""
    if text.isascii() and "\x00" not in text:
        return text if limit is None else text[:limit]
    clean = text.replace("\x00", _REPLACEMENT) if "\x00" in text else text
    if not clean.isascii():
        clean = clean.encode("utf-8", "replace").decode()
    return clean if limit is None else clean[:limit]


def sanitize_line(text: str, *, limit: int | None = None) -> str:
    """Return the text as a single line, for example for a title, without characters that control the text direction."""
    return sanitize_text(" ".join(_DIRECTION_CONTROLS.sub("", text).split()), limit=limit)


def sanitize_json(value: Any) -> Any:
    """Return a copy of the JSON value in which everything that PostgreSQL refuses is replaced, at every depth."""
    try:
        encoded = pydantic_core.to_json(value)
        # Almost no value needs a replacement, and this copy is several times faster.
        return (
            _sanitized(value)
            if _MAY_BE_REFUSED.search(encoded)
            else pydantic_core.from_json(encoded)
        )
    except ValueError:  # a lone surrogate, or nested too deeply for the parser
        return _sanitized(value)


def clean_arguments(arguments: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """Return the arguments of a call as they are stored, shown and run, and a clause that says why the call must not
    run.

    The clause is empty if the call may run. It may not run if a string is invalid or two names become equal, because
    people would then see arguments that differ from those that the tool gets.
    """
    cleaned_input = dict(arguments)
    try:
        clean = sanitize_json(cleaned_input)
        problem = "" if clean == cleaned_input else next(_problems(cleaned_input), "")
    except RecursionError:
        return {}, _TOO_DEEP
    return clean, problem


def _problems(value: Any) -> Iterator[str]:
    """Yield a clause for each invalid string, and for each mapping in which names become equal."""
    if isinstance(value, str):
        if _HALF.search(value):
            yield _NO_TEXT
    elif isinstance(value, Mapping):
        if len({sanitize_text(str(name)) for name in value}) < len(value):
            yield _NAMES_MEET
        for name, item in value.items():
            yield from _problems(name)
            yield from _problems(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _problems(item)


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
