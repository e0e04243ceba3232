"""Permissions that a migration gives: those who could do something before still can, under its new name."""

from collections.abc import Collection
from typing import Any

from django.conf import settings
from django.db.models import Q


def grant(
    apps: Any,
    *,
    new: str,
    name: str,
    model: str,
    to_holders_of: Collection[str] = (),
    to_groups: Collection[str] = (),
) -> None:
    """Give the permission `new` ("app.codename") to whoever holds one of the others, and to groups by their names.

    `name` and `model` ("call" in "app.call") describe it. Migrations come before Django makes the permissions of models.
    """
    permission_model = apps.get_model("auth", "Permission")
    permission = _made(apps, new, name=name, model=model)
    held = permission_model.objects.filter(pk__in=_ids(permission_model, to_holders_of))
    chosen = Q(permissions__in=held) | Q(name__in=to_groups)
    for group in apps.get_model("auth", "Group").objects.filter(chosen).distinct():
        group.permissions.add(permission)
    user_model = apps.get_model(settings.AUTH_USER_MODEL)
    if hasattr(user_model, "user_permissions"):  # a model of the host may have none
        for user in user_model._default_manager.filter(user_permissions__in=held).distinct():
            user.user_permissions.add(permission)


def _made(apps: Any, new: str, *, name: str, model: str) -> Any:
    app, codename = new.split(".")
    content_type, _ = apps.get_model("contenttypes", "ContentType").objects.get_or_create(
        app_label=app, model=model
    )
    permission, _ = apps.get_model("auth", "Permission").objects.get_or_create(
        content_type=content_type, codename=codename, defaults={"name": name}
    )
    return permission


def _ids(permission_model: Any, names: Collection[str]) -> list[Any]:
    pairs = (name.split(".") for name in names)
    return [
        pk
        for app, codename in pairs
        for pk in permission_model.objects.filter(
            content_type__app_label=app, codename=codename
        ).values_list("pk", flat=True)
    ]
