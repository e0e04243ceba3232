"""Admin pages for agents: chat model, tools and limits. Every edit is audited, and applies to turns that start later.

The form detects conflicting edits, shows durations with units, and offers tools as checkboxes.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.widgets import FilteredSelectMultiple
from django.contrib.auth.models import Group
from django.core.exceptions import ValidationError
from django.db.models import OuterRef, QuerySet, Subquery
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import Truncator
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from console import tools
from console.filters import ANY
from console.formats import NOTHING, Column, format_time
from console.links import Link, anchor, reader_of, turns_address
from console.lists import EditedList, section
from console.tool_rows import reporters_text
from console.usage_words import usage_words
from governance import selectors
from governance.admin import editor_of
from governance.audit import Editor
from governance.db import atomic
from governance.durations import format_duration
from governance.form_fields import LinesField, VersionedForm
from governance.selectors import OfferedTool
from turns.agents import edits
from turns.agents.lookup import ToolNames, chat_settings_of
from turns.agents.offers import Offer, offer
from turns.chat_models.providers import endpoints, ignored_settings, problem_of
from turns.conf import app_settings
from turns.models import Agent, AgentChange, Turn
from turns.models.validation import ANSWER_LIMITS, tools_problem
from turns.selectors import translations, usage_of

ALL, SOME = "all", "some"
WIDE = {"class": "radiolist"}  # the admin's own style for labels that fill a line
DESCRIPTION_SHOWN = 90
_GROUPS: Any = Agent._meta.get_field("groups")
_WHAT = section(gettext_lazy("Identity"), "instructions", "chat_model", "fallback_models")
_HOW = section(
    gettext_lazy("Chat model"),
    "effort", "temperature", "top_p", "max_tokens", "stop_sequences", "parallel_calls", "cache_retention", "media",
    "window",
)  # fmt: skip
_HOW_IN_WORDS = section(
    gettext_lazy("Chat model"),
    "effort", "temperature", "top_p", "max_tokens", "stop_list", "parallel_calls", "cache_retention", "media", "window",
)  # fmt: skip
_WHAT_IN_WORDS = section(gettext_lazy("Identity"), "instructions", "chat_model", "fallback_list")
_HOW_MUCH = section(
    gettext_lazy("Limits"), "turn_timeout_ms", "step_limit", "max_parallel_calls", "token_limit"
)
_HOW_LONG = section(gettext_lazy("Time limit for one answer of the chat model"), *ANSWER_LIMITS)
_HEAVY = 10_000  # tokens of tools in each request, above which the page shows a warning


class AgentForm(VersionedForm):
    """The form of one agent. Three fields select its tools: all or some, checkboxes, and additional names."""

    editor: Editor = None

    which_tools = forms.ChoiceField(
        label=gettext_lazy("Tools"),
        widget=forms.RadioSelect(attrs=WIDE),
        choices=[
            (ALL, gettext_lazy("all tools, including those added later")),
            (SOME, gettext_lazy("only these")),
        ],
        initial=ALL,
    )
    ticked_tools = forms.MultipleChoiceField(
        required=False,
        label=gettext_lazy("Only these"),
        widget=forms.CheckboxSelectMultiple(attrs=WIDE),
    )
    named_tools = LinesField(
        label=gettext_lazy("Additional tools"),
        help_text=gettext_lazy(
            "Names of tools added later, one per line. A final asterisk matches any ending: “github_*”."
        ),
    )

    samples = LinesField(
        label=gettext_lazy("Sample messages"),
        help_text=gettext_lazy(
            "Messages to start with, one per line, at most four. Blank = the samples of the local chat model; none for other models."
        ),
    )

    fallback_models = LinesField(
        label=gettext_lazy("Fallback models"),
        help_text=gettext_lazy(
            "Chat models, one per line. If a model refuses service, is overloaded or takes too long to start answering, the next one answers, and the chat says so."
        ),
    )
    stop_sequences = LinesField(
        label=gettext_lazy("Stop sequences"),
        help_text=gettext_lazy(
            "The answer stops before any of these strings. Enter one per line, at most four."
        ),
    )

    given_to = forms.ModelMultipleChoiceField(
        Group.objects.order_by("name"),
        required=False,
        widget=FilteredSelectMultiple(_GROUPS.verbose_name, is_stacked=False),
        label=gettext_lazy("Groups"),
        help_text=_GROUPS.help_text,
    )

    class Meta:
        model = Agent
        fields = ["name", *(name for name in edits.FIELDS if name not in {"tools", "groups"})]
        widgets = {
            "description": forms.TextInput(attrs={"size": 80}),
            "placeholder": forms.TextInput(attrs={"size": 40}),
            "instructions": forms.Textarea(attrs={"rows": 8, "cols": 80}),
            "chat_model": forms.TextInput(attrs={"size": 40, "spellcheck": "false"}),
        }
        help_texts = {
            "turn_timeout_ms": gettext_lazy("0 = no limit. Blank = the project’s default.")
        }
        error_messages = {
            "name": {"unique": gettext_lazy("An agent with this name already exists.")}
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._fill_in_tools()
        if self.instance.pk:
            self.initial["given_to"] = self.instance.groups.all()
        if (chat_model := self.fields.get("chat_model")) is not None:
            chat_model.widget.attrs["placeholder"] = app_settings.CHAT_MODEL
            if names := ", ".join(f"{name}:…" for name in endpoints()):
                words = _("Endpoints of this site: %(names)s.") % {"names": names}
                chat_model.help_text = f"{chat_model.help_text} {words}"

    @property
    def edited(self) -> list[str]:
        """Return the names of the agent's fields that the editor changed."""
        names = [name for name in self.changed_data if name in edits.FIELDS]
        groups = ["groups"] if "given_to" in self.changed_data else []
        return [*names, *groups, *(["tools"] if self._has_other_tools() else [])]

    def clean_chat_model(self) -> str:
        """Refuse a forbidden path before it is imported."""
        name: str = self.cleaned_data["chat_model"].strip()
        if name != self.instance.chat_model:
            try:
                edits.check_may_name(name, by=self.editor)
            except ValidationError as refused:
                raise ValidationError(refused.messages) from None
        return name

    def clean_fallback_models(self) -> list[str]:
        """Refuse a forbidden path before it is imported."""
        names: list[str] = self.cleaned_data["fallback_models"]
        try:
            edits.check_may_fall_back(self.instance.fallback_models, names, by=self.editor)
        except ValidationError as refused:
            raise ValidationError(refused.messages) from None
        return names

    def clean_named_tools(self) -> list[str]:
        names: list[str] = self.cleaned_data["named_tools"]
        if problem := tools_problem(names):
            raise ValidationError(problem)
        return names

    def clean(self) -> dict[str, Any] | None:
        """Merge the tool fields, and compare the revision that the editor saw with the current one."""
        cleaned = super().clean()
        if "named_tools" in self.cleaned_data and "ticked_tools" in self.cleaned_data:
            self.cleaned_data["tools"] = self._tools()
        if "given_to" in self.cleaned_data:
            self.cleaned_data["groups"] = [group.name for group in self.cleaned_data["given_to"]]
        self.refuse_stale(AgentChange.objects.filter(agent_name=self.instance.name))
        self.warn()
        return cleaned

    def _get_validation_exclusions(self) -> set[str]:
        # A second default agent is valid here, because the service moves the default to it.
        excluded: set[str] = super()._get_validation_exclusions()  # type: ignore[misc]  # not in the stubs
        return excluded | {"is_default"}

    def _fill_in_tools(self) -> None:
        if "ticked_tools" not in self.fields:  # the reader may not edit
            return
        all_tools, prefixes = tools.offered(), selectors.mcp_prefixes()
        self.fields["ticked_tools"].choices = list(_choices(all_tools, prefixes))  # type: ignore[attr-defined]  # it has choices
        names = {tool.name for tool in all_tools} | set(map(_all_of, prefixes.values()))
        selection = self.instance.tools
        self.initial["which_tools"] = ALL if selection is None else SOME
        self.initial["ticked_tools"] = [name for name in selection or () if name in names]
        self.initial["named_tools"] = [name for name in selection or () if name not in names]

    def _tools(self) -> list[str] | None:
        if self.cleaned_data.get("which_tools") != SOME:
            return None
        return sorted({*self.cleaned_data["ticked_tools"], *self.cleaned_data["named_tools"]})

    def _has_other_tools(self) -> bool:
        if "tools" not in self.cleaned_data:
            return False
        before, after = self.instance.tools, self.cleaned_data["tools"]
        return bool((None if before is None else sorted(before)) != after)


def _choices(
    all_tools: Iterable[OfferedTool], prefixes: Mapping[str, str]
) -> Iterable[tuple[Any, Sequence[tuple[str, Any]]]]:
    """Yield the groups of tools: those of this site, then those of each MCP server with a choice for all its tools."""
    groups: dict[str, list[tuple[str, Any]]] = {"": []}
    for server, prefix in sorted(prefixes.items()):
        whole = format_html(
            "<code>{}</code> {}",
            _all_of(prefix),
            _("all tools of this server, including those added later"),
        )
        groups[server] = [(_all_of(prefix), whole)]
    for tool in all_tools:
        label = format_html(
            "<code>{}</code> {}",
            tool.name,
            tool.disabled_reason or _description_of(tool),
        )
        groups.setdefault(tool.server, []).append((tool.name, label))
    for server, entries in groups.items():
        if entries:
            yield (
                _("MCP server %(name)s") % {"name": server} if server else _("This site"),
                entries,
            )


def _description_of(tool: OfferedTool) -> str:
    words = Truncator(tool.description).chars(DESCRIPTION_SHOWN)
    if tool.server or not tool.reported_by:
        return words
    return ", ".join(filter(None, [words.rstrip("."), reporters_text(tool)]))


def _all_of(prefix: str) -> str:
    return f"{prefix}*"


class AgentAdmin(EditedList):
    """The admin pages of the agents. Saved changes apply to turns that start afterwards."""

    form = AgentForm
    list_display = [
        "name", "description", "model_in_force", "tool_list", "group_list", "limits", "is_enabled", "is_default",
        "last_used",
    ]  # fmt: skip
    search_fields = ["name", "description"]
    actions = ["make_default"]
    readonly_fields = [
        "sample_list", "fallback_list", "stop_list", "tool_list", "group_list", "tool_weight", "last_used", "turns", "usage",
    ]  # fmt: skip
    fieldsets = [
        section(
            None, "name", "description", "is_enabled", "is_default", "turns", "usage", "seen", "accepted"
        ),
        section(gettext_lazy("Access"), "given_to"),
        _WHAT,
        _HOW,
        section(gettext_lazy("Start of a conversation"), "samples", "placeholder"),
        section(
            gettext_lazy("Tools and sub-agents"),
            "which_tools", "ticked_tools", "named_tools", "tool_weight", "approval",
        ),
        _HOW_MUCH,
        _HOW_LONG,
    ]  # fmt: skip
    readable_fieldsets = [
        section(
            None, "name", "description", "is_enabled", "is_default", "last_used", "turns", "usage"
        ),
        section(gettext_lazy("Access"), "group_list"),
        _WHAT_IN_WORDS,
        _HOW_IN_WORDS,
        section(gettext_lazy("Start of a conversation"), "sample_list", "placeholder"),
        section(gettext_lazy("Tools and sub-agents"), "tool_list", "tool_weight", "approval"),
        _HOW_MUCH,
        _HOW_LONG,
    ]

    model_in_force = Column(gettext_lazy("chat model"), lambda agent: _model(agent))
    tool_list = Column(
        gettext_lazy("tools"), lambda agent: AgentChange.describe_value("tools", agent.tools)
    )
    group_list = Column(  # who may use it
        gettext_lazy("groups"),
        lambda agent: AgentChange.describe_value("groups", [it.name for it in agent.groups.all()]),
    )
    sample_list = Column(  # one per line
        gettext_lazy("sample messages"), lambda agent: "\n".join(agent.samples) or NOTHING
    )
    fallback_list = Column(  # in order
        gettext_lazy("fallback models"), lambda agent: "\n".join(agent.fallback_models) or NOTHING
    )
    stop_list = Column(  # one per line
        gettext_lazy("stop sequences"), lambda agent: "\n".join(agent.stop_sequences) or NOTHING
    )
    tool_weight = Column(gettext_lazy("tools per request"), lambda agent: _weight(agent))
    limits = Column(gettext_lazy("limits"), lambda agent: ", ".join(_limits(agent)) or NOTHING)
    turns = Column(gettext_lazy("turns"), lambda agent: _turns(agent))
    usage = Column(gettext_lazy("usage in the last 7 days"), lambda agent: _usage(agent))
    last_used = Column(
        gettext_lazy("last used"),
        lambda agent: format_time(getattr(agent, "used_at", None)),
        ordering="used_at",
    )

    def get_queryset(self, request: HttpRequest) -> Any:
        """Return the agents with the time at which each was last used, in the same query."""
        turns = Turn.objects.filter(agent=OuterRef("name")).order_by("-queued_at")
        used = Subquery(turns.values("queued_at")[:1])
        return super().get_queryset(request).annotate(used_at=used).prefetch_related("groups")

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Show values as text to users who may not edit."""
        may_edit = obj is None or self.has_change_permission(request, obj)
        fieldsets = self.fieldsets if may_edit else self.readable_fieldsets
        return self.in_words(request, fieldsets, obj)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """Make the name of an existing agent read-only, because conversations and other agents refer to it."""
        return [*super().get_readonly_fields(request, obj), *(["name"] if obj else [])]

    def get_form(
        self,
        request: HttpRequest,
        obj: Any = None,
        change: bool = False,  # noqa: FBT001, FBT002 - Django's signature
        **kwargs: Any,
    ) -> Any:
        form = super().get_form(request, obj, change, **kwargs)
        return type(form.__name__, (form,), {"editor": request.user})

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Refuse to delete the default agent."""
        is_default = obj is not None and obj.is_default
        return not is_default and super().has_delete_permission(request, obj)

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """Show the list, with a warning about each agent that has too many tools. Explain a refused deletion."""
        if request.method == "GET" and self.has_view_permission(request):
            all_tools = tools.offered()
            for agent in Agent.objects.filter(is_enabled=True):
                if problem := translations.sentence(_offer(agent, all_tools).problem):
                    self.message_user(request, f"{agent.name}: {problem}", messages.WARNING)
        try:
            return super().changelist_view(request, extra_context)
        except ValidationError as refused:
            return self.refused(request, refused)

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:  # noqa: FBT001
        """Save only the fields that the editor changed."""
        values: Any = {name: form.cleaned_data[name] for name in form.edited}
        saved = edits.save_agent(
            name=obj.name, values=values, by=editor_of(request), version=form.loaded_updated_at
        )
        agent = Agent.objects.get(name=obj.name)
        obj.pk = agent.pk
        if saved is not None:
            text = _("Agent “%(name)s”: %(changes)s. This applies to turns that start from now on.")
            words = {"name": obj.name, "changes": saved.summary.rstrip(".") or _("added")}
            self.message_user(request, text % words, messages.INFO)
        for warning in _warnings(agent):
            self.message_user(request, warning, messages.WARNING)

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        edits.delete_agent(name=obj.name, by=editor_of(request))

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Agent]) -> None:
        """Delete the agents through the service, all or none."""
        with atomic():
            for name in list(queryset.values_list("name", flat=True)):
                edits.delete_agent(name=name, by=editor_of(request))

    @admin.action(
        permissions=["change"], description=gettext_lazy("Make the selected agent the default")
    )
    def make_default(self, request: HttpRequest, queryset: QuerySet[Agent]) -> HttpResponse | None:
        """Make the selected agent the default agent."""
        names = list(queryset.values_list("name", flat=True))
        if len(names) != 1:
            return self.refuse_action(request, _("Select exactly one agent."))
        try:
            edits.save_agent(name=names[0], values={"is_default": True}, by=editor_of(request))
        except ValidationError as refused:
            return self.refuse_action(request, " ".join(refused.messages))
        text = _("“%(name)s” is now the default agent.")
        self.message_user(request, text % {"name": names[0]}, messages.SUCCESS)
        return None


def _model(agent: Agent) -> str:
    """Return the chat model, and whether the agent or the project chose it."""
    if agent.chat_model:
        return agent.chat_model
    return _("%(name)s (the project’s)") % {"name": app_settings.CHAT_MODEL}


def _weight(agent: Agent) -> str:
    """Return how many tools each request contains, and about how many tokens they take."""
    toolset = _offer(agent)
    count = len(toolset.tools)
    text = ngettext(
        "%(count)d tool, about %(tokens)d tokens.",
        "%(count)d tools, about %(tokens)d tokens.",
        count,
    )
    words = text % {"count": count, "tokens": toolset.tokens}
    return f"{words} {translations.sentence(toolset.problem)}".rstrip()


def _turns(agent: Agent) -> SafeString | str:
    if agent._state.adding:
        return NOTHING
    address = turns_address(reader_of(agent), agent=agent.name, when=ANY)
    return anchor(Link(_("All turns of this agent"), address)) if address else NOTHING


def _usage(agent: Agent) -> str:
    # Summing a month of a busy site's turns would take longer than the rest of the page.
    since = timezone.now() - timedelta(days=7)
    return usage_words(usage_of(Turn.objects.filter(agent=agent.name, queued_at__gte=since)))


def _limits(agent: Agent) -> list[str]:
    words = []
    if agent.turn_timeout_ms is not None:
        words.append(
            format_duration(agent.turn_timeout_ms)
            if agent.turn_timeout_ms
            else _("no time limit per turn")
        )
    if (n := agent.step_limit) is not None:
        words.append(ngettext("%(n)d step", "%(n)d steps", n) % {"n": n})
    if (n := agent.max_parallel_calls) is not None:
        words.append(ngettext("%(n)d concurrent call", "%(n)d concurrent calls", n) % {"n": n})
    if (n := agent.token_limit) is not None:
        words.append(ngettext("%(n)d token", "%(n)d tokens", n) % {"n": n})
    return words


def _offer(agent: Agent, all_tools: Sequence[OfferedTool] | None = None) -> Offer[OfferedTool]:
    candidates = tools.offered() if all_tools is None else all_tools
    return offer(candidates, agent.tools, chat_models=_chat_models(agent))


def _chat_models(agent: Agent) -> list[str]:
    return [agent.chat_model or app_settings.CHAT_MODEL, *agent.fallback_models]


def _weight_problem(toolset: Offer[OfferedTool]) -> str:
    if toolset.tokens <= _HEAVY:
        return ""
    text = _(
        "Its %(count)d tools use about %(tokens)d tokens of each request. Select fewer under “only these”."
    )
    return text % {"count": len(toolset.tools), "tokens": toolset.tokens}


def _ignored(agent: Agent) -> list[str]:
    """Return the agent's settings that its model ignores."""
    words = []
    settings = chat_settings_of(agent)
    for chat_model in _chat_models(agent):
        if names := ignored_settings(chat_model, settings):
            labels = ", ".join(str(Agent._meta.get_field(name).verbose_name) for name in names)  # type: ignore[union-attr]  # never a relation
            text = _("“%(chat_model)s” ignores these settings: %(settings)s.")
            words.append(text % {"chat_model": chat_model, "settings": labels})
    return words


def _warnings(agent: Agent) -> list[str]:
    """Return problems that do not prevent saving but may prevent the agent from answering as intended."""
    warnings = []
    if agent.is_enabled:
        problems = filter(None, map(problem_of, _chat_models(agent)))
        warnings += [translations.sentence(str(problem)) for problem in problems]
    warnings += _ignored(agent)
    tool_names = [tool.name for tool in tools.offered()]
    toolset = _offer(agent)
    if words := translations.sentence(toolset.problem) or _weight_problem(toolset):
        warnings.append(words)
    unknown = [
        name
        for name in agent.tools or ()
        if not any(tool in ToolNames([name]) for tool in tool_names)
    ]
    if unknown:
        text = _("There is no tool named %(names)s yet; the setting applies once there is one.")
        warnings.append(text % {"names": ", ".join(f"“{name}”" for name in unknown)})
    return warnings
