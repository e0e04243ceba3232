"""Settings of an app: `<PREFIX><NAME>` in Django's settings is `<NAME>` here, read on every access."""

from collections.abc import Iterable, Mapping
from enum import EnumType
from functools import cached_property
from typing import Any, ClassVar, get_args

from django.conf import Settings, UserSettingsHolder, settings
from pydantic import ConfigDict, TypeAdapter

from governance.core.settings import WEEK, Setting

__all__ = ["WEEK", "AppSettings", "DeclaredSetting", "Setting"]

_MOST = 10**15


class DeclaredSetting:
    """One setting with its name in Django's settings, its type, its rule and its default; read, it is its value."""

    def __init__(self, full_name: str, annotation: Any, default: Any) -> None:
        declared, self.rule = get_args(annotation)
        kinds = get_args(declared)
        self.full_name, self.default = full_name, default
        self.takes_none = type(None) in kinds
        self.kind: Any = kinds[0] if self.takes_none else declared

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return _read(self.full_name, self.default)

    def parse(self, value: Any) -> Any:
        """Return a value as the declared type.

        Raises:
            ValueError: it is of another type.
        """
        return self._adapter.validate_python(value)

    def is_valid(self, value: Any) -> bool:
        """Return whether a value has the declared type and keeps the rule."""
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
        """What to write, in sentences."""
        hint = f"Set it to {self.rule.hint or self._wanted()}."
        return f"{hint} None stands for {self.rule.none}." if self.rule.none else hint

    @cached_property
    def _adapter(self) -> TypeAdapter[Any]:
        is_strict = not isinstance(self.kind, EnumType)  # a choice may be written as its text
        kind = self.kind | None if self.takes_none else self.kind
        return TypeAdapter(kind, config=ConfigDict(strict=is_strict))

    def _is_sensible(self, part: Any) -> bool:
        if isinstance(part, str):
            return bool(part)
        least, most = self.rule.least, self.rule.most or _MOST
        if least is None:
            return bool(0 < part <= most)
        return bool(least <= part <= most) or (self.rule.zero and part == 0)

    def _wanted(self) -> str:
        if self.kind is bool:
            return "True or False"
        if isinstance(self.kind, EnumType):
            choices: Iterable[Any] = self.kind
            return " or ".join(f'"{choice.value}"' for choice in choices)
        if self.kind not in (int, float):
            return "a text"
        words = "a whole number" if self.kind is int else "a number of seconds"
        if self.rule.least is None:
            return f"{words} above zero, or leave it out for the default"
        if self.rule.zero:
            return f"{words}, {self.rule.least} or more; 0 = no limit"
        return f"{words} from {self.kind(self.rule.least)} to {self.kind(self.rule.most)}"


class AppSettings:
    """Base of an app's settings: fields whose type is `Annotated` with a `Setting`; their values are the defaults.

    Nothing is cached, so `override_settings` and later changes work.
    """

    PREFIX: ClassVar[str] = ""
    HOLDERS: ClassVar[tuple[type, ...]] = ()
    DECLARED: ClassVar[Mapping[str, DeclaredSetting]] = {}

    def __init_subclass__(cls, of: Iterable[type] = ()) -> None:
        """Declare the fields of the class, and those of the classes `of`, which hold their defaults in small letters."""
        cls.HOLDERS = (cls, *of)
        cls.DECLARED = {
            name.upper(): DeclaredSetting(
                cls.PREFIX + name.upper(), annotation, getattr(holder(), name)
            )
            for holder in cls.HOLDERS
            for name, annotation in holder.__annotations__.items()
            if any(isinstance(word, Setting) for word in get_args(annotation))
        }
        for name, setting in cls.DECLARED.items():
            setattr(cls, name, setting)

    def valid(self, name: str) -> Any:
        """Return the value of a setting, or its default where the value is wrong."""
        setting, value = self.DECLARED[name], getattr(self, name)
        return value if setting.is_valid(value) else setting.default


def values_of(defaults: Mapping[str, Any]) -> list[Any]:
    """Return the values of several settings by their names in Django's settings; one that is left out has its default."""
    holder: Any = object.__getattribute__(settings, "_wrapped")
    if type(holder) is Settings:  # nothing is put before the others
        return list(map(holder.__dict__.get, defaults, defaults.values()))
    return [_read(name, default) for name, default in defaults.items()]


def _read(name: str, default: Any) -> Any:
    """Return a value of Django's settings, as `getattr` does.

    A setting that is left out has its default. Finding that out by an `AttributeError` takes ten times as long.
    """
    holder: Any = object.__getattribute__(settings, "_wrapped")
    while type(holder) is UserSettingsHolder:  # what `override_settings` puts before the others
        values = holder.__dict__
        if name in values:
            return values[name]
        if name in values["_deleted"]:
            return default
        holder = values["default_settings"]
    if type(holder) is Settings:
        return holder.__dict__.get(name, default)
    return getattr(settings, name, default)


def _parts(value: Any) -> list[Any]:
    """What bounds are about: a number itself, the items of a list, the values of a dict."""
    if isinstance(value, Mapping):
        return list(value.values())
    if isinstance(value, list | tuple):
        return list(value)
    return [value] if type(value) in (int, float) else []
