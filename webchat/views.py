"""The pages: sign-in, the list of conversations, one conversation. Each calls one service and renders."""

import asyncio
from typing import Any
from uuid import UUID

from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.contrib.auth.views import LoginView, LogoutView
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render, resolve_url
from django.urls import reverse
from django.utils.http import urlencode
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST, require_safe

from turns import selectors, services
from turns.exceptions import AgentUnavailable, ConversationNotFound
from webchat.page_texts import CHAT_TEXTS, LIST_TEXTS

RECENT = 30  # conversations in the sidebar of the chat page


class SignInView(LoginView):
    """Django's sign-in. It sends signed-in users to their conversations."""

    template_name = "webchat/login.html"
    redirect_authenticated_user = True

    def get_default_redirect_url(self) -> str:
        """Return where to go without `next`."""
        return reverse("webchat:conversations")


class SignOutView(LogoutView):
    """Django's sign-out (POST)."""

    template_name = "webchat/logged_out.html"


@require_safe
@login_required
async def conversations(request: HttpRequest) -> HttpResponse:
    """Show the user's conversations, newest first."""
    return await _list(request)


@require_POST
@login_required
async def new_conversation(request: HttpRequest) -> HttpResponse:
    """Create a conversation and open it. Say so if the chosen agent no longer exists."""
    user = await request.auser()
    try:
        made = await services.create_conversation(user=user, agent=request.POST.get("agent", ""))
    except AgentUnavailable as gone:
        return await _list(request, problem=gone.sentence, status=422)
    return redirect("webchat:conversation", conversation_id=made.id)


@require_safe
@login_required
async def conversation(request: HttpRequest, *, conversation_id: UUID) -> HttpResponse:
    """Show one conversation; its content comes over the WebSocket."""
    user = await request.auser()
    try:
        shown = await selectors.get_conversation(conversation_id=conversation_id, user=user)
    except ConversationNotFound:
        raise Http404(_("There is no such conversation.")) from None
    known = await selectors.list_conversations(user=user)
    urgent = [item for item in known[RECENT:] if item.standing == "asking"]
    return await _page(
        request,
        "webchat/chat.html",
        viewer=user,
        conversation=shown,
        conversations=known[:RECENT] + urgent,
        agents=await selectors.list_agents(user=user),
        texts=CHAT_TEXTS,
        socket_path=f"/ws/conversations/{conversation_id}/",
        login_url=f"{resolve_url(settings.LOGIN_URL)}?{urlencode({'next': request.path})}",
    )


async def _list(request: HttpRequest, *, problem: str = "", status: int = 200) -> HttpResponse:
    user = await request.auser()
    return await _page(
        request,
        "webchat/conversations.html",
        status=status,
        viewer=user,
        conversations=await selectors.list_conversations(user=user),
        agents=await selectors.list_agents(user=user),
        texts=LIST_TEXTS,
        problem=problem,
    )


async def _page(
    request: HttpRequest, template: str, *, status: int = 200, **context: Any
) -> HttpResponse:
    """Render in a worker thread: reading templates from disk would block the event loop."""
    return await asyncio.to_thread(render, request, template, context, status=status)
