"""Edits agents, for the admin and for code. Each edit is audited with the old and the new values.

The functions here use the synchronous ORM.
"""

from datetime import datetime
from typing import Any, TypedDict

from django.contrib.auth.models import Group
from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _

from governance import audit
from governance.audit import Changes, Editor
from governance.db import atomic
from turns.chat_models.catalog import public_name
from turns.models import Agent, AgentChange


class AgentValues(TypedDict, total=False):
    """The editable fields of an agent; missing fields are unchanged. The name cannot be changed."""

    description: str
    samples: list[str]
    placeholder: str
    instructions: str
    chat_model: str
    fallback_models: list[str]
    temperature: float | None
    top_p: float | None
    max_tokens: int | None
    effort: str
    stop_sequences: list[str]
    parallel_calls: bool | None
    cache_retention: str
    media: str
    window: int | None
    tools: list[str] | None
    groups: list[str]
    approval: str
    turn_timeout_ms: int | None
    step_limit: int | None
    max_parallel_calls: int | None
    token_limit: int | None
    first_byte_timeout_ms: int | None
    idle_timeout_ms: int | None
    request_timeout_ms: int | None
    is_enabled: bool
    is_default: bool


FIELDS = tuple(AgentValues.__annotations__)
_COLUMNS = tuple(name for name in FIELDS if name != "groups")


@atomic()
def save_agent(
    *, name: str, values: AgentValues, by: Editor, version: datetime | None = None
) -> AgentChange | None:
    """Add or change an agent; return the audit entry, or None if nothing changes. Turns that start afterwards use
    the new values.

    Groups are given by name. `version` is the `updated_at` that the editor saw. Making an agent the default replaces the
    previous default.

    Raises: django.core.exceptions.ValidationError: a value is invalid, or another person has edited the agent. The
    exception contains the messages by field.
    """
    agent = _locked().get(name) or Agent(name=name)
    is_new = agent.pk is None
    was_default = agent.is_default
    columns: Any = {name: value for name, value in values.items() if name != "groups"}
    changes = audit.edit(agent, columns, fields=_COLUMNS, version=version)
    groups = _groups_named(values["groups"]) if "groups" in values else None
    if groups is not None and (old := _names_of_groups(agent)) != sorted(groups):
        changes["groups"] = [old, sorted(groups)]
    if not changes and not is_new:
        return None
    if was_default and not agent.is_default:
        raise _refused(
            "is_default",
            _("There must be a default agent. Make another agent the default instead."),
        )
    if "chat_model" in changes:
        check_may_name(agent.chat_model, by=by)
    if "fallback_models" in changes:
        check_may_fall_back(changes["fallback_models"][0], agent.fallback_models, by=by)
    agent.full_clean(validate_unique=is_new, validate_constraints=False)
    if agent.is_default and not was_default:
        _take_default(by=by)
    agent.save()
    if groups is not None:
        agent.groups.set(groups.values())
    return _note(agent, action="add" if is_new else "change", changes=changes, by=by)


@atomic()
def delete_agent(*, name: str, by: Editor) -> AgentChange | None:
    """Delete an agent and return the audit entry. Its conversations remain and show that the agent is gone.

    Raises: django.core.exceptions.ValidationError: it is the default agent.
    """
    agent = _locked().get(name)
    if agent is None:
        return None
    if agent.is_default:
        raise ValidationError(
            _("“%(name)s” is the default agent. Make another one the default first."),
            params={"name": name},
        )
    changes = audit.deleted(agent, _COLUMNS)
    if groups := _names_of_groups(agent):
        changes["groups"] = [groups, None]
    change = _note(agent, action="delete", changes=changes, by=by)
    agent.delete()
    return change


def check_may_fall_back(before: Any, names: Any, *, by: Editor) -> None:
    """Raise `ValidationError` if the fallback models contain a new path that the editor may not name."""
    for name in names if isinstance(names, list) else ():
        if name not in (before or ()):
            check_may_name(str(name), by=by, field="fallback_models")


def check_may_name(chat_model: str, *, by: Editor, field: str = "chat_model") -> None:
    """Raise `ValidationError` if an editor who may not run code names a path into this site's code."""
    if not chat_model or public_name(chat_model) or by is None:
        return
    if not getattr(by, "is_superuser", False):
        raise _refused(
            field,
            _(
                "Enter “local” or a provider’s model such as “anthropic:claude-sonnet-5-5”. Only a superuser may enter a path, because its code is executed here."
            ),
        )


def _groups_named(names: list[str]) -> dict[str, Group]:
    groups = {group.name: group for group in Group.objects.filter(name__in=names)}
    if missing := sorted(set(names) - groups.keys()):
        raise _refused("groups", _("There is no group named “%(name)s”.") % {"name": missing[0]})
    return groups


def _names_of_groups(agent: Agent) -> list[str]:
    return sorted(agent.groups.values_list("name", flat=True)) if agent.pk else []


def _locked() -> dict[str, Agent]:
    """Lock and return every agent, so that concurrent edits cannot both change the default."""
    return {agent.name: agent for agent in Agent.objects.select_for_update().order_by("pk")}


def _take_default(*, by: Editor) -> None:
    """Remove the default from other agents. They are read again, because another edit may have added a default while
    this one waited for its locks.
    """
    for other in Agent.objects.select_for_update().filter(is_default=True):
        other.is_default = False
        other.save(update_fields=["is_default", "updated_at"])
        _note(other, action="change", changes={"is_default": [True, False]}, by=by)


def _note(agent: Agent, *, action: str, changes: Changes, by: Editor) -> AgentChange:
    return audit.record(
        AgentChange, agent, action=action, changes=changes, by=by, agent_name=agent.name
    )


def _refused(field: str, problem: str) -> ValidationError:
    return ValidationError({field: [problem]})
