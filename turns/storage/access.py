"""Who asks: the user is read anew for every action, because a socket may outlive a sign-out (sync ORM)."""

from uuid import UUID

from django.contrib.auth import get_user_model
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser, PermissionsMixin

from turns.exceptions import ConversationNotFound, NotAllowed, TurnNotFound
from turns.models import Conversation, Turn

User = AbstractBaseUser | AnonymousUser


def reload(user: User) -> AbstractBaseUser:
    """Return the user as the database has it now. Raise `NotAllowed` if it is gone or deactivated."""
    fresh = (
        get_user_model()._default_manager.filter(pk=user.pk, is_active=True).first()
        if user.pk
        else None
    )
    if fresh is None:
        raise NotAllowed
    return fresh


def conversation_for(
    user: User, conversation_id: UUID, *, permission: str | None = None
) -> Conversation:
    """Return a conversation of the user, or any to staff with `permission`. Raise `ConversationNotFound`."""
    fresh = reload(user)
    conversation = Conversation.objects.filter(pk=conversation_id).first()
    if conversation is None or not (
        conversation.owner_id == fresh.pk or _is_operator(fresh, permission)
    ):
        raise ConversationNotFound
    return conversation


def turn_for(user: User, turn_id: UUID, *, permission: str | None = None) -> Turn:
    """Return a turn of the user, or any to staff with `permission`. Raise `TurnNotFound` (C5)."""
    fresh = reload(user)
    turn = Turn.objects.select_related("conversation").filter(pk=turn_id).first()
    if turn is None or not (
        turn.conversation.owner_id == fresh.pk or _is_operator(fresh, permission)
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
