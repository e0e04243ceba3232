"""The form of an agent: durations with their unit, tools to tick, and no edit that overwrites somebody else's."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils.html import format_html
from django.utils.text import Truncator
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from governance import selectors
from governance.admin.tool_rows import reporters_text
from governance.audit import Editor
from governance.form_fields import LinesField, VersionedForm
from governance.selectors import OfferedTool
from turns.agents.edits import FIELDS, check_may_name
from turns.conf import app_settings
from turns.models import Agent, AgentChange
from turns.models.validation import tools_problem

if TYPE_CHECKING:
    AgentModelForm = forms.ModelForm[Agent]
else:
    AgentModelForm = forms.ModelForm

ALL, SOME = "all", "some"
WIDE = {"class": "radiolist"}  # the admin's own style for labels that may have a whole line
DESCRIPTION_SHOWN = 90


class AgentForm(VersionedForm, AgentModelForm):
    """One agent. Its list of tools is entered in three fields: whether it has one, ticks, and further names."""

    editor: Editor = None

    which_tools = forms.ChoiceField(
        label=gettext_lazy("Tools"),
        widget=forms.RadioSelect(attrs=WIDE),
        choices=[
            (ALL, gettext_lazy("all tools, also those that come later")),
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
        label=gettext_lazy("And these"),
        help_text=gettext_lazy(
            "Names of tools that come later, one in each line. An asterisk at the end stands for every ending: "
            "“github_*”."
        ),
    )

    samples = LinesField(
        label=gettext_lazy("Samples"),
        help_text=gettext_lazy(
            "Messages to begin with, one in each line, four at most. Blank = those of the local chat model; none "
            "with another one."
        ),
    )

    class Meta:
        model = Agent
        fields = ["name", *(name for name in FIELDS if name != "tools")]
        widgets = {
            "description": forms.TextInput(attrs={"size": 80}),
            "placeholder": forms.TextInput(attrs={"size": 40}),
            "instructions": forms.Textarea(attrs={"rows": 8, "cols": 80}),
            "chat_model": forms.TextInput(attrs={"size": 40, "spellcheck": "false"}),
        }
        help_texts = {"turn_timeout_ms": gettext_lazy("0 = no limit. Blank = as the project says.")}
        error_messages = {
            "name": {"unique": gettext_lazy("There is an agent of this name already.")}
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._fill_in_tools()
        if (chat_model := self.fields.get("chat_model")) is not None:
            chat_model.widget.attrs["placeholder"] = app_settings.CHAT_MODEL

    @property
    def edited(self) -> list[str]:
        """The names of the agent's fields that the editor has changed."""
        names = [name for name in self.changed_data if name in FIELDS]
        return [*names, *(["tools"] if self._has_other_tools() else [])]

    def clean_chat_model(self) -> str:
        """Refuse a path before it is imported, if the editor may not name one."""
        name: str = self.cleaned_data["chat_model"].strip()
        if name != self.instance.chat_model:
            try:
                check_may_name(name, by=self.editor)
            except ValidationError as refused:
                raise ValidationError(refused.messages) from None
        return name

    def clean_named_tools(self) -> list[str]:
        """Refuse what cannot be the name of a tool."""
        names: list[str] = self.cleaned_data["named_tools"]
        if problem := tools_problem(names):
            raise ValidationError(problem)
        return names

    def clean(self) -> dict[str, Any] | None:
        """Put the list of tools together, and compare the edit that the editor has seen with the last one."""
        cleaned = super().clean()
        if "named_tools" in self.cleaned_data and "ticked_tools" in self.cleaned_data:
            self.cleaned_data["tools"] = self._tools()
        self.refuse_stale(AgentChange.objects.filter(agent_name=self.instance.name))
        self.warn()
        return cleaned

    def _get_validation_exclusions(self) -> set[str]:
        # A second default agent is no error here: the service takes the default from the first one.
        excluded: set[str] = super()._get_validation_exclusions()  # type: ignore[misc]  # not in the stubs
        return excluded | {"is_default"}

    def _fill_in_tools(self) -> None:
        if "ticked_tools" not in self.fields:  # the reader may only look
            return
        offered, prefixes = selectors.offered_tools(), selectors.mcp_prefixes()
        self.fields["ticked_tools"].choices = list(_choices(offered, prefixes))  # type: ignore[attr-defined]  # it has choices
        names = {tool.name for tool in offered} | set(map(_all_of, prefixes.values()))
        tools = self.instance.tools
        self.initial["which_tools"] = ALL if tools is None else SOME
        self.initial["ticked_tools"] = [name for name in tools or () if name in names]
        self.initial["named_tools"] = [name for name in tools or () if name not in names]

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
    offered: Iterable[OfferedTool], prefixes: Mapping[str, str]
) -> Iterable[tuple[Any, Sequence[tuple[str, Any]]]]:
    """The tools in groups: those of this site, then those of each MCP server. A server's can be ticked as a whole."""
    groups: dict[str, list[tuple[str, Any]]] = {"": []}
    for server, prefix in sorted(prefixes.items()):
        whole = format_html(
            "<code>{}</code> {}",
            _all_of(prefix),
            _("all tools of this server, also those that come later"),
        )
        groups[server] = [(_all_of(prefix), whole)]
    for tool in offered:
        label = format_html(
            "<code>{}</code> {}",
            tool.name,
            tool.disabled_reason or _description_of(tool),
        )
        groups.setdefault(tool.server, []).append((tool.name, label))
    for server, tools in groups.items():
        if not tools:
            continue
        yield (_("MCP server %(name)s") % {"name": server} if server else _("This site"), tools)


def _description_of(tool: OfferedTool) -> str:
    words = Truncator(tool.description).chars(DESCRIPTION_SHOWN)
    if tool.server or not tool.reported_by:
        return words
    return ", ".join(filter(None, [words.rstrip("."), reporters_text(tool)]))


def _all_of(prefix: str) -> str:
    return f"{prefix}*"
