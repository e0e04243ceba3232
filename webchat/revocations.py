"""Notifies open sockets when the rights of their users have changed, so that they read them from the database again.

Receivers of Django's signals send the notification through the channel layer after the commit, so that it reaches all
processes. The heartbeat detects changes that send no signal, such as those by `queryset.update` or another program.
"""

from collections.abc import Iterable
from functools import partial
from typing import Any

from asgiref.sync import async_to_sync
from django.contrib.auth import get_user_model
from django.contrib.auth.models import AbstractBaseUser, Group, PermissionsMixin
from django.contrib.auth.signals import user_logged_out
from django.db.models import Model
from django.db.models.signals import m2m_changed, post_delete, post_save, pre_delete
from django.http import HttpRequest

from governance.db import on_commit
from webchat import broadcast
from webchat.identity import fingerprint
from webchat.models import ApiToken

UNRELATED = {"last_login"}  # fields of the user's row that change at each sign-in
M2M_CHANGES = {"post_add", "post_remove", "pre_clear"}


def connect() -> None:
    """Connect the receivers to the signals of all changes that may remove rights."""
    user_model = get_user_model()
    _connect(post_save, on_user_saved, sender=user_model)
    _connect(post_delete, on_user_deleted, sender=user_model)
    _connect(post_save, on_token_changed, sender=ApiToken)
    _connect(post_delete, on_token_changed, sender=ApiToken)
    _connect(user_logged_out, on_signed_out, sender=None)
    if issubclass(user_model, PermissionsMixin):
        _connect(m2m_changed, on_rights_changed, sender=user_model.user_permissions.through)
        _connect(m2m_changed, on_rights_changed, sender=user_model.groups.through)
        _connect(m2m_changed, on_group_changed, sender=Group.permissions.through)
        _connect(pre_delete, on_group_deleted, sender=Group)


def notify_users(user_ids: Iterable[Any]) -> None:
    """After the transaction commits, make the sockets of these users check their rights."""
    for user_id in set(user_ids):
        message = {"type": "user.changed"}
        on_commit(partial(_send, user_id, message), robust=True)


def on_signed_out(
    sender: object, *, request: HttpRequest | None, user: AbstractBaseUser | None, **_: Any
) -> None:
    if request is not None and user is not None:
        session = fingerprint(request.session.session_key)
        _send(user.pk, {"type": "user.signed_out", "session": session})


def on_user_saved(
    sender: object,
    *,
    instance: AbstractBaseUser,
    created: bool,
    update_fields: frozenset[str] | None = None,
    **_: Any,
) -> None:
    """Notify a user whose row was changed, for example because they were deactivated or are no longer staff."""
    if not created and not (update_fields and set(update_fields) <= UNRELATED):
        notify_users([instance.pk])


def on_user_deleted(sender: object, *, instance: AbstractBaseUser, **_: Any) -> None:
    notify_users([instance.pk])


def on_token_changed(sender: object, *, instance: ApiToken, **_: Any) -> None:
    """Notify the owner of a created, revoked or deleted token."""
    notify_users([instance.user_id])


def on_rights_changed(sender: object, *, action: str, **change: Any) -> None:
    """Notify users who gained or lost a permission or a group, from either side of the relation."""
    if action in M2M_CHANGES:
        notify_users(_owners_of_change("user_set", **change))


def on_group_changed(sender: object, *, action: str, **change: Any) -> None:
    """Notify the members of groups that gained or lost a permission, from either side of the relation."""
    if action in M2M_CHANGES:
        _notify_members(_owners_of_change("group_set", **change))


def _owners_of_change(
    owners: str, *, instance: Model, reverse: bool, pk_set: set[Any] | None, **_: Any
) -> list[Any]:
    """Return the ids of the objects whose relation changed. `owners` is the relation's name on the other side."""
    if not reverse:
        return [instance.pk]
    if pk_set is not None:
        return list(pk_set)
    # The relation is about to be cleared, so its owners must be read now.
    return list(getattr(instance, owners).values_list("pk", flat=True))


def on_group_deleted(sender: object, *, instance: Group, **_: Any) -> None:
    """Notify the members of a group that is about to be deleted."""
    _notify_members([instance.pk])


def _notify_members(group_ids: Iterable[Any]) -> None:
    user_model = get_user_model()
    members = user_model._default_manager.filter(groups__in=group_ids)
    if hasattr(
        user_model, "is_staff"
    ):  # other users see only their own conversations, regardless of their groups
        members = members.filter(is_staff=True)
    notify_users(members.values_list("pk", flat=True))


def _send(user_id: Any, message: dict[str, Any]) -> None:
    async_to_sync(broadcast.send_to_user)(user_id, message)


def _connect(signal: Any, receiver: Any, *, sender: Any) -> None:
    signal.connect(receiver, sender=sender, dispatch_uid=f"webchat.{receiver.__name__}")
