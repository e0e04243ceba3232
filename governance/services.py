"""Edits of the administrators' limits, for admin forms, admin actions and the API alike (T9, acceptance 94)."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any

from django.core.exceptions import ValidationError
from django.db.models.functions import Now
from django.utils.translation import gettext as _

from governance import audit, selectors, temporary_limits, validation
from governance.audit import Changes, EditConflict, Editor
from governance.conf import app_settings, setting_limits
from governance.core.exceptions import GovernanceError
from governance.core.policy import PolicyLevels, ToolLimits, resolve
from governance.db import atomic
from governance.durations import limit_ms
from governance.models import DefaultPolicy, Limits, PolicyChange, ToolPolicy
from governance.models.policies import IS_OVER, REVERTS, REVERTS_AS
from governance.policies import SYSTEM, read_policies
from governance.selectors import OfferedTool
from governance.signals import policy_changed


def _edited_fields(model: type[Limits]) -> tuple[str, ...]:
    fields = (field for field in model._meta.concrete_fields if not field.primary_key)
    unedited = ("tool_name", "revision")
    return tuple(field.name for field in fields if field.editable and field.name not in unedited)


_BLANK = ToolPolicy()
DEFAULT_FIELDS, TOOL_FIELDS = _edited_fields(DefaultPolicy), _edited_fields(ToolPolicy)


class PolicyConflict(EditConflict, GovernanceError):
    """The same limits were edited in the meantime; nothing was saved."""


@atomic()
def save_default_policy(
    *, values: Mapping[str, Any], by: Editor, revision: int | None = None, reason: str = ""
) -> PolicyChange | None:
    """Change the default limits. Return the audit entry, or None if nothing changed.

    Pass the `revision` that the editor has seen, so that a later edit is not overwritten. `reason` is stored in the
    audit.

    Raises:
        PolicyConflict: the row was edited since `revision`.
        django.core.exceptions.ValidationError: a value is invalid; the error has messages by field.
    """
    policy = _locked_default()
    changes = audit.edit(
        policy, values, fields=DEFAULT_FIELDS, version=revision, conflict=PolicyConflict
    )
    if not changes:
        return None
    policy.full_clean()
    check_idle_limit(policy)
    policy.revision += 1
    policy.save()
    return _publish(policy, default=policy, action="change", changes=changes, by=by, reason=reason)


@atomic()
def save_tool_policy(
    *,
    tool_name: str,
    values: Mapping[str, Any],
    by: Editor,
    revision: int | None = None,
    reason: str = "",
    until: datetime | None = None,
    tool: OfferedTool | None = None,
) -> PolicyChange | None:
    """Add or change the limits of one tool. Return the audit entry, or None if nothing changed.

    `revision` is the revision that the editor has seen; 0 means that the tool had no limits. `reason` is stored in the
    audit. Values set with `until` apply until that time; then the earlier values apply again. A later edit of the same
    fields without `until` replaces both. Pass `tool` for a tool that only another process has.

    Raises:
        PolicyConflict: the row was added, edited or deleted since `revision`.
        django.core.exceptions.ValidationError: a value is invalid, or the tool is unknown; the error has messages by
            field.
    """
    end_temporary_limits()
    default = _locked_default()
    policy = ToolPolicy.objects.filter(tool_name=tool_name).first() or ToolPolicy(
        tool_name=tool_name
    )
    changes = audit.edit(
        policy, values, fields=TOOL_FIELDS, version=revision, conflict=PolicyConflict
    )
    changes |= temporary_limits.set_end(policy, until, changes)
    return _store(policy, default=default, changes=changes, by=by, reason=reason, tool=tool)


def _store(
    policy: ToolPolicy,
    *,
    default: DefaultPolicy,
    changes: Changes,
    by: Editor,
    reason: str,
    tool: OfferedTool | None,
) -> PolicyChange | None:
    """Check and save a row, and publish its changes. Without changes, store nothing and return None."""
    is_new = policy.pk is None
    if is_new and tool is None:
        _check_tool_name(policy.tool_name)
    if is_new:
        # Continues from a deleted row's revision, which an editor may still have loaded.
        policy.revision = PolicyChange.objects.filter(tool_name=policy.tool_name).count()
    if not changes:
        return None
    policy.full_clean()
    for state in temporary_limits.states_of(policy):
        check_idle_limit(state, tool)
    policy.revision += 1
    policy.save()
    action = "add" if is_new else "change"
    return _publish(policy, default=default, action=action, changes=changes, by=by, reason=reason)


def check_idle_limit(policy: Limits, tool: OfferedTool | None = None) -> None:
    """Raise `ValidationError` if an idle limit is above the total limit, which may come from a weaker level."""
    total_ms = policy.timeout_ms
    if total_ms is None:
        total_ms = _inherited_total_ms(policy, tool)
    if problem := validation.idle_problem(policy.idle_timeout_ms, total_ms):
        raise ValidationError({"idle_timeout_ms": [problem]})


def _inherited_total_ms(policy: Limits, tool: OfferedTool | None) -> int:
    """Return the total limit that this row inherits. The default row has no tool, so it inherits from the settings."""
    name = getattr(policy, "tool_name", "")
    if not name:
        return limit_ms(resolve(PolicyLevels(setting=setting_limits())).timeout)
    tool = tool or selectors.find_tool(name)
    levels = read_policies().levels_of(name, declared=tool.limits if tool else ToolLimits())
    return limit_ms(resolve(replace(levels, override=ToolLimits())).timeout)


@atomic()
def delete_tool_policy(
    *, tool_name: str, by: Editor, revision: int | None = None, reason: str = ""
) -> PolicyChange | None:
    """Delete the limits of one tool, so that it inherits from the next level (acceptance 12).

    Return the audit entry, or None if there were no such limits.

    Raises:
        PolicyConflict: the row was edited since `revision`.
    """
    end_temporary_limits()
    default = _locked_default()
    policy = ToolPolicy.objects.filter(tool_name=tool_name).first()
    if policy is None:
        return None
    audit.edit(policy, {}, fields=TOOL_FIELDS, version=revision, conflict=PolicyConflict)
    changes = audit.deleted(policy, TOOL_FIELDS) | temporary_limits.removal_of_end(policy)
    change = _publish(
        policy, default=default, action="delete", changes=changes, by=by, reason=reason
    )
    policy.delete()
    return change


@atomic()
def end_temporary_limits() -> list[PolicyChange]:
    """Store the end of temporary limits that have expired, and return the audit entries. The limits stopped applying
    when their end passed on the database's clock, whether or not this function has been called.
    """
    expired = ToolPolicy.objects.filter(until__lte=Now())
    if not expired.exists():
        return []
    default = _locked_default()
    return [_end_temporary(policy, default=default) for policy in expired.all()]


def _end_temporary(policy: ToolPolicy, *, default: DefaultPolicy) -> PolicyChange:
    changes = temporary_limits.changes_at_end(policy)
    policy.end_temporary()
    has_limits = any(getattr(policy, name) != getattr(_BLANK, name) for name in TOOL_FIELDS)
    action = "change" if has_limits else "delete"
    publish = partial(_publish, policy, default=default, action=action, changes=changes)
    change = publish(by=None, reason=IS_OVER, where=SYSTEM)
    if has_limits:
        policy.revision += 1
        policy.save()
    else:
        policy.delete()
    return change


@atomic()
def revert_change(
    change: PolicyChange, *, by: Editor, reason: str = "", tool: OfferedTool | None = None
) -> PolicyChange | None:
    """Restore the values from before an edit, including the end of a temporary limit. Return the audit entry.

    Pass `tool` for a tool that only another process has.

    Raises:
        PolicyConflict: one of the fields was edited again since.
        django.core.exceptions.ValidationError: the old values are no longer valid, or their end has passed; the error
            has messages by field.
    """
    reason = reason.strip()
    why = (REVERTS_AS if reason else REVERTS) % {"version": change.version, "why": reason}
    if change.tool_name:
        return _revert_tool(change, by=by, reason=why, tool=tool)
    return _revert_default(change, by=by, reason=why)


def _revert_default(change: PolicyChange, *, by: Editor, reason: str) -> PolicyChange | None:
    row = _locked_default()
    values = _values_before(change, row, {field: getattr(row, field) for field in DEFAULT_FIELDS})
    return save_default_policy(values=values, by=by, reason=reason)


def _revert_tool(
    change: PolicyChange, *, by: Editor, reason: str, tool: OfferedTool | None
) -> PolicyChange | None:
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
    return _store(policy, default=default, changes=changes, by=by, reason=reason, tool=tool)


def _values_of(policy: ToolPolicy) -> dict[str, Any]:
    """Return all editable values in the form that the audit stores."""
    return {field: getattr(policy, field) for field in TOOL_FIELDS} | temporary_limits.end_of(
        policy
    )


def _values_before(change: PolicyChange, row: Limits, now: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values before an edit. Raise `PolicyConflict` if a later edit has changed one of them."""
    blank = {field: getattr(type(row)(), field) for field in now}
    changes = {field: both for field, both in change.changes.items() if field in now}
    for field, (_old, new) in changes.items():
        if now[field] != (blank[field] if new is None else new):
            raise PolicyConflict(row)
    return {field: blank[field] if old is None else old for field, (old, _new) in changes.items()}


def _locked_default() -> DefaultPolicy:
    """Return the default row, locked, so that edits of all policies happen one after the other."""
    DefaultPolicy.objects.get_or_create(pk=1)
    return DefaultPolicy.objects.select_for_update().get(pk=1)


def _check_tool_name(tool_name: str) -> None:
    """Refuse an unknown tool. A tool of an MCP server is known from the server's row, even without a connection."""
    if selectors.find_tool(tool_name) is None:
        known_names = ", ".join(tool.name for tool in selectors.offered_tools()) or _("none")
        problem = _("There is no tool named “%(name)s”. The tools of this site: %(known)s.")
        raise ValidationError({"tool_name": [problem % {"name": tool_name, "known": known_names}]})


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
    """Increase the version, write the audit entry, and notify this process after the commit."""
    if by is not None and app_settings.LIMIT_NOTE_REQUIRED and not reason.strip():
        raise ValidationError(
            _("Enter a reason. This site requires one for each change of a limit.")
        )
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
