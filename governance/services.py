"""Edits of the administrators' limits: the one way for admin forms, admin actions and API (T9, acceptance 94)."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any

from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models.functions import Now
from django.utils.translation import gettext as _

from governance import audit, selectors, temporary_limits, validation
from governance.audit import Changes, EditConflict, Editor
from governance.conf import app_settings, setting_limits
from governance.core.exceptions import GovernanceError
from governance.core.policy import PolicyLevels, ToolLimits, resolve
from governance.durations import limit_ms
from governance.models import DefaultPolicy, Limits, PolicyChange, ToolPolicy
from governance.models.policies import IS_OVER, REVERTS, REVERTS_AS
from governance.policies import SYSTEM, read_policies
from governance.signals import policy_changed


def _edited_fields(model: type[Limits]) -> tuple[str, ...]:
    fields = (field for field in model._meta.concrete_fields if not field.primary_key)
    kept = ("tool_name", "revision")
    return tuple(field.name for field in fields if field.editable and field.name not in kept)


_BLANK = ToolPolicy()
DEFAULT_FIELDS, TOOL_FIELDS = _edited_fields(DefaultPolicy), _edited_fields(ToolPolicy)


class PolicyConflict(EditConflict, GovernanceError):
    """The same limits were edited in the meantime; nothing was saved."""


@transaction.atomic
def save_default_policy(
    *, values: Mapping[str, Any], by: Editor, revision: int | None = None, reason: str = ""
) -> PolicyChange | None:
    """Change the default limits; return the audit entry, or None if nothing changed.

    With the `revision` that the editor has seen, a later edit is never overwritten. `reason` says why.

    Raises:
        PolicyConflict: the row was edited since `revision`.
        django.core.exceptions.ValidationError: a value makes no sense; words by field.
    """
    policy = _locked_default()
    changes = audit.edit(
        policy, values, fields=DEFAULT_FIELDS, seen=revision, conflict=PolicyConflict
    )
    if not changes:
        return None
    policy.full_clean()
    check_idle_limit(policy)
    policy.revision += 1
    policy.save()
    return _publish(policy, default=policy, action="change", changes=changes, by=by, reason=reason)


@transaction.atomic
def save_tool_policy(
    *,
    tool_name: str,
    values: Mapping[str, Any],
    by: Editor,
    revision: int | None = None,
    reason: str = "",
    until: datetime | None = None,
) -> PolicyChange | None:
    """Add or change the limits of one tool; return the audit entry, or None if nothing changed.

    `revision` is the one that the editor has seen; 0 = the tool had no limits. `reason` says why. What is set `until` a
    moment gives way to the values before it. Another edit of the same fields replaces both.

    Raises:
        PolicyConflict: the row was added, edited or deleted since `revision`.
        django.core.exceptions.ValidationError: a value makes no sense, or the tool is unknown; words by field.
    """
    end_temporary_limits()
    default = _locked_default()
    policy = ToolPolicy.objects.filter(tool_name=tool_name).first() or ToolPolicy(
        tool_name=tool_name
    )
    changes = audit.edit(policy, values, fields=TOOL_FIELDS, seen=revision, conflict=PolicyConflict)
    changes |= temporary_limits.set_end(policy, until, changes)
    return _store(policy, default=default, changes=changes, by=by, reason=reason)


def _store(
    policy: ToolPolicy, *, default: DefaultPolicy, changes: Changes, by: Editor, reason: str
) -> PolicyChange | None:
    """Check and save a changed row. No row is stored that says nothing."""
    is_new = policy.pk is None
    if is_new:
        _check_tool_name(policy.tool_name)
        # It counts on from a deleted row, whose revision an editor may still have.
        policy.revision = PolicyChange.objects.filter(tool_name=policy.tool_name).count()
    if not changes:
        return None
    policy.full_clean()
    for state in temporary_limits.states_of(policy):
        check_idle_limit(state)
    policy.revision += 1
    policy.save()
    action = "add" if is_new else "change"
    return _publish(policy, default=default, action=action, changes=changes, by=by, reason=reason)


def check_idle_limit(policy: Limits) -> None:
    """Raise `ValidationError` if an idle limit is above the total one, which may come from a weaker level."""
    total_ms = policy.timeout_ms if policy.timeout_ms is not None else _inherited_total_ms(policy)
    if problem := validation.idle_problem(policy.idle_timeout_ms, total_ms):
        raise ValidationError({"idle_timeout_ms": [problem]})


def _inherited_total_ms(policy: Limits) -> int:
    """The total limit that counts where this row sets none. The default row knows no tool: the settings count."""
    name = getattr(policy, "tool_name", "")
    if not name:
        return limit_ms(resolve(PolicyLevels(setting=setting_limits())).timeout)
    tool = selectors.find_tool(name)
    levels = read_policies().levels_of(name, declared=tool.limits if tool else ToolLimits())
    return limit_ms(resolve(replace(levels, override=ToolLimits())).timeout)


@transaction.atomic
def delete_tool_policy(
    *, tool_name: str, by: Editor, revision: int | None = None, reason: str = ""
) -> PolicyChange | None:
    """Take the limits of one tool away, so that the next level counts (acceptance 12).

    Return the audit entry, or None if there were no such limits.

    Raises:
        PolicyConflict: the row was edited since `revision`.
    """
    end_temporary_limits()
    default = _locked_default()
    policy = ToolPolicy.objects.filter(tool_name=tool_name).first()
    if policy is None:
        return None
    audit.edit(policy, {}, fields=TOOL_FIELDS, seen=revision, conflict=PolicyConflict)
    changes = audit.deleted(policy, TOOL_FIELDS) | temporary_limits.removal_of_end(policy)
    change = _publish(
        policy, default=default, action="delete", changes=changes, by=by, reason=reason
    )
    policy.delete()
    return change


@transaction.atomic
def end_temporary_limits() -> list[PolicyChange]:
    """Write down that temporary limits are over; they are so anyway, by the database's clock."""
    over = ToolPolicy.objects.filter(until__lte=Now())
    if not over.exists():
        return []
    default = _locked_default()
    return [_end_temporary(policy, default=default) for policy in over.all()]


def _end_temporary(policy: ToolPolicy, *, default: DefaultPolicy) -> PolicyChange:
    changes = temporary_limits.changes_at_end(policy)
    policy.end_temporary()
    is_left = any(getattr(policy, name) != getattr(_BLANK, name) for name in TOOL_FIELDS)
    action = "change" if is_left else "delete"
    publish = partial(_publish, policy, default=default, action=action, changes=changes)
    change = publish(by=None, reason=IS_OVER, where=SYSTEM)
    if is_left:
        policy.revision += 1
        policy.save()
    else:
        policy.delete()
    return change


@transaction.atomic
def revert_change(change: PolicyChange, *, by: Editor, reason: str = "") -> PolicyChange | None:
    """Set what an edit has changed back to what it was, an end too; return the audit entry of that.

    Raises:
        PolicyConflict: something of it was edited again since.
        django.core.exceptions.ValidationError: the old values make no sense any more, or their end is over; words by
            field.
    """
    reason = reason.strip()
    why = (REVERTS_AS if reason else REVERTS) % {"version": change.version, "why": reason}
    revert = _revert_tool if change.tool_name else _revert_default
    return revert(change, by=by, reason=why)


def _revert_default(change: PolicyChange, *, by: Editor, reason: str) -> PolicyChange | None:
    row = _locked_default()
    values = _values_before(change, row, {field: getattr(row, field) for field in DEFAULT_FIELDS})
    return save_default_policy(values=values, by=by, reason=reason)


def _revert_tool(change: PolicyChange, *, by: Editor, reason: str) -> PolicyChange | None:
    name = change.tool_name
    end_temporary_limits()
    default = _locked_default()
    policy = ToolPolicy.objects.filter(tool_name=name).first() or ToolPolicy(tool_name=name)
    now = _values_of(policy)
    values = _values_before(change, policy, now)
    for field in values.keys() & set(TOOL_FIELDS):
        setattr(policy, field, values[field])
    temporary_limits.put_back(policy, values)
    if _values_of(policy) == _values_of(_BLANK):
        return delete_tool_policy(tool_name=name, by=by, reason=reason)
    changes = {
        field: [now[field], new] for field, new in _values_of(policy).items() if new != now[field]
    }
    return _store(policy, default=default, changes=changes, by=by, reason=reason)


def _values_of(policy: ToolPolicy) -> dict[str, Any]:
    """Everything that an edit may change, as the audit keeps it."""
    return {field: getattr(policy, field) for field in TOOL_FIELDS} | temporary_limits.end_of(
        policy
    )


def _values_before(change: PolicyChange, row: Limits, now: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the fields of an edit were. Refuse if one of them is no longer what the edit has made of it."""
    blank = {field: getattr(type(row)(), field) for field in now}
    changes = {field: both for field, both in change.changes.items() if field in now}
    for field, (_old, new) in changes.items():
        if now[field] != (blank[field] if new is None else new):
            raise PolicyConflict(row)
    return {field: blank[field] if old is None else old for field, (old, _new) in changes.items()}


def _locked_default() -> DefaultPolicy:
    """The one default row, locked: edits of all policies queue up here, so versions and revisions never race."""
    DefaultPolicy.objects.get_or_create(pk=1)
    return DefaultPolicy.objects.select_for_update().get(pk=1)


def _check_tool_name(tool_name: str) -> None:
    """A tool of an MCP server is known by the server's row, even without a connection."""
    if selectors.find_tool(tool_name) is None:
        known = ", ".join(tool.name for tool in selectors.offered_tools()) or _("none")
        problem = _("There is no tool named “%(name)s”. The tools of this site: %(known)s.")
        raise ValidationError({"tool_name": [problem % {"name": tool_name, "known": known}]})


def _publish(
    policy: Limits,
    *,
    default: DefaultPolicy,
    action: str,
    changes: Changes,
    by: Editor,
    reason: str,
    where: str = "",
) -> PolicyChange:
    """Move the version, write the audit, and tell this process once the edit is committed."""
    if by is not None and app_settings.LIMIT_NOTE_REQUIRED and not reason.strip():
        raise ValidationError(_("Say why: this site keeps a reason with each change of a limit."))
    default.version += 1
    DefaultPolicy.objects.filter(pk=default.pk).update(version=default.version)
    return audit.record(
        PolicyChange,
        policy,
        action=action,
        changes=changes,
        by=by,
        where=where,
        signal=policy_changed,
        tool_name=getattr(policy, "tool_name", ""),
        version=default.version,
        reason=reason.strip(),
    )
