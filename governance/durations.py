"""Formats and parses durations such as "90 s", "1 min 30 s" or "500 ms", which are stored as milliseconds (acceptance
19). Also formats times.
"""

import re
from datetime import datetime
from decimal import Decimal

from django.utils import timezone
from django.utils.formats import date_format
from django.utils.timezone import localtime
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
_LONGEST_MS = 10**15  # about thirty thousand years


class UnitMissing(ValueError):
    """The text is a number without a unit."""


class TooShort(ValueError):
    """The duration is above zero, but would be rounded to zero, which would mean no limit."""


def parse_duration(text: str) -> int:
    """Return the duration in milliseconds. Only zero needs no unit.

    Raises:
        UnitMissing: the text is a number above zero, and nothing else.
        TooShort: the duration is above zero and below a millisecond.
        ValueError: the text is not a duration.
    """
    text = text.strip().lower()
    negative = text.startswith(("-", "\u2212"))
    unsigned = text[1:] if negative else text
    if not unsigned or len(unsigned) > _MAX_LENGTH:
        raise ValueError("not a duration")
    total = Decimal(0)
    position = 0
    while position < len(unsigned):
        match = _PART.match(unsigned, position)
        if match is None:
            raise ValueError("not a duration")
        total += _part_ms(match[1], unit=match[2], is_alone=match[0] == unsigned)
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
    """Return a limit as text. None means that the limit is not set, and 0 means no limit."""
    if milliseconds is None:
        return _("not set")
    return format_duration(milliseconds) if milliseconds else _("no limit")


def to_ms(seconds: float | None) -> int:
    """Return the seconds as whole milliseconds. None becomes 0, which means no limit."""
    return 0 if seconds is None else round(seconds * 1000)


def limit_ms(seconds: float | None) -> int:
    """Return a limit as whole milliseconds. Because 0 means no limit, a limit above zero becomes at least 1."""
    return max(to_ms(seconds), 1) if seconds is not None and seconds > 0 else 0


def to_seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


def _part_ms(number: str, *, unit: str, is_alone: bool) -> Decimal:
    amount = Decimal(number.replace(",", "."))
    unit_name = _WORDS.get(unit, unit)
    if is_alone and not unit:
        if amount:
            raise UnitMissing(number)
        return amount
    if unit_name not in UNITS_MS:
        raise ValueError(f"not a unit of time: {unit!r}")
    return amount * UNITS_MS[unit_name]


def day_and_clock(at: datetime, *, with_milliseconds: bool = False) -> tuple[str, str]:
    """Return the date, without the current year, and the time of day with its zone."""
    local = localtime(at)
    day = "j M" if local.year == localtime(timezone.now()).year else "j M Y"
    clock = local.time().isoformat("milliseconds" if with_milliseconds else "seconds")
    return date_format(local, day), f"{clock} {local:%Z}"


def time_text(at: datetime) -> str:
    """Return a time as plain text, for places that cannot show the exact time as an element's title."""
    return " ".join(day_and_clock(at))
