"""The pages: sign-in, the list of conversations, one conversation. Each calls one service and renders."""

from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import wraps
from typing import Any
from uuid import UUID, uuid4

from django.contrib.auth.decorators import login_required
from django.contrib.auth.views import LoginView, LogoutView, redirect_to_login
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import NoReverseMatch, reverse
from django.utils.http import urlencode
from django.utils.translation import gettext as _
from django.views.decorators.cache import cache_control
from django.views.decorators.http import require_http_methods, require_safe

from governance.db import run_in_query_thread
from turns import selectors, services
from turns.exceptions import AgentUnavailable, ConversationNotFound, NotAllowed
from webchat.chat_context import chat_context
from webchat.conversation_days import Day, by_day
from webchat.page_texts import LIST_TEXTS
from webchat.translation import in_thread

RECENT = 30  # conversations in the sidebar of the chat page
PER_PAGE = 50  # in the list of all

Page = Callable[..., Coroutine[Any, Any, HttpResponse]]


def signed_in(page: Page) -> Page:
    """Send whoever is not signed in to the sign-in, as well as users who are deleted or deactivated meanwhile.

    No browser keeps a copy, which it would show to whoever goes back after the sign-out.
    """

    @login_required
    @cache_control(private=True, no_store=True)
    @wraps(page)
    async def shown(request: HttpRequest, **kwargs: Any) -> HttpResponse:
        try:
            return await page(request, **kwargs)
        except NotAllowed:
            return redirect_to_login(request.get_full_path())

    return shown


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
@signed_in
async def conversations(request: HttpRequest) -> HttpResponse:
    """Show the user's conversations, newest first."""
    return await _list(request)


@require_http_methods(["GET", "HEAD", "POST"])
@signed_in
async def new_conversation(request: HttpRequest) -> HttpResponse:
    """Open an empty page for a new conversation; by POST, create one and open it."""
    if request.method != "POST":
        place = reverse("webchat:unbegun_conversation", kwargs={"conversation_id": uuid4()})
        agent = request.GET.get("agent", "")
        return redirect(f"{place}?{urlencode({'agent': agent})}" if agent else place)
    user = await request.auser()
    try:
        made = await services.create_conversation(user=user, agent=request.POST.get("agent", ""))
    except AgentUnavailable as gone:
        return await _list(request, problem=gone.sentence, status=422)
    return redirect("webchat:conversation", conversation_id=made.id)


@require_safe
@signed_in
async def unbegun_conversation(request: HttpRequest, *, conversation_id: UUID) -> HttpResponse:
    """Show the empty page of a conversation that its first message makes. Say so if the chosen agent no longer exists."""
    user = await request.auser()
    with suppress(ConversationNotFound):
        await selectors.get_conversation(conversation_id=conversation_id, user=user)
        return redirect("webchat:conversation", conversation_id=conversation_id)
    try:
        shown = await selectors.unbegun_conversation(
            conversation_id=conversation_id, agent=request.GET.get("agent", ""), user=user
        )
    except AgentUnavailable as gone:
        return await _list(request, problem=gone.sentence, status=422)
    return await _chat(request, shown, is_new=True)


@require_safe
@signed_in
async def conversation(request: HttpRequest, *, conversation_id: UUID) -> HttpResponse:
    """Show one conversation; its content comes over the WebSocket."""
    user = await request.auser()
    try:
        shown = await selectors.get_conversation(conversation_id=conversation_id, user=user)
    except ConversationNotFound:
        raise Http404(_("There is no such conversation.")) from None
    return await _chat(request, shown)


@require_safe
@signed_in
async def recent_conversations(request: HttpRequest, *, conversation_id: UUID) -> HttpResponse:
    """Show the list of a conversation's page alone. The page asks for it even after the conversation is deleted."""
    user = await request.auser()
    search = request.GET.get("search", "")
    return await _page(
        request,
        "webchat/includes/_recent_conversations.html",
        conversations=await _recent(user, search),
        search=search,
        conversation_id=conversation_id,
    )


async def _chat(
    request: HttpRequest, shown: selectors.ConversationSummary, *, is_new: bool = False
) -> HttpResponse:
    user = await request.auser()
    agents = await selectors.list_agents(user=user)
    return await _page(
        request,
        "webchat/chat.html",
        viewer=user,
        conversation=shown,
        conversations=await _recent(user),
        agents=agents,
        is_new=is_new,
        is_gone=shown.agent not in {agent.name for agent in agents},
        starters=await selectors.starters(agent=shown.agent, user=user),
        conversation_id=shown.id,
        admin_address="" if is_new else await _admin_address(user, shown.id),
        **chat_context(path=request.get_full_path()),
    )


@run_in_query_thread
def _admin_address(user: Any, conversation_id: UUID) -> str:
    """Return the address of a conversation in the admin. It is empty for whoever may not see it there, or without an admin."""
    if not (getattr(user, "is_staff", False) and user.has_perm("turns.view_conversation")):
        return ""
    try:
        return reverse("admin:turns_conversation_change", args=[conversation_id])
    except NoReverseMatch:
        return ""


async def _recent(user: Any, search: str = "") -> list[Day]:
    """Return the newest conversations by day, and older ones that wait for a decision."""
    known = await selectors.list_conversations(user=user, search=search)
    urgent = [item for item in known[RECENT:] if item.standing == "asking"]
    return await in_thread(by_day, known[:RECENT] + urgent)


async def _list(request: HttpRequest, *, problem: str = "", status: int = 200) -> HttpResponse:
    user = await request.auser()
    search = request.GET.get("search", "")
    number = _page_number(request)
    found = await selectors.list_conversations(
        user=user, search=search, offset=(number - 1) * PER_PAGE, limit=PER_PAGE + 1
    )
    return await _page(
        request,
        "webchat/conversations.html",
        status=status,
        viewer=user,
        conversations=await in_thread(by_day, found[:PER_PAGE]),
        search=search,
        number=number,
        has_more=len(found) > PER_PAGE,
        agents=await selectors.list_agents(user=user),
        texts=LIST_TEXTS,
        problem=problem,
    )


def _page_number(request: HttpRequest) -> int:
    """Return the page that is asked for; what is no number is the first one."""
    asked = request.GET.get("page", "")
    return max(int(asked), 1) if asked.isdecimal() and len(asked) < 7 else 1


async def _page(
    request: HttpRequest, template: str, *, status: int = 200, **context: Any
) -> HttpResponse:
    """Render in a worker thread: reading templates from disk would block the event loop."""
    return await in_thread(render, request, template, context, status=status)
