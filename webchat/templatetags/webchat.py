"""The tag `{% turnkeeper_chat %}`, which embeds a chat in any page of a project, and the tags of webchat's own pages."""

from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest
from django.shortcuts import resolve_url
from django.template import Context, Library
from django.template.loader import render_to_string
from django.templatetags.static import static

from turns.agents.lookup import default_name, starters_of
from webchat.conf import app_settings
from webchat.import_map import import_map_script
from webchat.views import chat_context

register = Library()


@register.simple_tag(takes_context=True)
def turnkeeper_chat(
    context: Context,
    *,
    agent: str = "",
    conversation: Any = "",
    title: str = "",
    template: str = "webchat/embedded_chat.html",
    nonce: str = "",
    import_map: bool = True,
) -> str:
    """Return a chat with an agent. It continues the latest conversation, or the one with the id `conversation`.

    Visitors who are not signed in see a link to the sign-in page. `nonce` is the nonce in the page's
    Content-Security-Policy. Set `import_map=False` if the page has its own import map with the entries of
    `webchat.import_map.import_map()`.
    """
    request = context.get("request")
    if not isinstance(request, HttpRequest):
        raise ImproperlyConfigured(
            "{% turnkeeper_chat %} needs the request: render the page with it, and add"
            " django.template.context_processors.request to the context processors."
        )
    user_id = request.user.pk
    agent = agent or default_name(user_id=user_id)
    own = {
        "viewer": request.user,
        "agent_name": agent,
        "conversation_id": str(conversation),
        "chat_title": title or agent,
        "starters": starters_of(agent, user_id=user_id),
        "import_map": import_map_script(request, nonce=nonce) if import_map else "",
        **chat_context(path=request.get_full_path()),
    }
    return render_to_string(template, own, request=request)


@register.simple_tag(takes_context=True)
def turnkeeper_import_map(context: Context, *, nonce: str = "") -> str:
    """Return the import map of the chat's scripts. Place it in the head of a page, before its first module."""
    # Webchat's own pages have a request even if no context processor adds it.
    return import_map_script(
        context.get("request") or getattr(context, "request", None), nonce=nonce
    )


@register.simple_tag
def turnkeeper_brand() -> dict[str, str]:
    """Return the site's name, the address of its logo, and the target of the link back to the site, which may be empty."""
    brand = app_settings.valid("BRAND")
    logo = brand.get("logo", "webchat/img/favicon.svg")
    is_address = logo.startswith(("/", "http://", "https://", "data:"))
    return {
        "name": brand.get("name", "Turnkeeper"),
        "logo": logo if is_address else static(logo),
        "url": resolve_url(brand["url"]) if "url" in brand else "",
    }
