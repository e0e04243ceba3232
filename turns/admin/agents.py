"""Admin of agents: who answers, with what, and how much of it. Every edit is audited and counts for the next turn."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from django.contrib import admin, messages
from django.contrib.auth.base_user import AbstractBaseUser
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import OuterRef, QuerySet, Subquery
from django.http import HttpRequest, HttpResponse
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from governance import selectors
from governance.admin.formatting import NOTHING, format_time
from governance.admin.links import anchor, reader_of
from governance.admin.mixins import AuditedAdmin, DurationsAdmin, PreparedRowsAdmin
from governance.admin.readonly import ReadOnlyAdmin
from governance.admin.time_filter import ANY, time_filter
from governance.call_links import Link
from governance.durations import format_duration
from governance.selectors import OfferedTool
from turns.admin.agent_forms import AgentForm
from turns.admin.turn_links import turns_address
from turns.agents import edits
from turns.agents.offers import Offer, offer
from turns.chat_models.catalog import problem_of
from turns.conf import app_settings
from turns.core.tool_names import ToolNames
from turns.models import Agent, AgentChange, Turn
from turns.selectors import translations

_HEAVY = 10_000  # tokens of tools in each request, from which on it is worth a word

if TYPE_CHECKING:
    AgentModelAdmin = admin.ModelAdmin[Agent]
else:
    AgentModelAdmin = admin.ModelAdmin


@admin.register(Agent)
class AgentAdmin(
    PreparedRowsAdmin[Agent], AuditedAdmin[Agent], DurationsAdmin[Agent], AgentModelAdmin
):
    """The agents. What is saved here counts for the turns that begin from then on."""

    form = AgentForm
    list_display = [
        "name",
        "description",
        "model_in_force",
        "tool_list",
        "limits",
        "is_enabled",
        "is_default",
        "last_used",
    ]
    search_fields = ["name", "description"]
    actions = ["make_default"]
    readonly_fields = ["sample_list", "tool_list", "tool_weight", "last_used", "turns"]
    fieldsets = [
        (
            None,
            {
                "fields": [
                    "name",
                    "description",
                    "is_enabled",
                    "is_default",
                    "turns",
                    "seen",
                    "accepted",
                ]
            },
        ),
        (gettext_lazy("What it is"), {"fields": ["instructions", "chat_model"]}),
        (gettext_lazy("How a conversation begins"), {"fields": ["samples", "placeholder"]}),
        (
            gettext_lazy("What it may use"),
            {
                "fields": [
                    "which_tools",
                    "ticked_tools",
                    "named_tools",
                    "tool_weight",
                    "approval",
                ]
            },
        ),
        (
            gettext_lazy("How much"),
            {"fields": ["turn_timeout_ms", "step_limit", "max_parallel_calls", "token_limit"]},
        ),
    ]
    readable_fieldsets = [
        (
            None,
            {"fields": ["name", "description", "is_enabled", "is_default", "last_used", "turns"]},
        ),
        (gettext_lazy("What it is"), {"fields": ["instructions", "chat_model"]}),
        (gettext_lazy("How a conversation begins"), {"fields": ["sample_list", "placeholder"]}),
        (
            gettext_lazy("What it may use"),
            {"fields": ["tool_list", "tool_weight", "approval"]},
        ),
        (
            gettext_lazy("How much"),
            {"fields": ["turn_timeout_ms", "step_limit", "max_parallel_calls", "token_limit"]},
        ),
    ]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Agent]:
        """Add when each was used last, in the same query."""
        turns = Turn.objects.filter(agent=OuterRef("name")).order_by("-queued_at")
        return (
            super().get_queryset(request).annotate(used_at=Subquery(turns.values("queued_at")[:1]))
        )

    def get_fieldsets(self, request: HttpRequest, obj: Agent | None = None) -> Any:
        """Show those who may not edit the values in words."""
        may_edit = self.has_change_permission(request, obj) if obj else True
        fieldsets = self.fieldsets if may_edit else self.readable_fieldsets
        return self.with_units(request, fieldsets, obj)

    def get_readonly_fields(self, request: HttpRequest, obj: Agent | None = None) -> Any:
        """An agent keeps its name: conversations and other agents call it so."""
        return [*super().get_readonly_fields(request, obj), *(["name"] if obj else [])]

    def get_form(
        self,
        request: HttpRequest,
        obj: Agent | None = None,
        change: bool = False,  # noqa: FBT001, FBT002 - Django's signature
        **kwargs: Any,
    ) -> Any:
        form = super().get_form(request, obj, change, **kwargs)
        return type(form.__name__, (form,), {"editor": request.user})

    def has_delete_permission(self, request: HttpRequest, obj: Agent | None = None) -> bool:
        """The default agent stays."""
        is_default = obj is not None and obj.is_default
        return not is_default and super().has_delete_permission(request, obj)

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """Answer a deletion that is refused with words; say which agents have too many tools."""
        if request.method == "GET" and self.has_view_permission(request):
            tools = selectors.offered_tools()
            for agent in Agent.objects.filter(is_enabled=True):
                if problem := translations.sentence(_offer(agent, tools).problem):
                    self.message_user(request, f"{agent.name}: {problem}", messages.WARNING)
        try:
            return super().changelist_view(request, extra_context)
        except ValidationError as refused:
            return self.refused(request, refused)

    def save_model(self, request: HttpRequest, obj: Agent, form: Any, change: bool) -> None:  # noqa: FBT001
        """Save what the editor has changed, and only that."""
        form = cast(AgentForm, form)
        values: Any = {name: form.cleaned_data[name] for name in form.edited}
        saved = edits.save_agent(
            name=obj.name, values=values, by=_editor(request), seen=form.loaded_updated_at
        )
        stored = Agent.objects.get(name=obj.name)
        obj.pk = stored.pk
        if saved is not None:
            text = _("Agent “%(name)s”: %(changes)s. Turns that begin from now on obey.")
            words = {"name": obj.name, "changes": saved.summary.rstrip(".") or _("added")}
            self.message_user(request, text % words, messages.INFO)
        for warning in _warnings(stored):
            self.message_user(request, warning, messages.WARNING)

    def delete_model(self, request: HttpRequest, obj: Agent) -> None:
        edits.delete_agent(name=obj.name, by=_editor(request))

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Agent]) -> None:
        """Delete every agent through the service, all or none."""
        with transaction.atomic():
            for name in list(queryset.values_list("name", flat=True)):
                edits.delete_agent(name=name, by=_editor(request))

    @admin.action(
        permissions=["change"], description=gettext_lazy("Make the selected agent the default one")
    )
    def make_default(self, request: HttpRequest, queryset: QuerySet[Agent]) -> HttpResponse | None:
        """Take the default from the agent that has it."""
        names = list(queryset.values_list("name", flat=True))
        if len(names) != 1:
            return self.refuse_action(request, _("Select one agent."))
        try:
            edits.save_agent(name=names[0], values={"is_default": True}, by=_editor(request))
        except ValidationError as refused:
            return self.refuse_action(request, " ".join(refused.messages))
        text = _("“%(name)s” is the default agent now.")
        self.message_user(request, text % {"name": names[0]}, messages.SUCCESS)
        return None

    @admin.display(description=gettext_lazy("chat model"))
    def model_in_force(self, obj: Agent) -> str:
        """The chat model that answers, and whose choice it is."""
        if obj.chat_model:
            return obj.chat_model
        return _("%(name)s (the project's)") % {"name": app_settings.CHAT_MODEL}

    @admin.display(description=gettext_lazy("tools"))
    def tool_list(self, obj: Agent) -> str:
        return AgentChange.describe_value("tools", obj.tools)

    @admin.display(description=gettext_lazy("samples"))
    def sample_list(self, obj: Agent) -> str:
        """The messages to begin with, one in each line."""
        return "\n".join(obj.samples) or NOTHING

    @admin.display(description=gettext_lazy("in each request"))
    def tool_weight(self, obj: Agent) -> str:
        """How many tools each request of it carries, and about what they weigh."""
        offered = _offer(obj)
        count = len(offered.tools)
        text = ngettext(
            "%(count)d tool, about %(tokens)d tokens.",
            "%(count)d tools, about %(tokens)d tokens.",
            count,
        )
        words = text % {"count": count, "tokens": offered.tokens}
        return f"{words} {translations.sentence(offered.problem)}".rstrip()

    @admin.display(description=gettext_lazy("limits"))
    def limits(self, obj: Agent) -> str:
        """Its own limits; a dash where the project's count."""
        return ", ".join(_limits(obj)) or NOTHING

    @admin.display(description=gettext_lazy("turns"))
    def turns(self, obj: Agent) -> SafeString | str:
        if obj._state.adding:
            return NOTHING
        address = turns_address(reader_of(obj), agent=obj.name, when=ANY)
        return anchor(Link(_("All turns of this agent"), address)) if address else NOTHING

    @admin.display(description=gettext_lazy("last used"), ordering="used_at")
    def last_used(self, obj: Agent) -> Any:
        """When it was asked last."""
        return format_time(getattr(obj, "used_at", None))


@admin.register(AgentChange)
class AgentChangeAdmin(ReadOnlyAdmin):
    """Every edit of an agent, newest first."""

    list_display = ["at", "agent_name", "action", "summary", "by_name"]
    list_filter = [time_filter("at"), "action"]
    search_fields = ["agent_name", "by_name"]
    search_help_text = gettext_lazy("Agent, or who made the change")
    fields = ["at", "agent_name", "action", "summary", "by_name"]
    readonly_fields = ["summary"]

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Whoever may see the agents may see their history."""
        may_see_agents = request.user.has_perm("turns.view_agent")
        return may_see_agents or super().has_view_permission(request, obj)

    @admin.display(description=gettext_lazy("old → new"))
    def summary(self, obj: AgentChange) -> str:
        return obj.summary


def _editor(request: HttpRequest) -> AbstractBaseUser:
    return cast(AbstractBaseUser, request.user)  # the admin lets nobody else in


def _limits(agent: Agent) -> list[str]:
    words = []
    if agent.turn_timeout_ms is not None:
        words.append(
            format_duration(agent.turn_timeout_ms) if agent.turn_timeout_ms else _("no turn limit")
        )
    if (n := agent.step_limit) is not None:
        words.append(ngettext("%(n)d step", "%(n)d steps", n) % {"n": n})
    if (n := agent.max_parallel_calls) is not None:
        words.append(ngettext("%(n)d call at once", "%(n)d calls at once", n) % {"n": n})
    if (n := agent.token_limit) is not None:
        words.append(ngettext("%(n)d token", "%(n)d tokens", n) % {"n": n})
    return words


def _offer(agent: Agent, tools: Sequence[OfferedTool] | None = None) -> Offer[OfferedTool]:
    chat_model = agent.chat_model or app_settings.CHAT_MODEL
    offered = selectors.offered_tools() if tools is None else tools
    return offer(offered, agent.tools, chat_model=chat_model)


def _weight_problem(offered: Offer[OfferedTool]) -> str:
    if offered.tokens <= _HEAVY:
        return ""
    text = _(
        "Its %(count)d tools take about %(tokens)d tokens of each request, before a word is said. Choose fewer under "
        "“only these”."
    )
    return text % {"count": len(offered.tools), "tokens": offered.tokens}


def _warnings(agent: Agent) -> list[str]:
    """What does not keep an agent from being saved, but may keep it from answering as it is meant to."""
    found = []
    if agent.is_enabled and (problem := problem_of(agent.chat_model or app_settings.CHAT_MODEL)):
        found.append(translations.sentence(str(problem)))
    known = [tool.name for tool in selectors.offered_tools()]
    offered = _offer(agent)
    if words := translations.sentence(offered.problem) or _weight_problem(offered):
        found.append(words)
    unknown = [
        name for name in agent.tools or () if not any(tool in ToolNames([name]) for tool in known)
    ]
    if unknown:
        text = _("No tool is named %(names)s now; it counts once there is one.")
        found.append(text % {"names": ", ".join(f"“{name}”" for name in unknown)})
    return found
