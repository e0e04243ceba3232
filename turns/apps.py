"""The Django application of turns."""

from importlib.util import find_spec

from django.apps import AppConfig
from django.db.models.signals import post_migrate
from django.utils.translation import gettext_lazy as _


class TurnsConfig(AppConfig):
    """Registers the checks; the tools in `tools.py` are found by governance."""

    name = "turns"
    verbose_name = _("Turns")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register the checks and the metrics, and let a migrated database have its first agent."""
        from turns import checks
        from turns.agents.lookup import make_first_agent

        checks.register_all()
        post_migrate.connect(make_first_agent, sender=self)
        if find_spec("prometheus_client") is not None:  # an extra
            from turns.running import metrics

            metrics.begin()
