"""Durations as text: "90 s", "1 min 30 s", "500 ms"; milliseconds inside (acceptance 19)."""

import re
from decimal import Decimal

from django.utils.translation import gettext as _

UNITS_MS = {"d": 86_400_000, "h": 3_600_000, "min": 60_000, "s": 1_000, "ms": 1}
_WORDS = {
    "day": "d",
    "days": "d",
    "hour": "h",
    "hours": "h",
    "hr": "h",
    "m": "min",
    "mins": "min",
    "minute": "min",
    "minutes": "min",
    "sec": "s",
    "secs": "s",
    "second": "s",
    "seconds": "s",
    "millisecond": "ms",
    "milliseconds": "ms",
}
_PART = re.compile(r"\s*(\d+(?:[.,]\d+)?)\s*([a-z]*)", re.ASCII)
_MAX_LENGTH = 60
_LONGEST_MS = 10**15  # some thirty thousand years


class UnitMissing(ValueError):
    """A number without a unit."""


class TooShort(ValueError):
    """A duration above zero that would become zero, which means something else: no limit."""


def parse_duration(text: str) -> int:
    """Return milliseconds; only a zero needs no unit.

    Raises:
        UnitMissing: the text is a number above zero, and nothing else.
        TooShort: the duration is above zero and below a millisecond.
        ValueError: the text is no duration.
    """
    text = text.strip().lower()
    negative = text.startswith(("-", "\u2212"))
    rest = text[1:] if negative else text
    if not rest or len(rest) > _MAX_LENGTH:
        raise ValueError("not a duration")
    total = Decimal(0)
    position = 0
    while position < len(rest):
        match = _PART.match(rest, position)
        if match is None:
            raise ValueError("not a duration")
        total += _part_ms(match[1], unit=match[2], is_alone=match[0] == rest)
        position = match.end()
    if total > _LONGEST_MS:
        raise ValueError("longer than can be meant")
    if total and not round(total):
        raise TooShort(text)
    return -round(total) if negative else round(total)


def format_duration(milliseconds: int) -> str:
    """Return the duration exactly, largest unit first: 90500 → "1 min 30.5 s", 0 → "0 ms"."""
    if milliseconds < 0:
        return "-" + format_duration(-milliseconds)
    if milliseconds < UNITS_MS["s"]:
        return f"{milliseconds} ms"
    parts = []
    for unit in ("d", "h", "min"):
        count, milliseconds = divmod(milliseconds, UNITS_MS[unit])
        if count:
            parts.append(f"{count} {unit}")
    if milliseconds:
        seconds = f"{Decimal(milliseconds) / 1000:f}"
        parts.append(f"{seconds.rstrip('0').rstrip('.') if '.' in seconds else seconds} s")
    return " ".join(parts)


def format_limit(milliseconds: int | None) -> str:
    """Return a limit as text: None = not set, 0 = no limit."""
    if milliseconds is None:
        return _("not set")
    return format_duration(milliseconds) if milliseconds else _("no limit")


def to_ms(seconds: float | None) -> int:
    """Return whole milliseconds; None (no limit) is 0."""
    return 0 if seconds is None else round(seconds * 1000)


def limit_ms(seconds: float | None) -> int:
    """Return a limit as whole milliseconds: 0 = no limit, so any limit is at least 1."""
    return max(to_ms(seconds), 1) if seconds is not None and seconds > 0 else 0


def to_seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


def _part_ms(number: str, *, unit: str, is_alone: bool) -> Decimal:
    amount = Decimal(number.replace(",", "."))
    known = _WORDS.get(unit, unit)
    if is_alone and not unit:
        if amount:
            raise UnitMissing(number)
        return amount
    if known not in UNITS_MS:
        raise ValueError(f"no unit of time: {unit!r}")
    return amount * UNITS_MS[known]
