"""The two permission groups for the people who run a site, created once after their migration.

The functions here use the synchronous ORM.
"""

from collections.abc import Iterable
from typing import Any

from django.apps import AppConfig, apps
from django.contrib.auth.management import create_permissions
from django.contrib.auth.models import Group, Permission
from django.db import router
from django.db.models import Q
from django.utils.translation import gettext_noop

# The groups are created only after this migration, so that a deleted group stays deleted.
FIRST_MIGRATION = ("turns", "0001_initial")

_METADATA = (
    "governance.export",
    "governance.view_activity",
    "governance.view_approval",
    "governance.view_defaultpolicy",
    "governance.view_export",
    "governance.view_policychange",
    "governance.view_toolcall",
    "governance.view_toolpolicy",
    "turns.view_agent",
    "turns.view_attachment",
    "turns.view_cancelrequest",
    "turns.view_conversation",
    "turns.view_conversationchange",
    "turns.view_disconnectpolicy",
    "turns.view_process",
    "turns.view_repair",
    "turns.view_turn",
)
GROUPS = {
    gettext_noop("Governance auditors"): _METADATA,
    gettext_noop("Governance operators"): (
        *_METADATA,
        "governance.add_toolpolicy",
        "governance.change_defaultpolicy",
        "governance.change_toolpolicy",
        "governance.delete_toolpolicy",
        "governance.view_content",
        "turns.cancel_any",
        "turns.change_disconnectpolicy",
        "turns.decide_any",
        "turns.view_all",
    ),
}


def make_groups(
    sender: AppConfig, *, plan: Iterable[tuple[Any, bool]] = (), using: str, **_: Any
) -> None:
    """Create the groups after their migration; existing groups are not changed."""
    ran = {(migration.app_label, migration.name) for migration, backwards in plan if not backwards}
    if FIRST_MIGRATION not in ran or not router.allow_migrate_model(using, Group):
        return
    for app in (
        "governance",
        "turns",
    ):  # Django may not have created the permissions of both apps yet
        create_permissions(apps.get_app_config(app), verbosity=0, using=using)
    for name, permissions in GROUPS.items():
        group, is_new = Group.objects.using(using).get_or_create(name=name)
        if is_new:
            group.permissions.set(_permissions(permissions, using=using))


def _permissions(names: Iterable[str], *, using: str) -> list[Permission]:
    condition = Q()
    for app, codename in (name.split(".") for name in names):
        condition |= Q(content_type__app_label=app, codename=codename)
    return list(Permission.objects.using(using).filter(condition))
