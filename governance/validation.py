"""Rules for an administrator's limits; each problem is a sentence for forms, actions and API."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _

from governance.conf import app_settings, setting_limits
from governance.core.policy import PolicyLevels, ToolLimits, resolve
from governance.durations import UNITS_MS, format_duration, limit_ms

if TYPE_CHECKING:
    from governance.models import Limits

WEEK_MS = 7 * UNITS_MS["d"]
_DURATIONS = ("timeout_ms", "idle_timeout_ms", "ceiling_ms")
_SPANS = (*_DURATIONS, "approval_timeout_ms")


def check_limits(limits: Limits) -> None:
    """Raise `ValidationError` by field for limits that are negative, absurdly large or contradict each other."""
    errors = {name: problem for name in _SPANS if (problem := span_problem(getattr(limits, name)))}
    for name in _DURATIONS:
        if name not in errors and (problem := _ceiling_problem(getattr(limits, name))):
            errors[name] = problem
    if not errors and (problem := _idle_problem(limits)):
        errors["idle_timeout_ms"] = problem
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


def _idle_problem(limits: Limits) -> str:
    """An idle limit above the total limit never fires; the total may come from a lower level."""
    idle = limits.idle_timeout_ms
    total = limits.timeout_ms if limits.timeout_ms is not None else _inherited_total_ms(limits)
    if not idle or not total or idle <= total:
        return ""
    problem = _(
        "The idle limit (%(idle)s) is longer than the total limit (%(total)s) and would never be reached."
    )
    return problem % {"idle": format_duration(idle), "total": format_duration(total)}


def _inherited_total_ms(limits: Limits) -> int:
    """The total limit that counts where this row sets none. The default row knows no tool: the settings count."""
    name = getattr(limits, "tool_name", "")
    if not name:
        return limit_ms(resolve(PolicyLevels(setting=setting_limits())).timeout)
    from governance import policies, selectors  # noqa: PLC0415 - they read the models, which need this module

    tool = selectors.find_tool(name)
    levels = policies.read_policies().levels_of(
        name, declared=tool.limits if tool else ToolLimits()
    )
    return limit_ms(resolve(replace(levels, override=ToolLimits())).timeout)
