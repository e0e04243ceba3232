"""The views of the pages: sign-in, the list of conversations, and one conversation. Each renders a template."""

from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, timedelta
from functools import wraps
from typing import Any
from uuid import UUID, uuid4

from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.contrib.auth.views import LoginView, LogoutView, redirect_to_login
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render, resolve_url
from django.urls import NoReverseMatch, get_script_prefix, reverse
from django.utils import timezone
from django.utils.decorators import method_decorator
from django.utils.functional import Promise
from django.utils.http import urlencode
from django.utils.translation import get_language, gettext_lazy
from django.utils.translation import gettext as _
from django.views.decorators.cache import cache_control
from django.views.decorators.http import require_http_methods, require_safe

from governance import cancel_vocabulary
from governance.db import run_in_query_thread
from turns import selectors, services
from turns.conf import app_settings as turn_settings
from turns.exceptions import AgentUnavailable, ConversationNotFound, NotAllowed
from turns.selectors import ConversationSummary
from webchat.decorators import chat_view, open_view
from webchat.page_texts import CHAT_TEXTS, LIST_TEXTS
from webchat.translation import in_thread

RECENT = 30  # number of conversations in the sidebar of the chat page
PER_PAGE = 50  # number of conversations on a page of the list
PLACEHOLDER = UUID(int=0)  # scripts replace it with the id of a conversation

Page = Callable[..., Coroutine[Any, Any, HttpResponse]]


DAYS: dict[str, Promise] = {
    "pinned": gettext_lazy("Pinned"),
    "today": gettext_lazy("Today"),
    "yesterday": gettext_lazy("Yesterday"),
    "week": gettext_lazy("Last 7 days"),
    "earlier": gettext_lazy("Earlier"),
}


@dataclass(frozen=True, slots=True)
class Day:
    """A heading in the list of conversations, with the conversations below it."""

    key: str
    conversations: list[ConversationSummary]

    @property
    def label(self) -> Promise:
        return DAYS[self.key]


def by_day(conversations: Iterable[ConversationSummary]) -> list[Day]:
    """Return the conversations grouped under the headings in `DAYS`. Their order within each group is kept."""
    today = timezone.localdate()
    days: dict[str, list[ConversationSummary]] = {key: [] for key in DAYS}
    for conversation in conversations:
        days[_key(conversation, today=today)].append(conversation)
    return [Day(key, entries) for key, entries in days.items() if entries]


def _key(conversation: ConversationSummary, *, today: date) -> str:
    if conversation.is_pinned:
        return "pinned"
    age = today - timezone.localdate(conversation.updated_at)
    if age < timedelta(days=1):
        return "today"
    if age < timedelta(days=2):
        return "yesterday"
    return "week" if age < timedelta(days=7) else "earlier"


def signed_in(page: Page) -> Page:
    """Redirect users who are not signed in, or whose account was deleted or deactivated, to the sign-in.

    Browsers are told to store no copy, which they would show to anyone who goes back in the history after a sign-out.
    """

    @chat_view
    @login_required
    @cache_control(private=True, no_store=True)
    @wraps(page)
    async def shown(request: HttpRequest, **kwargs: Any) -> HttpResponse:
        try:
            return await page(request, **kwargs)
        except NotAllowed:
            return redirect_to_login(request.get_full_path())

    return shown


@method_decorator(open_view, name="dispatch")
class SignInView(LoginView):
    """The sign-in page. Users who are already signed in are redirected to their conversations."""

    template_name = "webchat/login.html"
    redirect_authenticated_user = True

    def get_default_redirect_url(self) -> str:
        """Return the address to redirect to if the request has no `next`."""
        return reverse("webchat:conversations")


@method_decorator(open_view, name="dispatch")
class SignOutView(LogoutView):
    """The sign-out, which requires POST."""

    template_name = "webchat/logged_out.html"


@require_safe
@signed_in
async def conversations(request: HttpRequest) -> HttpResponse:
    """Show the user's conversations: the pinned ones, then the others, newest first."""
    return await _list(request)


@require_http_methods(["GET", "HEAD", "POST"])
@signed_in
async def new_conversation(request: HttpRequest) -> HttpResponse:
    """Redirect to an empty page for a new conversation. On POST, create a conversation and redirect to it."""
    if request.method != "POST":
        place = reverse("webchat:unbegun_conversation", kwargs={"conversation_id": uuid4()})
        agent = request.GET.get("agent", "")
        return redirect(f"{place}?{urlencode({'agent': agent})}" if agent else place)
    user = await request.auser()
    try:
        conversation = await services.create_conversation(
            user=user, agent=request.POST.get("agent", "")
        )
    except AgentUnavailable as gone:
        return await _list(request, problem=gone.sentence, status=422)
    return redirect("webchat:conversation", conversation_id=conversation.id)


@require_safe
@signed_in
async def unbegun_conversation(request: HttpRequest, *, conversation_id: UUID) -> HttpResponse:
    """Show the empty page of a conversation that will be created by its first message.

    If the chosen agent no longer exists, show the list with an explanation.
    """
    user = await request.auser()
    with suppress(ConversationNotFound):
        await selectors.get_conversation(conversation_id=conversation_id, user=user)
        return redirect("webchat:conversation", conversation_id=conversation_id)
    try:
        summary = await selectors.unbegun_conversation(
            conversation_id=conversation_id, agent=request.GET.get("agent", ""), user=user
        )
    except AgentUnavailable as gone:
        return await _list(request, problem=gone.sentence, status=422)
    return await _chat(request, summary, is_new=True)


@require_safe
@signed_in
async def conversation(request: HttpRequest, *, conversation_id: UUID) -> HttpResponse:
    """Show one conversation. Its content arrives over the WebSocket."""
    user = await request.auser()
    try:
        summary = await selectors.get_conversation(conversation_id=conversation_id, user=user)
    except ConversationNotFound:
        raise Http404(_("There is no such conversation.")) from None
    return await _chat(request, summary)


@require_safe
@signed_in
async def recent_conversations(request: HttpRequest, *, conversation_id: UUID) -> HttpResponse:
    """Show only the list of conversations in the sidebar.

    The chat page requests it, even after its own conversation is deleted.
    """
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
    request: HttpRequest, conversation: selectors.ConversationSummary, *, is_new: bool = False
) -> HttpResponse:
    user = await request.auser()
    agents = await selectors.list_agents(user=user)
    return await _page(
        request,
        "webchat/chat.html",
        viewer=user,
        conversation=conversation,
        conversations=await _recent(user),
        agents=agents,
        is_new=is_new,
        is_gone=conversation.agent not in {agent.name for agent in agents},
        starters=await selectors.starters(agent=conversation.agent, user=user),
        conversation_id=conversation.id,
        admin_address="" if is_new else await _admin_address(user, conversation.id),
        **chat_context(path=request.get_full_path()),
    )


def chat_context(*, path: str) -> dict[str, Any]:
    """Return the template context that every chat needs, even one on a project's own page.

    `path` is the path of that page.
    """
    return {
        "texts": CHAT_TEXTS,
        "attachment_limits": _attachment_limits(),
        "stop_words": cancel_vocabulary(get_language() or "", also=turn_settings.CANCEL_WORDS),
        "placeholder_id": PLACEHOLDER,
        "socket_path": f"{get_script_prefix()}ws/conversations/{PLACEHOLDER}/",
        "login_url": f"{resolve_url(settings.LOGIN_URL)}?{urlencode({'next': path})}",
    }


def _attachment_limits() -> dict[str, int] | None:
    """Return the limits that the page checks before an upload, or None if the site accepts no attachments."""
    if not turn_settings.ATTACHMENT_STORAGE:
        return None
    return {
        "max_bytes": turn_settings.ATTACHMENT_MAX_BYTES,
        "max_count": turn_settings.ATTACHMENTS_PER_MESSAGE,
    }


@run_in_query_thread
def _admin_address(user: Any, conversation_id: UUID) -> str:
    """Return a conversation's address in the admin.

    Return "" if the user may not see it there, or if there is no admin.
    """
    if not (getattr(user, "is_staff", False) and user.has_perm("turns.view_conversation")):
        return ""
    try:
        return reverse("admin:turns_conversation_change", args=[conversation_id])
    except NoReverseMatch:
        return ""


async def _recent(user: Any, search: str = "") -> list[Day]:
    """Return the newest conversations, and older ones that wait for a decision, grouped by day."""
    conversations = await selectors.list_conversations(user=user, search=search)
    urgent = [item for item in conversations[RECENT:] if item.standing == "asking"]
    return await in_thread(by_day, conversations[:RECENT] + urgent)


async def _list(request: HttpRequest, *, problem: str = "", status: int = 200) -> HttpResponse:
    user = await request.auser()
    search = request.GET.get("search", "")
    number = _page_number(request)
    rows = await selectors.list_conversations(
        user=user, search=search, offset=(number - 1) * PER_PAGE, limit=PER_PAGE + 1
    )
    return await _page(
        request,
        "webchat/conversations.html",
        status=status,
        viewer=user,
        conversations=await in_thread(by_day, rows[:PER_PAGE]),
        search=search,
        number=number,
        has_more=len(rows) > PER_PAGE,
        agents=await selectors.list_agents(user=user),
        texts=LIST_TEXTS,
        problem=problem,
    )


def _page_number(request: HttpRequest) -> int:
    """Return the requested page number, or 1 if it is not a valid number."""
    number = request.GET.get("page", "")
    return max(int(number), 1) if number.isdecimal() and len(number) < 7 else 1


async def _page(
    request: HttpRequest, template: str, *, status: int = 200, **context: Any
) -> HttpResponse:
    """Render a template in a worker thread, because reading templates from disk would block the event loop."""
    return await in_thread(render, request, template, context, status=status)
