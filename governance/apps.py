"""The app `governance`: tools, and the rules under which they run."""

from django.apps import AppConfig
from django.utils.module_loading import autodiscover_modules
from django.utils.translation import gettext_lazy as _

from governance import checks, db, toolbox
from governance.conf import toolbox_settings
from governance.core.registry import registry


class GovernanceConfig(AppConfig):
    """Registers the checks, the built-in tools, and the tools in every installed app's `tools.py` (G3)."""

    name = "governance"
    verbose_name = _("Tools and limits")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        checks.register_all()
        db.replace_lost_connections()
        toolbox.register(registry, settings=toolbox_settings)
        autodiscover_modules("tools")
