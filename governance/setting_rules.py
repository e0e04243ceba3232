"""Rules for the settings of an app: what each must be, in code and in words, and the system checks that follow."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from django.apps import apps
from django.conf import settings as project
from django.core import checks
from django.utils.module_loading import import_string

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


def check_names(settings: AppSettings, *, check_id: str) -> list[checks.CheckMessage]:
    """Return a warning for every name that is no setting: it would be ignored without a word."""
    prefix = settings.PREFIX
    known = sorted(type(settings).__annotations__)
    found: list[checks.CheckMessage] = []
    for full_name in dir(project):
        name = full_name.removeprefix(prefix)
        if name in (full_name, *known):
            continue
        names = ", ".join(prefix + near for near in get_close_matches(name, known) or known)
        found.append(
            checks.Warning(
                f"There is no setting {full_name}.",
                hint=f"Remove it, or correct its name: {names}.",
                id=check_id,
            )
        )
    return found


def check_apps(app: str, *needed: str, check_id: str) -> list[checks.CheckMessage]:
    """Return an error for every app that is needed and not installed."""
    return [
        checks.Error(
            f"The app {app!r} needs the app {name!r}, which is not installed.",
            hint=f"Add {name!r} to INSTALLED_APPS.",
            id=check_id,
        )
        for name in needed
        if not apps.is_installed(name)
    ]


def check_path(path: str, *, what: str, otherwise: str, check_id: str) -> list[checks.CheckMessage]:
    """Return an error, with its cause, if what a dotted path names cannot be imported and called.

    `what` begins the sentence; `otherwise` says what else may be written.
    """
    dotted = path.replace(":", ".", 1)
    hint = otherwise
    try:
        if callable(import_string(dotted)):
            return []
        reason = "what it names cannot be called"
    except ValueError:
        reason = "a name is missing"
    except ImportError as error:
        reason = str(error)
        if error.name and not dotted.startswith(f"{error.name}."):
            hint = f"It is there, but what it imports is not: install {error.name!r}, or correct the import."
    return [checks.Error(f"{what} {path!r}: {reason}.", hint=hint, id=check_id)]
