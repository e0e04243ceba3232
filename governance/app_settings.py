"""Base classes for the settings of an app: the attribute `<NAME>` reads `<PREFIX><NAME>` from Django's settings."""

from collections.abc import Iterable, Mapping
from enum import EnumType
from functools import cached_property
from typing import Any, ClassVar, get_args

from django.conf import settings
from pydantic import ConfigDict, TypeAdapter

from governance.core.settings import WEEK, Setting

__all__ = ["WEEK", "AppSettings", "DeclaredSetting", "Setting"]

_MOST = 10**15


class DeclaredSetting:
    """A descriptor of one setting: its name in Django's settings, its type, rule and default."""

    def __init__(self, full_name: str, annotation: Any, default: Any) -> None:
        declared, self.rule = get_args(annotation)
        kinds = get_args(declared)
        self.full_name, self.default = full_name, default
        self.takes_none = type(None) in kinds
        self.kind: Any = kinds[0] if self.takes_none else declared

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return getattr(settings, self.full_name, self.default)

    def parse(self, value: Any) -> Any:
        """Convert a value to the declared type. Raise `ValueError` if that is impossible."""
        return self._adapter.validate_python(value)

    def is_valid(self, value: Any) -> bool:
        """Return whether a value has the declared type and satisfies the rule."""
        try:
            self.parse(value)
        except ValueError:
            return False
        if value is None:
            return True
        is_valid = self.rule.is_valid or (lambda _: True)
        return all(map(self._is_sensible, _parts(value))) and bool(is_valid(value))

    @property
    def hint(self) -> str:
        """Sentences that describe the valid values."""
        hint = f"Set it to {self.rule.hint or self._valid_values()}."
        return f"{hint} None means {self.rule.none}." if self.rule.none else hint

    @cached_property
    def _adapter(self) -> TypeAdapter[Any]:
        is_strict = not isinstance(self.kind, EnumType)  # an enum member may be given as its value
        kind = self.kind | None if self.takes_none else self.kind
        return TypeAdapter(kind, config=ConfigDict(strict=is_strict))

    def _is_sensible(self, part: Any) -> bool:
        if isinstance(part, str | Mapping):
            return bool(part)
        least, most = self.rule.least, self.rule.most or _MOST
        if least is None:
            return bool(0 < part <= most)
        return bool(least <= part <= most) or (self.rule.zero and part == 0)

    def _valid_values(self) -> str:
        if self.kind is bool:
            return "True or False"
        if isinstance(self.kind, EnumType):
            choices: Iterable[Any] = self.kind
            return " or ".join(f'"{choice.value}"' for choice in choices)
        if self.kind not in (int, float):
            return "a string"
        words = "a whole number" if self.kind is int else "a number of seconds"
        if self.rule.least is None:
            return f"{words} above zero, or leave it out for the default"
        if self.rule.zero:
            return f"{words}, {self.rule.least} or more; 0 = no limit"
        return f"{words} from {self.kind(self.rule.least)} to {self.kind(self.rule.most)}"


class AppSettings:
    """The base class of an app's settings. The type of each field is `Annotated` with a `Setting`, and its value is the
    default.

    Nothing is cached, so `override_settings` and later changes work.
    """

    PREFIX: ClassVar[str] = ""
    HOLDERS: ClassVar[tuple[type, ...]] = ()
    DECLARED: ClassVar[Mapping[str, DeclaredSetting]] = {}

    def __init_subclass__(cls, of: Iterable[type] = ()) -> None:
        """Declare the fields of this class and of the classes `of`, whose field names are in lower case."""
        cls.HOLDERS = (cls, *of)
        cls.DECLARED = {
            name.upper(): DeclaredSetting(
                cls.PREFIX + name.upper(), annotation, getattr(holder(), name)
            )
            for holder in cls.HOLDERS
            for name, annotation in holder.__annotations__.items()
            if any(isinstance(part, Setting) for part in get_args(annotation))
        }
        for name, setting in cls.DECLARED.items():
            setattr(cls, name, setting)

    def valid(self, name: str) -> Any:
        """Return the value of a setting, or its default if the value is invalid."""
        setting, value = self.DECLARED[name], getattr(self, name)
        return value if setting.is_valid(value) else setting.default


def _parts(value: Any) -> list[Any]:
    """Return the parts of a value to which bounds apply: a number itself, the items of a list, or the values of a dict."""
    if isinstance(value, Mapping):
        return list(value.values())
    if isinstance(value, list | tuple):
        return list(value)
    return [value] if type(value) in (int, float) else []
