"""Who asks: the user is read again for every action, because a socket may outlive a sign-out (sync ORM)."""

from collections.abc import Callable
from functools import cache
from typing import Any, cast
from uuid import UUID

from django.contrib.auth import get_user_model
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser, PermissionsMixin
from django.db.models import F, QuerySet, UUIDField

from governance.prepared_statements import Select, fields_of
from turns.exceptions import ConversationNotFound, NotAllowed, TurnNotFound
from turns.models import Conversation, Turn

User = AbstractBaseUser | AnonymousUser
Asker = User | Callable[[], User]
"""Who asks, or a function that finds out who does, for the thread of the database."""

_TURN = Select(
    lambda turn_id: Turn.objects.select_related("conversation").order_by().filter(pk=turn_id),
    turn_id=UUIDField(),
)


def _with_owner(pk: Any) -> "QuerySet[Conversation]":
    rows = Conversation.objects.filter(pk=pk).order_by()
    return rows.annotate(is_owner_active=F("owner__is_active"))


CONVERSATION = Select(_with_owner, pk=UUIDField())
LOCKED_CONVERSATION = Select(
    lambda pk: _with_owner(pk).select_for_update(of=("self",)), pk=UUIDField()
)


def identified(asker: Asker) -> User:
    """Return who asks. Raise what finding out has raised."""
    return asker() if callable(asker) else asker


def reload(user: User) -> AbstractBaseUser:
    """Return the user as the database has it now. Raise `NotAllowed` if it is gone or deactivated."""
    fresh = _active_user().first(pk=user.pk) if user.pk else None
    if fresh is None:
        raise NotAllowed
    return fresh


@cache
def _active_user() -> "Select[AbstractBaseUser]":
    users = get_user_model()
    return Select(
        lambda pk: users._default_manager.filter(pk=pk, is_active=True), **fields_of(users, "pk")
    )


def conversation_for(
    user: User, conversation_id: UUID, *, permission: str | None = None, locks: bool = False
) -> Conversation:
    """Return a conversation of the user, or any to staff with `permission`. Raise `ConversationNotFound`.

    With `locks`, its row stays locked until the transaction ends, as with `log.locked`.
    """
    found: Any = (LOCKED_CONVERSATION if locks else CONVERSATION).first(pk=conversation_id)
    is_owner = found is not None and found.owner_id == user.pk and found.is_owner_active
    may_see = is_owner or _is_operator(reload(user), permission)
    if found is None or found.deleted_at or not may_see:
        raise ConversationNotFound
    return cast("Conversation", found)


def turn_for(user: User, turn_id: UUID, *, permission: str | None = None) -> Turn:
    """Return a turn of the user, or any to staff with `permission`. Raise `TurnNotFound` (C5)."""
    return turn_of(reload(user), turn_id, permission=permission)


def turn_of(fresh: AbstractBaseUser, turn_id: UUID, *, permission: str | None = None) -> Turn:
    """Return the same for a user who was read a moment ago."""
    turn = _TURN.first(turn_id=turn_id)
    if (
        turn is None
        or turn.conversation.deleted_at
        or not (turn.conversation.owner_id == fresh.pk or _is_operator(fresh, permission))
    ):
        raise TurnNotFound
    return turn


def sees_all(user: User) -> bool:
    """Return whether the user may see the turns of everybody."""
    return _is_operator(reload(user), "turns.view_all")


def _is_operator(user: AbstractBaseUser, permission: str | None) -> bool:
    if permission is None or not getattr(user, "is_staff", False):
        return False
    return isinstance(user, PermissionsMixin) and user.has_perm(permission)
