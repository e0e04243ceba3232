"""Which permissions open which page of the admin, as the docs tell it; a test visits every page with each."""

from collections.abc import Iterator
from typing import Any

from django.contrib import admin
from django.contrib.auth import get_user_model
from django.db.models import Model
from django.urls import reverse

from governance.models import DefaultPolicy, McpServer, McpServerChange, ToolCall, ToolPolicy
from turns.models import (
    Agent,
    AgentChange,
    CancelledTurn,
    DisconnectPolicy,
    DisconnectPolicyChange,
    Process,
    Repair,
    RunningTurn,
)
from webchat.models import ApiToken

APPS = ("governance", "turns", "webchat")
Needs = tuple[frozenset[str], ...]  # one permission of each set; no permission is in an empty one

NOBODY: Needs = (frozenset(),)
OF_SUPERUSERS: Needs = (frozenset({"superuser"}),)
FORGET: Needs = (frozenset({"turns.forget_user"}),)
EXPORT = frozenset({"governance.export"})

SEEN_WITH = {
    AgentChange: {"turns.view_agentchange", "turns.change_agentchange", "turns.view_agent"},
    CancelledTurn: {"turns.view_cancelrequest"},
    DisconnectPolicyChange: {"turns.view_disconnectpolicy"},
    McpServerChange: {"superuser"},
    RunningTurn: {"turns.view_turn"},
}
EDITED = {
    Agent: {"add", "change", "delete"},
    ApiToken: {"add"},
    DefaultPolicy: {"change"},
    DisconnectPolicy: {"change"},
    ToolPolicy: {"add", "change", "delete"},
}
NOT_EXPORTED = (Process, RunningTurn)
OWN_PAGES: dict[str, tuple[type[Model], tuple[str, ...]]] = {
    "cancel_latency": (CancelledTurn, ()),
    "defaultpolicy_in_force": (DefaultPolicy, ()),
    "overview": (RunningTurn, ()),
    "repairs_by_day": (Repair, ()),
    "top_lists": (ToolCall, ()),
    "toolpolicy_in_force": (ToolPolicy, ()),
    "toolpolicy_tool": (ToolPolicy, ("exec",)),
}


def our_admins() -> list[Any]:
    """Every admin of the project that the site has registered."""
    registered = admin.site._registry.values()
    return [model_admin for model_admin in registered if model_admin.opts.app_label in APPS]


def permission(model: type[Model], verb: str) -> str:
    return f"{model._meta.app_label}.{verb}_{model._meta.model_name}"


def sees(model: type[Model]) -> Needs:
    """What opens the list of a model, and what only shows a row of it."""
    usual = {permission(model, verb) for verb in ("view", "change")}
    return (frozenset(SEEN_WITH.get(model, usual)),)


def edits(model: type[Model], verb: str) -> Needs:
    if model is McpServer:
        return OF_SUPERUSERS
    if verb in EDITED.get(model, ()):
        return (frozenset({permission(model, verb)}),)
    return NOBODY


def pages_of(model_admin: Any) -> Iterator[tuple[str, Needs]]:
    """Every address that a model's admin answers, each with what opens it."""
    model = model_admin.model
    row = model._default_manager.last()
    for pattern in model_admin.get_urls():
        if not pattern.name:
            continue
        name = pattern.name.removeprefix(f"{model._meta.app_label}_")
        view = name.removeprefix(f"{model._meta.model_name}_")
        if name == "forget_user":
            person = get_user_model()._default_manager.get(username="ada")
            yield reverse(f"admin:{pattern.name}", args=[person.pk]), FORGET
        elif name in OWN_PAGES:
            owner, args = OWN_PAGES[name]
            yield reverse(f"admin:{pattern.name}", args=args), sees(owner)
        elif view == "export":
            needs = NOBODY if model in NOT_EXPORTED else (*sees(model), EXPORT)
            for format in ("csv", "json"):
                yield reverse(f"admin:{pattern.name}", args=[format]), needs
        else:
            needs = edits(model, view) if view in ("add", "delete") else sees(model)
            about = [] if view in ("add", "changelist") else [row.pk]
            yield reverse(f"admin:{pattern.name}", args=about), needs


def opens(held: frozenset[str], needs: Needs) -> bool:
    if "superuser" in held:
        return needs is not NOBODY
    return all(held & alternatives for alternatives in needs)
