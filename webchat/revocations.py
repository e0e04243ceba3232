"""Notifies open sockets that the rights of their user have changed. Each then reads its rights from the database.

Receivers of Django's signals, after the commit, over the channel layer: so they reach the sockets of other processes.
What sends no signal (`queryset.update`, another program) is found by the heartbeat.
"""

from collections.abc import Iterable
from functools import partial
from typing import Any

from asgiref.sync import async_to_sync
from django.contrib.auth import get_user_model
from django.contrib.auth.models import AbstractBaseUser, Group, PermissionsMixin
from django.contrib.auth.signals import user_logged_out
from django.db import transaction
from django.db.models import Model
from django.db.models.signals import m2m_changed, post_delete, post_save, pre_delete
from django.http import HttpRequest

from webchat import broadcast
from webchat.identity import fingerprint
from webchat.models import ApiToken

UNRELATED = {"last_login"}  # what a sign-in writes on the user's row
M2M_CHANGES = {"post_add", "post_remove", "pre_clear"}


def connect() -> None:
    """Connect to all signals that may follow a lost right."""
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
    """Let the sockets of these users check their rights once the transaction is committed."""
    for user_id in set(user_ids):
        message = {"type": "user.changed"}
        transaction.on_commit(partial(_send, user_id, message), robust=True)


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
    """A user may have been switched off, or have another password, or be no staff any more."""
    if not created and not (update_fields and set(update_fields) <= UNRELATED):
        notify_users([instance.pk])


def on_user_deleted(sender: object, *, instance: AbstractBaseUser, **_: Any) -> None:
    notify_users([instance.pk])


def on_token_changed(sender: object, *, instance: ApiToken, **_: Any) -> None:
    """A token was made, revoked or deleted."""
    notify_users([instance.user_id])


def on_rights_changed(sender: object, *, action: str, **change: Any) -> None:
    """A user got or lost a permission or a group, from whichever side it was changed."""
    if action in M2M_CHANGES:
        notify_users(_owners_of_change("user_set", **change))


def on_group_changed(sender: object, *, action: str, **change: Any) -> None:
    """A group got or lost a permission, from whichever side it was changed."""
    if action in M2M_CHANGES:
        _notify_members(_owners_of_change("group_set", **change))


def _owners_of_change(
    owners: str, *, instance: Model, reverse: bool, pk_set: set[Any] | None, **_: Any
) -> list[Any]:
    """Return the ids of those whose relation was changed; `owners` is their name on its other side."""
    if not reverse:
        return [instance.pk]
    if pk_set is not None:
        return list(pk_set)
    # A group or a permission loses all of them: who they are is known before only.
    return list(getattr(instance, owners).values_list("pk", flat=True))


def on_group_deleted(sender: object, *, instance: Group, **_: Any) -> None:
    """A group is about to go, and with it what its members could do."""
    _notify_members([instance.pk])


def _notify_members(group_ids: Iterable[Any]) -> None:
    user_model = get_user_model()
    members = user_model._default_manager.filter(groups__in=group_ids)
    if hasattr(user_model, "is_staff"):  # nobody else sees more than his own, whatever his groups
        members = members.filter(is_staff=True)
    notify_users(members.values_list("pk", flat=True))


def _send(user_id: Any, message: dict[str, Any]) -> None:
    async_to_sync(broadcast.send_to_user)(user_id, message)


def _connect(signal: Any, receiver: Any, *, sender: Any) -> None:
    signal.connect(receiver, sender=sender, dispatch_uid=f"webchat.{receiver.__name__}")
