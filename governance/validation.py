"""What an administrator's limits must satisfy; every problem in words, for forms, actions and API alike."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from django.apps import apps
from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _

from governance.conf import app_settings, setting_limits, tool_setting_limits
from governance.core.policy import PolicyLevels, ToolLimits, resolve
from governance.core.registry import registry
from governance.durations import UNITS_MS, format_duration, to_ms, to_seconds

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


def check_tool_name(tool_name: str) -> None:
    """Raise `ValidationError` unless a tool of this name is registered."""
    if tool_name not in registry:
        known = ", ".join(tool.name for tool in registry) or _("none")
        problem = _("There is no tool named “%(name)s”. The tools of this site: %(known)s.")
        raise ValidationError({"tool_name": [problem % {"name": tool_name, "known": known}]})


def span_problem(milliseconds: int | None) -> str:
    """Return in a sentence what is wrong with a limit of any kind; empty if nothing is."""
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
    ceiling = round(app_settings.TIMEOUT_CEILING * 1000)
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
    """An idle limit above the total one would never be reached; the total may come from a weaker level."""
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
    levels = PolicyLevels(tool_setting=tool_setting_limits(name), setting=setting_limits())
    if name in registry:
        default_ms = (
            apps.get_model("governance.DefaultPolicy")
            .objects.values_list("timeout_ms", flat=True)
            .first()
        )
        default = ToolLimits(timeout=to_seconds(default_ms))
        levels = replace(levels, declared=registry.get(name).limits, default=default)
    return to_ms(resolve(levels).timeout)
