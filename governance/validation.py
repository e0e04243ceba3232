"""Validates administrators' limits. Each problem is a sentence, for forms, admin actions and the API."""

from collections.abc import Mapping
from typing import Any

from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _

from governance.conf import app_settings
from governance.core.policy import LIMITS
from governance.durations import UNITS_MS, format_duration, limit_ms

WEEK_MS = 7 * UNITS_MS["d"]


def check_limits(values: Mapping[str, Any]) -> None:
    """Raise `ValidationError` with a message for each limit in milliseconds that is negative, longer than a week or
    above the ceiling.
    """
    errors = {}
    for name, value in values.items():
        if not name.endswith("_ms"):
            continue
        if (problem := span_problem(value)) or (
            LIMITS[name.removesuffix("_ms")].is_capped and (problem := _ceiling_problem(value))
        ):
            errors[name] = problem
    if errors:
        raise ValidationError({name: [problem] for name, problem in errors.items()})


def span_problem(milliseconds: int | None) -> str:
    """Return a sentence that describes the problem with a limit, or an empty string if the limit is valid."""
    if milliseconds is None or milliseconds == 0:
        return ""
    if milliseconds < 0:
        return _("A limit cannot be negative. Enter 0 for “no limit”, or leave it blank.")
    if milliseconds > WEEK_MS:
        return _("%(value)s is longer than a week. Enter 0 for “no limit”.") % {
            "value": format_duration(milliseconds)
        }
    return ""


def _ceiling_problem(milliseconds: int | None) -> str:
    ceiling = limit_ms(app_settings.TIMEOUT_CEILING)
    if milliseconds is not None and 0 < ceiling < milliseconds:
        problem = _(
            "%(value)s is above %(ceiling)s, the highest limit that this site allows (GOVERNANCE_TIMEOUT_CEILING)."
        )
        return problem % {
            "value": format_duration(milliseconds),
            "ceiling": format_duration(ceiling),
        }
    return ""


def idle_problem(idle_ms: int | None, total_ms: int) -> str:
    """Return a sentence if the idle limit is above the total limit, so that it would never be reached. Otherwise,
    return an empty string.
    """
    if not idle_ms or not total_ms or idle_ms <= total_ms:
        return ""
    problem = _(
        "The idle limit (%(idle)s) is longer than the total limit (%(total)s) and would never be reached."
    )
    return problem % {"idle": format_duration(idle_ms), "total": format_duration(total_ms)}
