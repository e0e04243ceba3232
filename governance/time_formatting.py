"""Moments as people read them: to the second or the millisecond, with their zone; of this year without the year."""

from datetime import datetime

from django.utils import timezone
from django.utils.formats import date_format
from django.utils.timezone import localtime


def day_and_clock(at: datetime, *, with_milliseconds: bool = False) -> tuple[str, str]:
    """Return the day of a moment, and its time with its zone."""
    local = localtime(at)
    day = "j M" if local.year == localtime(timezone.now()).year else "j M Y"
    clock = local.time().isoformat("milliseconds" if with_milliseconds else "seconds")
    return date_format(local, day), f"{clock} {local:%Z}"


def time_text(at: datetime) -> str:
    """Return a moment as plain text, where no element can stand that has the exact one as its title."""
    return " ".join(day_and_clock(at))
