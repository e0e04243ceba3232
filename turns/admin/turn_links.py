"""What turns, and the calls of turns, belong to: conversation, user, agent, process and chat page."""

from collections.abc import Collection, Iterable
from functools import partial
from typing import Any
from urllib.parse import urlencode

from django.urls import NoReverseMatch, reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from governance.admin.search import USERNAME, as_id
from governance.call_links import Link
from turns.models import Agent, Turn

LABELS = {
    "turn": gettext_lazy("turn"),
    "conversation": gettext_lazy("conversation"),
    "user": gettext_lazy("user"),
    "agent": gettext_lazy("agent"),
    "process": gettext_lazy("process"),
    "chat": gettext_lazy("chat page"),
}
LISTED = ("turn", "user", "agent", "process")
_SHOWN = ("number", "agent", "owner_id", f"conversation__owner__{USERNAME}")


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
    named = Agent.objects.filter(name__in={turn.agent for turn in turns})
    agents = dict(named.values_list("name", "pk"))
    return {str(turn.pk): _links_of(user, turn, agents.get(turn.agent)) for turn in turns}


def _links_of(user: Any, turn: Turn, agent_id: Any) -> dict[str, Link]:
    page = partial(_page, user)
    username = turn.conversation.owner.get_username()
    of_user = f"{reverse('admin:turns_turn_changelist')}?{urlencode({'q': username})}"
    return {
        "turn": Link(f"#{turn.number}", page("turn", turn.pk)),
        "conversation": Link(str(turn.conversation_id), page("conversation", turn.conversation_id)),
        "user": Link(username, of_user),
        "agent": Link(turn.agent, page("agent", agent_id)),
        "process": Link(str(turn.owner or ""), page("process", turn.owner_id)),
        "chat": _chat(turn),
    }


def _page(user: Any, model: str, pk: Any) -> str:
    if pk is None or not user.has_perm(f"turns.view_{model}"):
        return ""
    return reverse(f"admin:turns_{model}_change", args=[pk])


def _chat(turn: Turn) -> Link:
    """The conversation as its owner sees it; staff need `turns.view_all` there."""
    try:
        return Link(_("Open"), reverse("webchat:conversation", args=[turn.conversation_id]))
    except NoReverseMatch:  # a site without the chat page
        return Link("")
