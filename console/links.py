"""Links between the pages. The turns and conversations of a list's rows are read in one query."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlencode

from django.apps import apps
from django.contrib.auth import get_permission_codename, get_user_model
from django.urls import NoReverseMatch, reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from console.formats import NOTHING, Column
from console.search import as_id
from turns.models import Agent, Conversation, Turn

# The field that people sign in with, such as a user name or an e-mail address.
USERNAME = get_user_model().USERNAME_FIELD
LABELS = {
    "turn": gettext_lazy("turn"),
    "conversation": gettext_lazy("conversation"),
    "user": gettext_lazy("user"),
    "agent": gettext_lazy("agent"),
    "process": gettext_lazy("process"),
    "chat": gettext_lazy("chat page"),
}
_SHOWN = (
    "number",
    "agent",
    "owner_id",
    "conversation__deleted_at",
    f"conversation__owner__{USERNAME}",
)


@dataclass(frozen=True, slots=True)
class Link:
    """A link to a related object. The address is empty if the object has no page, or the user may not open it."""

    text: str
    address: str = ""


Links = Mapping[str, Link]  # by column name


def anchor(link: Link) -> SafeString | str:
    if not link.address:
        return link.text or NOTHING
    return format_html('<a href="{}">{}</a>', link.address, link.text)


def anchors(links: Links, names: Iterable[str]) -> SafeString | str:
    """Return the named links that have text, in one line."""
    selection = [links[name] for name in names if name in links]
    return (
        format_html_join(" · ", "{}", [(anchor(link),) for link in selection if link.text])
        or NOTHING
    )


def link(name: str, pk: Any, text: Any, *, reader: Any) -> SafeString | str:
    """Return a link to a row's page, or only its text if the reader may not see it. `name` is "app_model"."""
    return anchor(Link(text, address_of_row(reader, name, pk)))


def link_column(name: str, *, ordering: str | None = None) -> Column:
    """Return a column or field that shows this link from the `links` of a row."""

    def show(row: Any) -> SafeString | str:
        return anchor(row.links[name]) if name in row.links else NOTHING

    return Column(LABELS[name], show, ordering=ordering, name=f"link_to_{name}")


def turn_link(turn: Turn | None, *, reader: Any) -> SafeString | str:
    """Return a link with the turn's number, owner and agent. The title is content, so it is left out."""
    if turn is None:
        return NOTHING
    parts = (f"#{turn.number}", turn.conversation.owner.get_username(), turn.agent)
    return link("turns_turn", turn.pk, " · ".join(filter(None, parts)), reader=reader)


def reader_of(row: Any) -> Any:
    """Return the user for whom a row is rendered."""
    return getattr(row, "reader", None)


def address(reader: Any, view: str, *args: Any) -> str:
    """Return the address of a page in the reader's admin site."""
    return reverse(f"admin:{view}", args=args, current_app=getattr(reader, "admin_site", None))


def may_open(reader: Any, name: str) -> bool:
    """Return whether the reader may see the pages of a model, named "app_model".

    For a proxy, the permissions of the model of its table are checked.
    """
    opts = cast(Any, apps.get_model(name.replace("_", ".", 1))._meta.concrete_model)._meta
    names = [get_permission_codename(action, opts) for action in ("view", "change")]
    return any(reader.has_perm(f"{opts.app_label}.{codename}") for codename in names)


def address_of_row(reader: Any, name: str, pk: Any) -> str:
    """Return the address of a row's page; empty if the reader may not see it."""
    if pk is None or reader is None or not may_open(reader, name):
        return ""
    return address(reader, f"{name}_change", pk)


def address_of_list(reader: Any, name: str, **filters: Any) -> str:
    """Return the address of a filtered list; empty if the reader may not see it."""
    if not may_open(reader, name):
        return ""
    place = address(reader, f"{name}_changelist")
    return f"{place}?{urlencode(filters)}" if filters else place


def address_of_tool(reader: Any, tool_name: str) -> str:
    return address(reader, "governance_toolpolicy_tool", tool_name)


def turns_address(reader: Any, **filters: Any) -> str:
    return address_of_list(reader, "turns_turn", **filters)


def links_of_groups(user: Any, groups: Collection[str]) -> dict[str, dict[str, Link]]:
    """Return the links of the turns with these group ids, if the user may see turns."""
    if not user.has_perm("turns.view_turn"):
        return {}
    ids = [turn_id for turn_id in map(as_id, groups) if turn_id is not None]
    turns = Turn.objects.filter(pk__in=ids).select_related("conversation__owner")
    return links_of_turns(user, turns.only(*_SHOWN).prefetch_related("owner").order_by())


def links_of_turns(user: Any, turns: Iterable[Turn]) -> dict[str, dict[str, Link]]:
    """Return the links of turns by id. Pages that the user may not see are shown as text."""
    turns = list(turns)
    agents = _agents({turn.agent for turn in turns})
    return {
        str(turn.pk): {
            **_links_of(user, turn.conversation),
            "turn": Link(f"#{turn.number}", address_of_row(user, "turns_turn", turn.pk)),
            "agent": _agent(user, turn.agent, agents),
            "process": Link(
                str(turn.owner or ""), address_of_row(user, "turns_process", turn.owner_id)
            ),
        }
        for turn in turns
    }


def links_of_conversations(
    user: Any, conversations: Iterable[Conversation]
) -> dict[str, dict[str, Link]]:
    """Return the links of conversations by id; the agent is the one of the next turn."""
    conversations = list(conversations)
    agents = _agents({conversation.agent for conversation in conversations})
    return {
        str(conversation.pk): {
            **_links_of(user, conversation),
            "agent": _agent(user, conversation.agent, agents),
        }
        for conversation in conversations
    }


def _links_of(user: Any, conversation: Conversation) -> dict[str, Link]:
    username = conversation.owner.get_username()
    address = address_of_row(user, "turns_conversation", conversation.pk)
    return {
        "conversation": Link(str(conversation.pk), address),
        "user": Link(username, turns_address(user, q=username)),
        "chat": _chat(user, conversation),
    }


def _agents(names: Collection[str]) -> dict[str, Any]:
    return dict(Agent.objects.filter(name__in=names).values_list("name", "pk"))


def _agent(user: Any, name: str, agents: Mapping[str, Any]) -> Link:
    return Link(name, address_of_row(user, "turns_agent", agents.get(name)))


def _chat(user: Any, conversation: Conversation) -> Link:
    """Return a link to the chat page, for the owner and for users with `turns.view_all`."""
    is_theirs = conversation.owner_id == user.pk or user.has_perm("turns.view_all")
    if conversation.deleted_at or not is_theirs:
        return Link("")
    try:
        return Link(_("Open"), reverse("webchat:conversation", args=[conversation.pk]))
    except NoReverseMatch:  # the site has no chat page
        return Link("")
