"""Error responses of the HTTP API: `{"error": sentence, "code": code}` with a status.

They never contain the text of an unexpected exception.
"""

import logging
from collections.abc import Callable, Iterable
from functools import wraps
from inspect import iscoroutinefunction
from typing import Any, TypeVar, cast

from django.core.exceptions import RequestDataTooBig
from django.http import Http404, HttpRequest, HttpResponseBase, JsonResponse
from django.urls import URLPattern, URLResolver
from django.utils.translation import gettext as _
from django.views.decorators.cache import cache_control
from ninja import NinjaAPI
from ninja.errors import AuthenticationError, HttpError, ValidationError

from governance.labels import call_statuses, decisions, label_for
from turns.exceptions import (
    AlreadyReplaced,
    AttachmentNotFound,
    CannotContinue,
    CannotReplace,
    ConversationBusy,
    ConversationNotFound,
    ConversationParked,
    NotAllowed,
    QueueIsFull,
    ToolCallNotEnded,
    ToolCallNotFound,
    TooManyMessages,
    TurnNotFound,
    TurnsError,
)
from webchat.decorators import open_view
from webchat.exceptions import (
    DATABASE_FAILURES,
    DATABASE_IS_AWAY,
    RETRY_AFTER,
    Refused,
    SignedOut,
)
from webchat.validation_messages import validation_message

logger = logging.getLogger(__name__)

Raised = TypeVar("Raised", bound=Exception)
_STATUS_OF_TURNS_ERROR: dict[type[TurnsError], int] = {
    ConversationNotFound: 404,
    TurnNotFound: 404,
    ToolCallNotFound: 404,
    ToolCallNotEnded: 409,
    AttachmentNotFound: 404,
    QueueIsFull: 429,
    TooManyMessages: 429,
    ConversationParked: 409,
    CannotContinue: 409,
    CannotReplace: 409,
    AlreadyReplaced: 409,
    ConversationBusy: 409,
}


def error(status: int, code: str, sentence: object) -> JsonResponse:
    """Return an error response in the API's format."""
    return JsonResponse({"error": str(sentence), "code": code}, status=status)


def decided(status: str) -> JsonResponse:
    """Return the 409 response to a decision on a call that no longer waits for one."""
    sentence = _("This call is no longer waiting for a decision: %(status)s.") % {
        "status": label_for(status, [*call_statuses(), *decisions()])
    }
    return JsonResponse(
        {"error": sentence, "code": "already_decided", "status": status}, status=409
    )


def not_found() -> JsonResponse:
    """Return the 404 response for an unknown path of the API."""
    return error(
        404, "not_found", _("There is nothing at this address. /api/docs lists all addresses.")
    )


def install(api: NinjaAPI) -> None:
    """Register handlers that turn every exception of the API into an error response."""
    _answer(api, Exception, _on_failure)
    for kind in DATABASE_FAILURES:
        _answer(api, kind, _on_database_failure)
    _answer(api, Http404, lambda _raised: not_found())
    _answer(api, HttpError, _on_http_error)
    _answer(
        api,
        RequestDataTooBig,
        lambda _raised: error(413, "body_too_large", _("The request body is too large.")),
    )
    _answer(
        api,
        ValidationError,
        lambda raised: error(422, "invalid_field", validation_message(raised.errors)),
    )
    _answer(api, AuthenticationError, lambda _raised: signed_out("signed_out"))
    _answer(api, SignedOut, lambda raised: signed_out(raised.code))
    _answer(api, Refused, _on_refused)
    _answer(api, TurnsError, _on_turns_error)
    _answer(api, NotAllowed, lambda raised: signed_out(raised.code))


def _answer(api: NinjaAPI, kind: type[Raised], answer: Callable[[Raised], JsonResponse]) -> None:
    # Ninja's types also allow an exception class here, but Ninja only ever passes instances.
    api.add_exception_handler(kind, lambda _request, raised: answer(cast("Raised", raised)))


def signed_out(code: str) -> JsonResponse:
    """Return the 401 response to a request without a signed-in user."""
    response = error(
        401, code, _("Sign in, or send “Authorization: Bearer <token>” with a valid token.")
    )
    response["WWW-Authenticate"] = "Bearer"
    return response


def with_json_errors(
    patterns: Iterable[URLPattern | URLResolver],
) -> list[URLPattern | URLResolver]:
    """Wrap Ninja's URL patterns so that the errors 404 and 405 are JSON too, and browsers do not cache responses."""
    return [
        URLPattern(pattern.pattern, _in_json(pattern.callback), pattern.default_args, pattern.name)
        if isinstance(pattern, URLPattern)
        else pattern
        for pattern in patterns
    ]


def _in_json(view: Callable[..., Any]) -> Callable[..., Any]:
    if not iscoroutinefunction(
        view
    ):  # the pages of the API description, and the API's root, which exists only for `reverse`
        return _found_or_json(view)

    @open_view
    @cache_control(private=True, no_store=True)
    @wraps(view)
    async def answer(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        response: HttpResponseBase = await view(request, *args, **kwargs)
        if response.status_code != 405:
            return response
        refusal = error(
            405,
            "method_not_allowed",
            _("This address accepts %(methods)s.") % {"methods": response["Allow"]},
        )
        refusal["Allow"] = response["Allow"]
        return refusal

    return answer


def _found_or_json(view: Callable[..., Any]) -> Callable[..., Any]:
    @open_view
    def answer(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        try:
            response: HttpResponseBase = view(request, *args, **kwargs)
        except Http404:
            return not_found()
        return response

    return answer


def _on_failure(failure: Exception) -> JsonResponse:
    logger.error("A request could not be handled", exc_info=failure)
    return error(500, "server_error", _("Something went wrong on the server. Please try again."))


def _on_database_failure(failure: Exception) -> JsonResponse:
    logger.warning("The database is away: %s", failure)
    response = error(503, "unavailable", DATABASE_IS_AWAY)
    response["Retry-After"] = str(RETRY_AFTER)
    return response


def _on_refused(refused: Refused) -> JsonResponse:
    return error(refused.status, refused.code, refused.sentence)


def _on_http_error(refused: HttpError) -> JsonResponse:
    if isinstance(refused.__cause__, Refused):  # raised while the body was parsed
        return _on_refused(refused.__cause__)
    if refused.status_code == 400:
        return error(400, "invalid_json", _("The request body is not valid JSON."))
    return error(refused.status_code, "refused", _("The request was refused."))


def _on_turns_error(refused: TurnsError) -> JsonResponse:
    return error(_STATUS_OF_TURNS_ERROR.get(type(refused), 422), refused.code, refused.sentence)
