"""Rules for an administrator's limits; each problem is a sentence for forms, actions and API."""

from collections.abc import Mapping

from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _

from governance.conf import app_settings
from governance.durations import UNITS_MS, format_duration, limit_ms

WEEK_MS = 7 * UNITS_MS["d"]
_DURATIONS = ("timeout_ms", "idle_timeout_ms", "ceiling_ms")
_SPANS = (*_DURATIONS, "approval_timeout_ms")


def check_limits(values: Mapping[str, int | None]) -> None:
    """Raise `ValidationError` by field for limits in milliseconds that are negative or absurdly large."""
    errors = {name: problem for name in _SPANS if (problem := span_problem(values[name]))}
    for name in _DURATIONS:
        if name not in errors and (problem := _ceiling_problem(values[name])):
            errors[name] = problem
    if errors:
        raise ValidationError({name: [problem] for name, problem in errors.items()})


def span_problem(milliseconds: int | None) -> str:
    """Return a sentence that says what is wrong with a limit; empty if nothing is."""
    if milliseconds is None or milliseconds == 0:
        return ""
    if milliseconds < 0:
        return _("A limit cannot be negative. Write 0 for “no limit”, or leave it blank.")
    if milliseconds > WEEK_MS:
        return _("%(value)s is longer than a week. Write 0 for “no limit”.") % {
            "value": format_duration(milliseconds)
        }
    return ""


def _ceiling_problem(milliseconds: int | None) -> str:
    ceiling = limit_ms(app_settings.TIMEOUT_CEILING)
    if milliseconds is not None and 0 < ceiling < milliseconds:
        problem = _(
            "%(value)s is above %(ceiling)s, the most that this site allows (GOVERNANCE_TIMEOUT_CEILING)."
        )
        return problem % {
            "value": format_duration(milliseconds),
            "ceiling": format_duration(ceiling),
        }
    return ""


def idle_problem(idle_ms: int | None, total_ms: int) -> str:
    """Return in a sentence that an idle limit above the total one would never be reached; empty if it would."""
    if not idle_ms or not total_ms or idle_ms <= total_ms:
        return ""
    problem = _(
        "The idle limit (%(idle)s) is longer than the total limit (%(total)s) and would never be reached."
    )
    return problem % {"idle": format_duration(idle_ms), "total": format_duration(total_ms)}
