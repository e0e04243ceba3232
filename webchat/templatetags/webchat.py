"""`{% turnkeeper_chat %}`: a chat in any page of a host project."""

from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest
from django.template import Context, Library
from django.template.loader import render_to_string

from turns.agents.lookup import find_agent
from turns.agents.starters import starters_of
from webchat.chat_context import chat_context

register = Library()


@register.simple_tag(takes_context=True)
def turnkeeper_chat(
    context: Context,
    *,
    agent: str = "",
    conversation: Any = "",
    title: str = "",
    template: str = "webchat/embedded_chat.html",
) -> str:
    """Return a chat with an agent, which goes on with the latest conversation, or with the `conversation` of this id.

    Who is not signed in is told so.
    """
    request = context.get("request")
    if not isinstance(request, HttpRequest):
        raise ImproperlyConfigured(
            "{% turnkeeper_chat %} needs the request: render the page with it, and add"
            " django.template.context_processors.request to the context processors."
        )
    agent = agent or find_agent().name
    own = {
        "viewer": request.user,
        "agent_name": agent,
        "conversation_id": str(conversation),
        "chat_title": title or agent,
        "starters": starters_of(agent),
        **chat_context(path=request.get_full_path()),
    }
    return render_to_string(template, own, request=request)
