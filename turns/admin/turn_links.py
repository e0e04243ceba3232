"""What turns, their calls and their conversations belong to: user, agent, process and chat page; and lists of turns."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from django.urls import NoReverseMatch, reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from governance.admin.links import address_of_list, address_of_row
from governance.admin.search import USERNAME, as_id
from governance.call_links import Link
from turns.models import Agent, Conversation, Turn

LABELS = {
    "turn": gettext_lazy("turn"),
    "conversation": gettext_lazy("conversation"),
    "user": gettext_lazy("user"),
    "agent": gettext_lazy("agent"),
    "process": gettext_lazy("process"),
    "chat": gettext_lazy("chat page"),
}
LISTED = ("turn", "user", "agent", "process")
_SHOWN = (
    "number",
    "agent",
    "owner_id",
    "conversation__deleted_at",
    f"conversation__owner__{USERNAME}",
)


def links_of_groups(user: Any, groups: Collection[str]) -> dict[str, dict[str, Link]]:
    """Return the links of the turns whose calls these groups are, for somebody who may see turns."""
    if not user.has_perm("turns.view_turn"):
        return {}
    ids = [turn_id for turn_id in map(as_id, groups) if turn_id is not None]
    turns = Turn.objects.filter(pk__in=ids).select_related("conversation__owner")
    return links_of_turns(user, turns.only(*_SHOWN).prefetch_related("owner").order_by())


def links_of_turns(user: Any, turns: Iterable[Turn]) -> dict[str, dict[str, Link]]:
    """Return the links of turns, by their ids. Where the user may not see a page, its text is all."""
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
    """Return the same of conversations, by their ids; their agent is the one that answers next."""
    conversations = list(conversations)
    agents = _agents({conversation.agent for conversation in conversations})
    return {
        str(conversation.pk): {
            **_links_of(user, conversation),
            "agent": _agent(user, conversation.agent, agents),
        }
        for conversation in conversations
    }


def turns_address(reader: Any, **asked: Any) -> str:
    """Return the address of a list of turns; empty for somebody who may not see them."""
    return address_of_list(reader, "turns_turn", **asked)


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
    """The conversation as its owner sees it, who is the only one without `turns.view_all`."""
    if conversation.deleted_at or not (
        conversation.owner_id == user.pk or user.has_perm("turns.view_all")
    ):
        return Link("")
    try:
        return Link(_("Open"), reverse("webchat:conversation", args=[conversation.pk]))
    except NoReverseMatch:  # a site without the chat page
        return Link("")
