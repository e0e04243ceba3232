"""Edits of agents: the one way for the admin and for code. Each is audited with the old and the new values (sync ORM)."""

from datetime import datetime
from typing import TypedDict

from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils.translation import gettext as _

from governance import audit
from governance.audit import Changes, Editor
from turns.chat_models.catalog import public_name
from turns.models import Agent, AgentChange


class AgentValues(TypedDict, total=False):
    """The fields of an agent that may be edited; what is left out stays as it is. Its name is for good."""

    description: str
    samples: list[str]
    placeholder: str
    instructions: str
    chat_model: str
    tools: list[str] | None
    approval: str
    turn_timeout_ms: int | None
    step_limit: int | None
    max_parallel_calls: int | None
    token_limit: int | None
    is_enabled: bool
    is_default: bool


FIELDS = tuple(AgentValues.__annotations__)


@transaction.atomic
def save_agent(
    *, name: str, values: AgentValues, by: Editor, seen: datetime | None = None
) -> AgentChange | None:
    """Add or change an agent; return the audit entry, or None if nothing changes. Turns that begin from now on obey.

    `seen` is the `updated_at` that the editor has seen. Making an agent the default one takes that from the other.

    Raises:
        django.core.exceptions.ValidationError: a value makes no sense, or somebody else has edited it; words by field.
    """
    agent = _locked().get(name) or Agent(name=name)
    is_new = agent.pk is None
    was_default = agent.is_default
    changes = audit.edit(agent, values, fields=FIELDS, seen=seen)
    if not changes and not is_new:
        return None
    if was_default and not agent.is_default:
        raise _refused(
            "is_default",
            _("One agent is the default always. Make another one the default instead."),
        )
    if "chat_model" in changes:
        check_may_name(agent.chat_model, by=by)
    agent.full_clean(validate_unique=is_new, validate_constraints=False)
    if agent.is_default and not was_default:
        _take_default(by=by)
    agent.save()
    return _note(agent, action="add" if is_new else "change", changes=changes, by=by)


@transaction.atomic
def delete_agent(*, name: str, by: Editor) -> AgentChange | None:
    """Delete an agent; its conversations stay, and say that it is gone. Return the audit entry.

    Raises:
        django.core.exceptions.ValidationError: it is the default one.
    """
    agent = _locked().get(name)
    if agent is None:
        return None
    if agent.is_default:
        raise ValidationError(
            _("“%(name)s” is the default agent. Make another one the default first."),
            params={"name": name},
        )
    change = _note(agent, action="delete", changes=audit.deleted(agent, FIELDS), by=by)
    agent.delete()
    return change


def check_may_name(chat_model: str, *, by: Editor) -> None:
    """Raise `ValidationError` if a path into this site's code is named by somebody who could not run code otherwise."""
    if not chat_model or public_name(chat_model) or by is None:
        return
    if not getattr(by, "is_superuser", False):
        raise _refused(
            "chat_model",
            _(
                "Write “local”, or one of a provider such as “anthropic:claude-sonnet-5-5”. Only a superuser may name "
                "a path, since its code is run here."
            ),
        )


def _locked() -> dict[str, Agent]:
    """Every agent, locked: edits queue up here, so that the default one never races."""
    return {agent.name: agent for agent in Agent.objects.select_for_update().order_by("pk")}


def _take_default(*, by: Editor) -> None:
    """Read again: while this edit waited for its locks, another one may have added a default agent."""
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
