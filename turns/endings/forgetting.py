"""Forgets a person: removes the content of their conversations, and replaces their name in the remaining records (sync
ORM).

The conversations are deleted as if the person had deleted them: they are hidden immediately, and emptied when
everything in them has ended. Rows of turns, calls, cancels and decisions are kept until `prune`.
"""

import secrets
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any
from uuid import UUID

from django.apps import apps
from django.contrib.auth import get_user_model
from django.contrib.auth.base_user import AbstractBaseUser
from django.contrib.auth.models import PermissionsMixin
from django.db.models import Model, Q, QuerySet

from governance import CancelSource, activity, approval_store, recorder
from governance.db import atomic
from turns.attachments import rows as attachments
from turns.core.events import EVENTS, ConversationResumed
from turns.core.turns import TurnStatus
from turns.endings import deletions
from turns.events.notifications import Notifications
from turns.exceptions import ConversationNotFound, NotAllowed
from turns.models import (
    Attachment,
    CancelRequest,
    Conversation,
    DeadlineOrder,
    Event,
    MessageTally,
    Turn,
)
from turns.signals import user_forgotten
from turns.storage import retention

PERMISSION = "turns.forget_user"
_PSEUDONYM = "forgotten-"
_NAMES = ("first_name", "last_name")


@dataclass(frozen=True, slots=True, kw_only=True)
class Requester:
    """A request to forget a person: who makes it and why. `origin` identifies a requester without an account."""

    user: AbstractBaseUser | None = None
    origin: str = ""
    why: str = ""

    @property
    def name(self) -> str:
        return self.user.get_username()[:150] if self.user else self.origin


def may_forget(user: Any, *, by: Any) -> bool:
    """Return whether `by` may forget this person. Users cannot forget themselves, and only superusers can
    forget staff.
    """
    if user.pk == by.pk or not by.has_perm(PERMISSION):
        return False
    is_staff = getattr(user, "is_staff", False) or getattr(user, "is_superuser", False)
    return not is_staff or bool(by.is_superuser)


def count(user: AbstractBaseUser) -> dict[str, int]:
    """Return the amount of a person's content by kind, and the number of other people's records with their name."""
    name = user.get_username()
    turns = Turn.objects.filter(conversation__owner=user.pk)
    own_files = Attachment.objects.filter(owner=user.pk)
    notes = CancelRequest.objects.filter(Q(by=user.pk) | Q(turn__conversation__owner=user.pk))
    return {
        "conversations": Conversation.objects.filter(owner=user.pk).count(),
        **asdict(retention.count_contents(turns)),
        "attachments": own_files.count(),
        "notes": notes.exclude(note="").count(),
        "names": count_events(user, name=name) + activity.count_of_person(user.pk, name),
    }


def forget(user_id: Any, requester: Requester) -> Notifications:
    """Forget a person, and return the notifications to send. This is idempotent.

    Raises: NotAllowed: the requester may not forget this person.
    """
    user: Any = get_user_model()._default_manager.get(pk=user_id)
    if requester.user is not None and not may_forget(user, by=requester.user):
        raise NotAllowed
    counts = count(user)
    with atomic():
        _close_account(user, requester, counts)
    notifications = Notifications()
    own = Conversation.objects.filter(owner=user.pk, parent=None, deleted_at=None)
    for conversation_id in list(own.order_by("pk").values_list("pk", flat=True)):
        with suppress(ConversationNotFound):  # its owner has just deleted it
            hidden = deletions.hide_as(
                conversation_id,
                by_id=requester.user.pk if requester.user else None,
                name=requester.name,
                source=CancelSource.ADMIN if requester.user else CancelSource.POLICY,
            )
            notifications.add(hidden.notifications)
    attachments.mark_for_removal(Attachment.objects.filter(owner=user.pk))
    return notifications


def _close_account(user: Any, requester: Requester, counts: dict[str, int]) -> None:
    """Replace the person's name everywhere with a pseudonym, and close the account."""
    old = user.get_username()
    new = old if old.startswith(_PSEUDONYM) else f"{_PSEUDONYM}{secrets.token_hex(4)}"
    rename_in_events(user, old=old, new=new)  # first, because names in other records lead to events
    CancelRequest.objects.filter(by=user.pk).update(note="")
    approval_store.remove_reasons(user.pk)
    DeadlineOrder.objects.filter(by_name=old).update(note="", by_name=new)
    Turn.objects.filter(ended_by_name=old).update(ended_by_name=new)
    for model in _signed_models():
        rows = model._default_manager.filter(by=user.pk).exclude(by_name=new)
        if rows.exists():  # skip empty tables, because the site's database role may have no right to change the audit
            rows.update(by_name=new)
    recorder.rename_person(old, new)
    activity.rename_person(old, new)
    MessageTally.objects.filter(user=user.pk).delete()
    _empty_account(user, new)
    removed = {name: number for name, number in counts.items() if number}
    by_id = requester.user.pk if requester.user else None
    activity.record(
        "deletion",
        "forget",
        subject=new,
        changes=removed,
        why=requester.why,
        by_id=by_id,
        by_name=requester.name,
    )
    user_forgotten.send(sender=type(user), user=user, old_name=old, new_name=new)


def _signed_models() -> Iterator[type[Model]]:
    """Return the models whose rows have an author."""
    for model in apps.get_models():
        names = {field.name for field in model._meta.concrete_fields}
        if {"by", "by_name"} <= names and not model._meta.proxy:
            yield model


def _empty_account(user: Any, name: str) -> None:
    setattr(user, user.USERNAME_FIELD, name)
    fields = {field.name for field in user._meta.concrete_fields}
    email = type(user).get_email_field_name()
    for field in fields & {*_NAMES, email} - {user.USERNAME_FIELD}:
        setattr(user, field, "")
    for field in fields & {"is_active", "is_staff", "is_superuser"}:
        setattr(user, field, False)
    user.set_unusable_password()
    user.save()
    if isinstance(user, PermissionsMixin):
        user.groups.clear()
        user.user_permissions.clear()


_KEYS = ("by", "changed_by", "allowed_earlier_by")
_ENDED_BY = "ended_by"  # an object whose `by` is the name
_TYPES = [
    type for type, event in EVENTS.items() if event.field_types().keys() & {*_KEYS, _ENDED_BY}
]
_PIECE = 500  # turns per query, and rows per update


def count_events(user: AbstractBaseUser, *, name: str) -> int:
    """Return how many events of other people's conversations name a person."""
    return sum(
        rows.exclude(conversation__owner=user.pk).count() for rows in _naming(user, name=name)
    )


def rename_in_events(user: AbstractBaseUser, *, old: str, new: str) -> None:
    """Replace the name of a person in all events. Call it while other records still have the old name."""
    for rows in _naming(user, name=old):
        batch = list(rows.only("payload"))
        for event in batch:
            event.payload = _renamed(event.payload, old, new)
        Event.objects.bulk_update(batch, ["payload"], batch_size=_PIECE)


def _naming(user: AbstractBaseUser, *, name: str) -> "Iterator[QuerySet[Event]]":
    """Yield the events that name a person. They are searched in the turns in which the person acted, because events
    have no index of names.
    """
    is_named = Q(**{f"payload__{_ENDED_BY}__by": name})
    for key in _KEYS:
        is_named |= Q(**{f"payload__{key}": name})
    turn_ids = sorted(_turns(user, name=name))
    for start in range(0, len(turn_ids), _PIECE):
        few = turn_ids[start : start + _PIECE]
        yield Event.objects.filter(is_named, turn__in=few, type__in=_TYPES).order_by()


def _turns(user: AbstractBaseUser, *, name: str) -> set[UUID]:
    """Return the turns in which a person cancelled, decided, changed a limit, or resumed the conversation."""
    groups, scopes = map(_ids, approval_store.decided_by(user.pk))
    requests = CancelRequest.objects.filter(Q(by=user.pk) | Q(by_name=name))
    orders = DeadlineOrder.objects.filter(by_name=name)
    # The later turns of a conversation name the person who allowed a tool for the whole conversation.
    conversations = Turn.objects.filter(conversation__in=scopes)
    interrupted = Turn.objects.order_by().filter(status=TurnStatus.INTERRUPTED)
    parked = interrupted.values("conversation")  # this includes conversations that were not parked
    resumed = Event.objects.filter(
        conversation__in=parked, type=ConversationResumed.type, payload__by=name
    )
    ended = Turn.objects.filter(ended_by_name=name)
    return {
        *groups,
        *requests.values_list("turn", flat=True),
        *orders.values_list("turn", flat=True),
        *conversations.values_list("pk", flat=True),
        *resumed.order_by().values_list("turn", flat=True),
        *ended.values_list("pk", flat=True),
    }


def _ids(texts: Iterable[str]) -> list[UUID]:
    """Return the ids among groups or scopes; other apps that use governance may choose any text."""
    ids = []
    for text in texts:
        with suppress(ValueError):
            ids.append(UUID(text))
    return ids


def _renamed(payload: dict[str, Any], old: str, new: str) -> dict[str, Any]:
    names: dict[str, Any] = {key: new for key in _KEYS if payload.get(key) == old}
    ended_by = payload.get(_ENDED_BY)
    if isinstance(ended_by, dict) and ended_by.get("by") == old:
        names[_ENDED_BY] = {**ended_by, "by": new}
    return {**payload, **names}
