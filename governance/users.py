"""The users for whom calls run. They are looked up each time, with the manager and routers of the host's user model."""

from typing import Any

from asgiref.sync import sync_to_async
from django.contrib.auth import get_user_model

from governance.db import run_in_host_thread


class DjangoUsers:
    """The users of a Django project."""

    def typed(self, user_id: Any) -> Any:
        """Convert an id, which was passed to a worker process as JSON, to the type of the user model's key."""
        return get_user_model()._meta.pk.to_python(user_id)

    async def find(self, user_id: Any) -> Any:
        """Return the user, or None if there is no user with this id. The query runs in the call's database thread."""
        return await sync_to_async(self.find_blocking)(user_id)

    def find_blocking(self, user_id: Any) -> Any:
        """Return the user, or None if there is no user with this id."""
        return get_user_model()._default_manager.filter(pk=user_id).first()

    async def has_permission(self, user_id: Any, permission: str) -> bool:
        """Return whether there is an active user with this id who has the permission now."""
        return await _has_permission(user_id, permission)


@run_in_host_thread
def _has_permission(user_id: Any, permission: str) -> bool:
    user = DjangoUsers().find_blocking(user_id) if user_id is not None else None
    if user is None or not user.is_active:
        return False
    has_perm = getattr(user, "has_perm", None)  # a user model may have no permissions
    return has_perm is not None and bool(has_perm(permission))
