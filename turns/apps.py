"""The Django application of turns."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class TurnsConfig(AppConfig):
    """Puts turns into a Django site."""

    name = "turns"
    verbose_name = _("Turns")
    default_auto_field = "django.db.models.BigAutoField"
