"""The administrators' choice of what happens to turns that nobody watches any more (C11; sync ORM)."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from django.db import transaction

from turns.models import DisconnectPolicy

FIELDS = ("policy", "grace_ms", "unattended_limit_ms")
RETURN_GRACE = timedelta(seconds=10)

Changes = dict[str, tuple[Any, Any]]


def read() -> DisconnectPolicy:
    """Return the policy in force; the defaults where nobody has set one."""
    return DisconnectPolicy.objects.filter(pk=1).first() or DisconnectPolicy(pk=1)


@transaction.atomic
def save(values: Mapping[str, Any]) -> Changes:
    """Change the policy; return what was changed: field → (old, new). It counts for turns that are left alone already.

    Raises:
        django.core.exceptions.ValidationError: a value makes no sense; words by field.
    """
    DisconnectPolicy.objects.get_or_create(pk=1)
    policy = DisconnectPolicy.objects.select_for_update().get(pk=1)
    changes = {
        name: (getattr(policy, name), values[name])
        for name in FIELDS
        if name in values and getattr(policy, name) != values[name]
    }
    for name, (_old, new) in changes.items():
        setattr(policy, name, new)
    if changes:
        policy.full_clean()
        policy.save()
    return changes


def grace_period(policy: DisconnectPolicy, *, is_clean_close: bool = False) -> timedelta | None:
    """Return how long turns may go on alone; None = as long as they like.

    "At once" is the moment at which the last viewer leaves. Who did not mean to (`is_clean_close` is False: the page
    reconnects, the server restarted, or the policy was another then) gets the time that a page needs to come back.
    """
    if policy.policy == DisconnectPolicy.CANCEL_AT_ONCE:
        return timedelta(0) if is_clean_close else RETURN_GRACE
    if policy.policy == DisconnectPolicy.DETACH:
        limit = policy.unattended_limit_ms
        return timedelta(milliseconds=limit) if limit else None
    return timedelta(milliseconds=policy.grace_ms)
