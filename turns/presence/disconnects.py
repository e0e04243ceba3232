"""The administrators' choice of what happens to turns that nobody watches any more (C11; sync ORM)."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction

from governance import audit
from governance.audit import Editor
from turns.models import DisconnectPolicy, DisconnectPolicyChange

FIELDS = ("policy", "grace_ms", "unattended_limit_ms")
RETURN_GRACE = timedelta(seconds=10)


def read() -> DisconnectPolicy:
    """Return the policy in force; the defaults where nobody has set one."""
    return DisconnectPolicy.objects.filter(pk=1).first() or DisconnectPolicy(pk=1)


@transaction.atomic
def save(values: Mapping[str, Any], *, by: Editor = None, seen: datetime | None = None) -> str:
    """Change the policy; return what was changed in words. It counts for turns that are left alone already.

    `seen` is the `updated_at` that the editor has seen.

    Raises:
        django.core.exceptions.ValidationError: a value makes no sense, or somebody else has edited it; words by field.
    """
    DisconnectPolicy.objects.get_or_create(pk=1)
    policy = DisconnectPolicy.objects.select_for_update().get(pk=1)
    changes = audit.edit(policy, values, fields=FIELDS, seen=seen)
    if not changes:
        return ""
    policy.full_clean()
    policy.save()
    change = audit.record(DisconnectPolicyChange, policy, action="change", changes=changes, by=by)
    return change.summary


def grace_period(policy: DisconnectPolicy, *, is_clean_close: bool = False) -> timedelta | None:
    """Return how long turns may go on alone; None = as long as they like.

    "At once" is the moment at which the last viewer leaves. Somebody who did not mean to leave gets the time that a
    page needs to come back. Then `is_clean_close` is False: the page reconnects, the server restarted, or the policy
    was another.
    """
    if policy.policy == DisconnectPolicy.CANCEL_AT_ONCE:
        return timedelta(0) if is_clean_close else RETURN_GRACE
    if policy.policy == DisconnectPolicy.DETACH:
        limit = policy.unattended_limit_ms
        return timedelta(milliseconds=limit) if limit else None
    return timedelta(milliseconds=policy.grace_ms)
