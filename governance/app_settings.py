"""Settings of an app: `<PREFIX><NAME>` in Django's settings is `<NAME>` here, read on every access."""

from typing import Any, ClassVar

from django.conf import settings


class AppSettings:
    """Base of an app's settings: annotated class attributes in capitals are the defaults.

    Nothing is cached, so `override_settings` and a changed setting simply work.
    """

    PREFIX: ClassVar[str] = ""

    def __getattribute__(self, name: str) -> Any:
        if not name.isupper() or name == "PREFIX":
            return super().__getattribute__(name)
        return getattr(settings, self.PREFIX + name, super().__getattribute__(name))
