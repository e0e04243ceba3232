"""The Django application of turns."""

from importlib.util import find_spec

from django.apps import AppConfig
from django.conf import settings
from django.db.models.signals import post_delete, post_migrate, pre_delete
from django.utils.translation import gettext_lazy as _


class TurnsConfig(AppConfig):
    name = "turns"
    verbose_name = _("Turns")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register checks, metrics and processes, and create the first agent and groups after a migration."""
        from turns import checks
        from turns.agents.lookup import make_first_agent
        from turns.attachments import rows
        from turns.endings import deletions
        from turns.storage.groups import make_groups

        checks.register_all()
        post_migrate.connect(make_first_agent, sender=self)
        post_migrate.connect(make_groups, sender=self)
        post_delete.connect(rows.follow_row, sender="turns.Attachment")
        pre_delete.connect(deletions.follow_user, sender=settings.AUTH_USER_MODEL)
        if find_spec("prometheus_client") is not None:  # the `metrics` extra installs it
            from turns.running import metrics

            metrics.begin()
