"""Reads settings from environment variables and converts each value to the type of its setting."""

import json
from collections.abc import Callable, Mapping, Sequence
from enum import EnumType
from typing import Any, get_origin

import environ
from django.core.exceptions import ImproperlyConfigured
from pydantic import TypeAdapter

from governance.app_settings import AppSettings

NONE = "none"


class Environment(environ.Env):  # type: ignore[misc]  # django-environ is not typed
    """An environment that ignores empty values, and whose errors name the variable with the invalid value."""

    def get_value(self, var: str, cast: Any = None, default: Any = None, **options: Any) -> Any:
        """Return the value of a variable, or the default if it is empty. Raise `ImproperlyConfigured` if it is invalid."""
        text = self.ENVIRON.get(var, "").strip()
        if not text:
            return default
        if cast in (bool, int, float):
            return _parsed(var, text, cast)
        if cast is list:
            return [item.strip() for item in text.split(",") if item.strip()]
        return super().get_value(var, cast, default, **options)


def read(environment: Mapping[str, str], *apps: type[AppSettings]) -> dict[str, Any]:
    """Return the settings of these apps that the environment sets. Empty values are ignored.

    A name with an app's prefix that the app does not declare is returned too, so that the app's system check reports
    it.

    Raises:
        ImproperlyConfigured: a value does not have its setting's type.
    """
    values: dict[str, Any] = {}
    for app in apps:
        for name, text in environment.items():
            if name.startswith(app.PREFIX) and text.strip():
                declared = app.DECLARED.get(name.removeprefix(app.PREFIX))
                if declared and declared.takes_none and text.strip().lower() == NONE:
                    values[name] = None
                    continue
                kind = declared.kind if declared else str
                # Not parsed here, because the system check lists the valid values of a choice.
                is_choice = isinstance(kind, EnumType)
                values[name] = _parsed(name, text.strip(), str if is_choice else kind)
    return values


def _parsed(name: str, text: str, kind: Any) -> Any:
    shape, expected = _SHAPES.get(get_origin(kind) or kind, (str, "a number"))
    try:
        return TypeAdapter(kind).validate_python(shape(text))
    except ValueError:
        raise ImproperlyConfigured(
            f"{name} is {text!r} in the environment; it takes {expected}."
        ) from None


def _list(text: str) -> Any:
    return json.loads(text) if text.startswith("[") else [item.strip() for item in text.split(",")]


def _dict(text: str) -> Any:
    if text.startswith("{"):
        return json.loads(text)
    return {
        key.strip(): value.strip() for key, value in (str(item).split("=") for item in _list(text))
    }


# For each type of setting, the parser of its text and the description in the error message.
_SHAPES: dict[Any, tuple[Callable[[str], Any], str]] = {
    bool: (str, "true or false"),
    int: (str, "a whole number"),
    Sequence: (_list, "names with commas between them, or a list in JSON"),
    Mapping: (_dict, 'JSON such as {"exec": 60}, or exec=60,web_fetch=20'),
}
