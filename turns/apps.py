"""The Django application of turns."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class TurnsConfig(AppConfig):
    """Registers the checks; the tools in `tools.py` are found by governance."""

    name = "turns"
    verbose_name = _("Turns")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register the checks, which need the app registry."""
        from turns import checks

        checks.register_all()
