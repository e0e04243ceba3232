"""Rules for the settings of an app: what each must be, in code and in words, and the system checks that follow."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from django.conf import settings as project
from django.core import checks

from governance.app_settings import AppSettings

WEEK = 7 * 24 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What one setting must be; `id` is its check's, never used for anything else."""

    id: str
    is_valid: Callable[[Any], bool]
    hint: str


def is_number(value: Any, *, least: float, most: float) -> bool:
    """Return whether a value is a finite number within bounds; True is no number."""
    counts = isinstance(value, int | float) and not isinstance(value, bool)
    return counts and math.isfinite(value) and least <= value <= most


def seconds(check_id: str, least: float, most: float, *, none: str = "") -> Rule:
    """A span of time; `none` says what None stands for, where it is allowed."""
    hint = f"Set it to a number of seconds from {least:g} to {most:g}."
    return Rule(
        id=check_id,
        is_valid=lambda value: (
            (value is None and bool(none)) or is_number(value, least=least, most=most)
        ),
        hint=f"{hint} None stands for {none}." if none else hint,
    )


def whole(check_id: str, least: int, most: int, *, none: str = "") -> Rule:
    """A whole number; `none` as in `seconds`."""
    hint = f"Set it to a whole number from {least} to {most}."
    return Rule(
        id=check_id,
        is_valid=lambda value: (
            (value is None and bool(none))
            or (isinstance(value, int) and is_number(value, least=least, most=most))
        ),
        hint=f"{hint} None stands for {none}." if none else hint,
    )


def positive(check_id: str) -> Rule:
    """Any number above zero."""
    return Rule(
        id=check_id,
        is_valid=lambda value: is_number(value, least=0, most=math.inf) and value > 0,
        hint="Set it to a number above zero, or leave it out for the default.",
    )


def switch(check_id: str) -> Rule:
    """On or off."""
    return Rule(
        id=check_id,
        is_valid=lambda value: isinstance(value, bool),
        hint="Set it to True or False.",
    )


def check_values(settings: AppSettings, rules: Mapping[str, Rule]) -> list[checks.CheckMessage]:
    """Return an error for every setting that breaks its rule."""
    return [
        checks.Error(
            f"{settings.PREFIX}{name} is {getattr(settings, name)!r}.", hint=rule.hint, id=rule.id
        )
        for name, rule in rules.items()
        if not rule.is_valid(getattr(settings, name))
    ]


def check_names(
    settings: AppSettings, *, check_id: str, document: str
) -> list[checks.CheckMessage]:
    """Return a warning for every name that is no setting: it would be ignored without a word."""
    prefix = settings.PREFIX
    known = {prefix + name for name in type(settings).__annotations__}
    unknown = sorted(n for n in dir(project) if n.startswith(prefix) and n not in known)
    return [
        checks.Warning(
            f"There is no setting {name}.",
            hint=f"Correct its name or remove it; {document} lists the settings.",
            id=check_id,
        )
        for name in unknown
    ]
