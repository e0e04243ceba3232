"""Admin pages for the activity: the actions of people and the system, newest first."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from django.apps import apps
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from console import exports
from console.filters import DAY, row_filter, time_filter
from console.formats import NOTHING, Column
from console.links import anchors, link, links_of_groups, reader_of
from console.lists import SearchedList, section
from governance.activity import HIDDEN
from governance.audit import Change, describe_value, summary_of
from governance.labels import label_for
from governance.models import Activity, PolicyChange, ToolPolicy

_LISTED = ("turn", "user", "agent")


def _by_person(rows: QuerySet[Any], name: str) -> QuerySet[Any]:
    return rows.filter(by_name=name)


_TOLD_BY_ACTION = ("cancel", "export", "sign_in")  # kinds that the action's label already names


def _source_of(act: Activity) -> type[Model] | None:
    """Return the model of the detailed row; None if there is none or its app is no longer installed."""
    try:
        return apps.get_model(act.source) if act.source else None
    except LookupError:
        return None


def _who(act: Activity) -> str:
    return act.by_name or _("the system")


def _subject(act: Activity) -> SafeString | str:
    """Return the name of the changed object, linked to its page."""
    source, words = _source_of(act), act.subject
    if source is None:
        return words or NOTHING
    if act.kind == "export":
        words = _list_name(act.subject)
    meta = source._meta
    text = words or str(meta.verbose_name)
    return link(f"{meta.app_label}_{meta.model_name}", act.source_id, text, reader=reader_of(act))


def _list_name(label: str) -> str:
    try:
        return str(apps.get_model(label)._meta.verbose_name_plural)
    except LookupError:
        return label


def _summary(act: Activity) -> str:
    """Summarize the change in one line; a value that was empty before is shown without an arrow."""
    source = _source_of(act)
    if source is not None and issubclass(source, Change):
        about: type[Model] = apps.get_model(source.subject)
        describe: Callable[[str, Any], str] = source.describe_value
    else:
        about = ToolPolicy if source is None else source
        describe = _describer(about)
    edits = {name: value for name, value in act.changes.items() if isinstance(value, list)}
    facts = {name: value for name, value in act.changes.items() if name not in edits}
    parts = [summary_of(about, edits, describe)] if edits else []
    labels = {field.name: str(field.verbose_name) for field in about._meta.fields}
    for name, value in facts.items():
        words = _("changed") if value == HIDDEN else describe(name, value)
        parts.append(f"{labels.get(name, name)}: {words}")
    return "; ".join(parts) or NOTHING


def _describer(model: type[Model]) -> Callable[[str, Any], str]:
    """Return a function that formats a column's value the way the model's forms do."""
    choices: Mapping[str, Any] = {
        field.name: field.flatchoices for field in model._meta.fields if field.flatchoices
    }

    def describe(name: str, value: Any) -> str:
        if name in choices:
            return label_for(value, choices[name])
        return describe_value(name, value)

    return describe


def _why(act: Activity) -> str:
    """Return the reason; reasons written by the system are translated for the reader."""
    why = PolicyChange(reason=act.why).why if act.kind == "limits" else act.why
    return why or NOTHING


class ActivityAdmin(SearchedList):
    """The admin list of every action, newest first: edits, cancels, decisions, exports, deletions, staff sign-ins."""

    content_fields = ("note",)
    export_columns = [exports.of_turns("group")]
    list_display = [
        "at",
        "who",
        "kind",
        "action",
        "about",
        "belongs_to",
        "summary",
        "reason",
        "note",
    ]
    list_filter = [
        time_filter("at", default=DAY),
        row_filter("person", gettext_lazy("person"), _by_person),
        "kind",
        "action",
    ]
    search_fields = ["by_name", "subject", "group"]
    search_help_text = gettext_lazy(
        "Full name of a person, tool, agent, server or token, or full id of a turn"
    )
    fieldsets = [
        section(None, "at", "who", "kind", "action", "about", "belongs_to", "summary"),
        section(gettext_lazy("Reason"), "reason", "note"),
    ]

    who = Column(gettext_lazy("by"), _who, ordering="by_name")
    about = Column(gettext_lazy("object"), _subject, ordering="subject")
    belongs_to = Column(
        gettext_lazy("belongs to"), lambda act: anchors(act.links, _LISTED)
    )  # the turn and its owner
    summary = Column(gettext_lazy("old → new"), _summary)
    reason = Column(gettext_lazy("reason"), _why)

    def sentence(self, row: Activity) -> str:
        parts = [_who(row), row.get_action_display()]
        if row.kind not in _TOLD_BY_ACTION:
            parts.append(row.get_kind_display())
        if row.subject != row.by_name:
            parts.append(_list_name(row.subject) if row.kind == "export" else row.subject)
        return " · ".join(filter(None, parts))

    def prepare_rows(self, request: HttpRequest, rows: Iterable[Any]) -> None:
        """Read the links of all turns in one query."""
        super().prepare_rows(request, rows)
        links_by_group = links_of_groups(request.user, {act.group for act in rows if act.group})
        for act in rows:
            act.links = links_by_group.get(act.group, {})
