"""Access control. The user is read again for every action, because a socket may outlive a sign-out.

The functions here use the synchronous ORM.
"""

from collections.abc import Callable
from typing import Any, cast
from uuid import UUID

from django.contrib.auth import get_user_model
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser, PermissionsMixin
from django.db.models import F
from django.db.models.functions import Now

from turns.exceptions import ConversationNotFound, NotAllowed, TurnNotFound
from turns.models import Conversation, Turn

User = AbstractBaseUser | AnonymousUser
Asker = User | Callable[[], User]
"""The user, or a function that determines the user in a database thread."""


def identified(asker: Asker) -> User:
    """Return the user. If `asker` is a function, call it to get the user; its exceptions are passed on."""
    return asker() if callable(asker) else asker


def reload(user: User) -> AbstractBaseUser:
    """Return the current row of the user. Raise `NotAllowed` if it is gone or deactivated."""
    users = get_user_model()._default_manager
    fresh = users.filter(pk=user.pk, is_active=True).first() if user.pk else None
    if fresh is None:
        raise NotAllowed
    return fresh


def conversation_for(
    user: User, conversation_id: UUID, *, permission: str | None = None, locks: bool = False
) -> Conversation:
    """Return a conversation of the user, or any conversation for staff with `permission`. Raise
    `ConversationNotFound`.

    With `locks`, its row is locked until the transaction ends, as with `log.locked`.
    """
    rows: Any = Conversation.objects.annotate(is_owner_active=F("owner__is_active"))
    if locks:
        rows = rows.select_for_update(of=("self",)).annotate(read_at=Now())
    row = rows.filter(pk=conversation_id).first()
    is_owner = row is not None and row.owner_id == user.pk and row.is_owner_active
    may_see = is_owner or _is_operator(reload(user), permission)
    if row is None or row.deleted_at or not may_see:
        raise ConversationNotFound
    return cast("Conversation", row)


def turn_for(user: User, turn_id: UUID, *, permission: str | None = None) -> Turn:
    """Return a turn of the user, or any turn for staff with `permission`. Raise `TurnNotFound` (C5)."""
    return turn_of(reload(user), turn_id, permission=permission)


def turn_of(fresh: AbstractBaseUser, turn_id: UUID, *, permission: str | None = None) -> Turn:
    """Return a turn as `turn_for` does, but for a user whose row was just read."""
    turn = Turn.objects.select_related("conversation").filter(pk=turn_id).first()
    if (
        turn is None
        or turn.conversation.deleted_at
        or not (turn.conversation.owner_id == fresh.pk or _is_operator(fresh, permission))
    ):
        raise TurnNotFound
    return turn


def sees_all(user: User) -> bool:
    """Return whether the user may see the turns of all users."""
    return _is_operator(reload(user), "turns.view_all")


def may_cancel_any(user: User) -> bool:
    """Return whether the user may cancel the turns of all users."""
    return _is_operator(reload(user), "turns.cancel_any")


def _is_operator(user: AbstractBaseUser, permission: str | None) -> bool:
    if permission is None or not getattr(user, "is_staff", False):
        return False
    return isinstance(user, PermissionsMixin) and user.has_perm(permission)
