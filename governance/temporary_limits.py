"""Limits that count until a moment: what a tool's row stores of them, and how people write the moment."""

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
    """Let the changes of a row count until a moment, or for good; return what that changes of the end.

    A change for good of a field that is temporary replaces its value and the one after it. Other fields keep the end.
    """
    before = end_of(policy)
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
        name: [old, new] for name, old in before.items() if (new := end_of(policy)[name]) != old
    }


def end_of(policy: ToolPolicy) -> dict[str, Any]:
    """Return the end of a row and what counts after it, as the audit keeps them."""
    return {"until": None if policy.until is None else _text(policy.until), "then": policy.then}


def put_back(policy: ToolPolicy, end: Mapping[str, Any]) -> None:
    """Give a row the end that it had, as the audit has kept it.

    Raises:
        ValidationError: that is over by now; in words.
    """
    if "until" in end:
        policy.until = end["until"] and datetime.fromisoformat(end["until"])
        if policy.until is not None:
            _check(policy.until)
    policy.then = (end["then"] or {}) if "then" in end else policy.then


def states_of(policy: ToolPolicy) -> list[ToolPolicy]:
    """Return the row as it is, and as it will be after its end."""
    if policy.until is None:
        return [policy]
    later = copy.copy(policy)
    later.end_temporary()
    return [policy, later]


def changes_at_end(policy: ToolPolicy) -> Changes:
    """Return what changes when the end of a row has come."""
    changes = {name: [getattr(policy, name), value] for name, value in policy.then.items()}
    return changes | removal_of_end(policy)


def removal_of_end(policy: ToolPolicy) -> Changes:
    """Return what goes with the end of a row."""
    return {name: [old, None] for name, old in end_of(policy).items() if old}


def parse_end(text: str) -> datetime | None:
    """Return the moment that a person has written: 18:00, 2026-01-31 18:00 or 2 h; None if nothing.

    Raises:
        ValidationError: it is none of these; in words.
    """
    text = text.strip()
    if not text:
        return None
    now = timezone.localtime(database_now())
    try:
        span = timedelta(milliseconds=parse_duration(text))
        return now + max(-LONGEST, min(span, 2 * LONGEST))  # what is refused anyway stays a date
    except UnitMissing:
        pass
    except ValueError:
        if (moment := _clock_time(text, now) or _date_and_time(text)) is not None:
            return moment
    problem = _("“%(text)s” is no end. Write a time such as 18:00, a date and a time, or 2 h.")
    raise ValidationError(problem % {"text": text[:60]})


def _clock_time(text: str, now: datetime) -> datetime | None:
    """The next moment at which clocks show this."""
    if not _CLOCK.fullmatch(text):
        return None
    try:
        time = parse_time(text)
    except ValueError:
        return None
    assert time is not None  # noqa: S101 - it has the form of one
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
        raise ValidationError(_("The end of a temporary limit lies in the past."))
    if until > now + LONGEST:
        raise ValidationError(_("A temporary limit lasts a week at most; set it without an end."))


def _text(moment: datetime) -> str:
    """The same text for the same moment, whatever zone it is in."""
    return moment.astimezone(UTC).isoformat()
