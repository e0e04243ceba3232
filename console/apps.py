"""The Django application of the console."""

from typing import Any

from django.apps import AppConfig, apps
from django.contrib.auth.signals import user_logged_in
from django.core import checks
from django.utils.translation import gettext_lazy as _

from governance import activity, setting_rules
from turns.signals import user_forgotten


class ConsoleConfig(AppConfig):
    name = "console"
    verbose_name = _("Console")

    def ready(self) -> None:
        checks.register(_check_apps, "console")
        if apps.is_installed("governance"):  # otherwise a check reports it
            user_logged_in.connect(_record_sign_in, dispatch_uid="console")
        user_forgotten.connect(_forget_history, dispatch_uid="console")


def _record_sign_in(sender: object, *, user: Any, **_: object) -> None:
    """Record the sign-in of a staff member."""
    if getattr(user, "is_staff", False):
        name = user.get_username()
        activity.record("sign_in", "sign_in", subject=name, by_id=user.pk, by_name=name)


def _forget_history(sender: object, *, user: Any, new_name: str, **_: object) -> None:
    """Rename a forgotten person in the admin's own history."""
    from django.contrib.admin.models import LogEntry
    from django.contrib.contenttypes.models import ContentType

    kind = ContentType.objects.get_for_model(user)
    entries = LogEntry.objects.filter(content_type=kind, object_id=str(user.pk))
    entries.update(object_repr=new_name, change_message="")


def _check_apps(**_: object) -> list[checks.CheckMessage]:
    """Check that the apps shown by the console are installed; the chat page is optional."""
    return setting_rules.check_apps(
        "console", "django.contrib.admin", "governance", "turns", check_id="console.E001"
    )
