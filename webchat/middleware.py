"""Middleware that adds a Content-Security-Policy to every page of a project, and handles invalid lookups in the admin."""

import logging
from collections.abc import Awaitable, Callable

from asgiref.sync import iscoroutinefunction
from django.contrib import messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.views.main import SEARCH_VAR
from django.db import DataError, OperationalError
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.utils.decorators import sync_and_async_middleware
from django.utils.translation import gettext as _

from governance.csp import add_policy
from webchat.decorators import policy_for

logger = logging.getLogger(__name__)

LONGEST_SEARCH = 200  # maximum characters of a search in the admin
_ERROR = "e"  # Django's parameter for an invalid lookup; the list then ignores its filters

GetResponse = (
    Callable[[HttpRequest], HttpResponse] | Callable[[HttpRequest], Awaitable[HttpResponse]]
)


@sync_and_async_middleware
def ContentSecurityPolicyMiddleware(get_response: GetResponse) -> GetResponse:  # noqa: N802 - Django's names for middleware
    """Send the policy in `WEBCHAT_CSP` with all pages of the project, not only with those of the chat.

    A header that a view has set is kept.
    """
    if iscoroutinefunction(get_response):

        async def add_policy_async(request: HttpRequest) -> HttpResponse:
            return _with_policy(request, await get_response(request))

        return add_policy_async

    def add_policy(request: HttpRequest) -> HttpResponse:
        return _with_policy(request, get_response(request))  # type: ignore[arg-type]  # not a coroutine: checked above

    return add_policy


@sync_and_async_middleware
def AdminLookupsMiddleware(get_response: GetResponse) -> GetResponse:  # noqa: N802 - Django's names for middleware
    """Handle requests to admin lists whose filters or searches contain values that the database cannot compare.

    Without this middleware, these requests would end with status 500. NUL characters in query strings are always
    replaced, because PostgreSQL cannot compare them.
    """
    if iscoroutinefunction(get_response):

        async def replace_async(request: HttpRequest) -> HttpResponse:
            answer: HttpResponse = await get_response(_without_nul(request))
            return answer

        return _answering_lookups(replace_async)

    def replace(request: HttpRequest) -> HttpResponse:
        return get_response(_without_nul(request))  # type: ignore[return-value]  # not a coroutine

    return _answering_lookups(replace)


def _answering_lookups(middleware: GetResponse) -> GetResponse:
    middleware.process_exception = _list_without_lookups  # type: ignore[union-attr]  # Django calls it
    return middleware


def _list_without_lookups(request: HttpRequest, problem: Exception) -> HttpResponse | None:
    """Redirect a request with an invalid lookup or primary key to the unfiltered list, as Django does for unknown
    lookups.
    """
    match = request.resolver_match
    is_list = (
        match is not None and match.app_name == "admin" and match.view_name.endswith("_changelist")
    )
    if isinstance(problem, OperationalError) and (answer := _cut_search(request, is_list=is_list)):
        return answer
    is_asked = bool(request.GET) or ACTION_CHECKBOX_NAME in request.POST
    if not is_list or not is_asked or _ERROR in request.GET:
        return None
    if not isinstance(problem, DataError | OverflowError | ValueError):
        return None
    logger.warning("The query of an admin list was invalid", exc_info=problem)
    return HttpResponseRedirect(f"{request.path}?{_ERROR}=1")


def _cut_search(request: HttpRequest, *, is_list: bool) -> HttpResponse | None:
    """Return a response to a search that is too long for the database, or None for any other request."""
    if is_list and cut_search(request):
        return HttpResponseRedirect(f"{request.path}?{request.GET.urlencode()}")
    match = request.resolver_match
    is_completion = match is not None and match.view_name == "admin:autocomplete"
    if is_completion and len(request.GET.get("term", "")) > LONGEST_SEARCH:
        return JsonResponse({"results": [], "pagination": {"more": False}})
    return None


def cut_search(request: HttpRequest) -> bool:
    """Truncate a search that is too long for the database, and add a message. Return whether it was truncated."""
    searched = request.GET.get(SEARCH_VAR, "")
    if len(searched) <= LONGEST_SEARCH:
        return False
    query = request.GET.copy()
    query[SEARCH_VAR] = searched[:LONGEST_SEARCH]
    request.GET = query  # type: ignore[assignment]  # the mutable copy is not changed any more
    sentence = _("The search was too long: only its first %(count)d characters were used.")
    messages.warning(request, sentence % {"count": LONGEST_SEARCH}, fail_silently=True)
    return True


def _without_nul(request: HttpRequest) -> HttpRequest:
    query = request.META.get("QUERY_STRING", "")
    request.META["QUERY_STRING"] = query.replace("%00", "%EF%BF%BD")
    return request


def _with_policy(request: HttpRequest, response: HttpResponse) -> HttpResponse:
    add_policy(request, response, policy_for(request))
    return response
