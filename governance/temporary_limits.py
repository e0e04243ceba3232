"""Limits that end at a set time: stores them in a tool's row, and parses the time."""

import copy
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from django.core.exceptions import ValidationError
from django.utils import timezone
from django.utils.dateparse import parse_datetime, parse_time
from django.utils.translation import gettext as _

from governance.audit import Changes
from governance.db_clock import database_now
from governance.durations import UnitMissing, parse_duration
from governance.models import ToolPolicy

LONGEST = timedelta(days=7)
_CLOCK = re.compile(r"\d\d:\d\d(:\d\d)?", re.ASCII)


def set_end(policy: ToolPolicy, until: datetime | None, changes: Mapping[str, Any]) -> Changes:
    """Make the changes of a row temporary (with `until`) or permanent, and return how the end of its temporary limits
    has changed.

    A permanent change of a temporary field also replaces the value after the end. Other fields stay temporary.
    """
    old_end = end_of(policy)
    if until is not None:
        if not changes and policy.until is None:
            return {}
        _check(until)
        policy.then = {name: old for name, (old, _new) in changes.items()} | policy.then
        policy.until = until
    else:
        policy.then = {name: old for name, old in policy.then.items() if name not in changes}
        policy.until = policy.until if policy.then else None
    return {
        name: [old, new] for name, old in old_end.items() if (new := end_of(policy)[name]) != old
    }


def end_of(policy: ToolPolicy) -> dict[str, Any]:
    """Return the end of a row's temporary limits and the values after it, in the form that the audit stores."""
    return {"until": None if policy.until is None else _text(policy.until), "then": policy.then}


def put_back(policy: ToolPolicy, end: Mapping[str, Any]) -> None:
    """Restore the end of a row's temporary limits, and the values that apply after it, from the audit's record.

    Raises:
        ValidationError: the end has passed.
    """
    if "until" in end:
        policy.until = end["until"] and datetime.fromisoformat(end["until"])
        if policy.until is not None:
            _check(policy.until)
    policy.then = (end["then"] or {}) if "then" in end else policy.then


def states_of(policy: ToolPolicy) -> list[ToolPolicy]:
    """Return the row as it is, and as it will be after its temporary limits end."""
    if policy.until is None:
        return [policy]
    later = copy.copy(policy)
    later.end_temporary()
    return [policy, later]


def changes_at_end(policy: ToolPolicy) -> Changes:
    """Return how a row will change when its temporary limits end."""
    changes = {name: [getattr(policy, name), value] for name, value in policy.then.items()}
    return changes | removal_of_end(policy)


def removal_of_end(policy: ToolPolicy) -> Changes:
    """Return the changes that remove the end of a row's temporary limits."""
    return {name: [old, None] for name, old in end_of(policy).items() if old}


def parse_end(text: str) -> datetime | None:
    """Return the time that a person typed, for example 18:00, 2026-01-31 18:00 or 2 h. Return None for a blank text.

    Raises:
        ValidationError: the text is not a time in one of these forms.
    """
    text = text.strip()
    if not text:
        return None
    now = timezone.localtime(database_now())
    try:
        span = timedelta(milliseconds=parse_duration(text))
        # Bounded, because a datetime cannot be arbitrarily large; `set_end` refuses such a time later.
        return now + max(-LONGEST, min(span, 2 * LONGEST))
    except UnitMissing:
        pass
    except ValueError:
        if (moment := _clock_time(text, now) or _date_and_time(text)) is not None:
            return moment
    problem = _(
        "“%(text)s” is not a valid end. Enter a time such as 18:00, a date and a time, or 2 h."
    )
    raise ValidationError(problem % {"text": text[:60]})


def _clock_time(text: str, now: datetime) -> datetime | None:
    """Return the next time at which the clock shows `text`, or None if `text` is not a time of day."""
    if not _CLOCK.fullmatch(text):
        return None
    try:
        time = parse_time(text)
    except ValueError:
        return None
    assert time is not None  # noqa: S101 - the text has the form of a time
    today = timezone.make_aware(datetime.combine(now.date(), time))
    if today > now:
        return today
    return timezone.make_aware(datetime.combine(now.date() + timedelta(days=1), time))


def _date_and_time(text: str) -> datetime | None:
    try:
        moment = parse_datetime(text)
    except ValueError:
        return None
    if moment is None:
        return None
    return timezone.make_aware(moment) if timezone.is_naive(moment) else moment


def _check(until: datetime) -> None:
    now = database_now()
    if until <= now:
        raise ValidationError(_("The end of a temporary limit is in the past."))
    if until > now + LONGEST:
        raise ValidationError(
            _("A temporary limit lasts at most a week. Set it without an end instead.")
        )


def _text(moment: datetime) -> str:
    """Return the time in UTC, so that equal times have equal texts."""
    return moment.astimezone(UTC).isoformat()
