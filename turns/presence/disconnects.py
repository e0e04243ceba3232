"""The administrators' policy for turns without viewers (C11).

The functions here use the synchronous ORM.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from governance import audit
from governance.audit import Editor
from governance.db import atomic
from turns.models import DisconnectPolicy, DisconnectPolicyChange

FIELDS = ("policy", "grace_ms", "unattended_limit_ms")
RETURN_GRACE = timedelta(seconds=10)


def read() -> DisconnectPolicy:
    """Return the current policy, or the defaults if none is stored."""
    return DisconnectPolicy.objects.filter(pk=1).first() or DisconnectPolicy(pk=1)


@atomic()
def save(values: Mapping[str, Any], *, by: Editor = None, version: datetime | None = None) -> str:
    """Change the policy; return a description of the change. It also applies to turns that already lack viewers.

    `version` is the `updated_at` that the editor saw.

    Raises: django.core.exceptions.ValidationError: a value is invalid, or another person has edited the policy. The
    exception contains the messages by field.
    """
    DisconnectPolicy.objects.get_or_create(pk=1)
    policy = DisconnectPolicy.objects.select_for_update().get(pk=1)
    changes = audit.edit(policy, values, fields=FIELDS, version=version)
    if not changes:
        return ""
    policy.full_clean()
    policy.save()
    change = audit.record(DisconnectPolicyChange, policy, action="change", changes=changes, by=by)
    return change.summary


def grace_period(policy: DisconnectPolicy, *, is_clean_close: bool = False) -> timedelta | None:
    """Return how long turns may continue without viewers; None means indefinitely.

    If the policy is to cancel immediately, a clean close ends them when the last viewer leaves. If the close was not
    clean, the page has time to reconnect, for example after a restart of the server.
    """
    if policy.policy == DisconnectPolicy.CANCEL_AT_ONCE:
        return timedelta(0) if is_clean_close else RETURN_GRACE
    if policy.policy == DisconnectPolicy.DETACH:
        limit = policy.unattended_limit_ms
        return timedelta(milliseconds=limit) if limit else None
    return timedelta(milliseconds=policy.grace_ms)
