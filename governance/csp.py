"""The Content-Security-Policy of Turnkeeper's own views. All other pages keep the project's policy."""

import secrets
from collections.abc import Callable
from functools import wraps
from typing import Any

from asgiref.sync import iscoroutinefunction
from django import VERSION
from django.http import HttpRequest, HttpResponseBase

HEADER = "Content-Security-Policy"

View = Callable[..., Any]


def nonce_of(request: HttpRequest) -> str:
    """Return the nonce for the response to this request.

    If the project uses Django's own middleware or django-csp, the nonce comes from there, so that a single nonce covers
    our scripts and those that a project adds to our templates.
    """
    nonce: object = None
    if VERSION >= (6, 0):
        from django.middleware.csp import get_nonce  # noqa: PLC0415 - Django 5 does not have it

        nonce = get_nonce(request)
    if nonce is None:
        nonce = getattr(request, "csp_nonce", None)
    if nonce is None:
        nonce = secrets.token_urlsafe(16)
        setattr(request, "csp_nonce", nonce)  # noqa: B010 - the type of a request has no such attribute
    return str(nonce)


def add_policy(request: HttpRequest, response: HttpResponseBase, policy: str | None) -> None:
    """Set the header, with the nonce in place of `{nonce}`. A header that the response already has is kept."""
    if not policy or HEADER in response:
        return
    if "{nonce}" in policy:
        policy = policy.replace("{nonce}", f"'nonce-{nonce_of(request)}'")
    response[HEADER] = policy


def with_policy(policy_for: Callable[[HttpRequest], str | None]) -> Callable[[View], View]:
    """Return a decorator for views that adds the request's policy to each response."""

    def decorate(view: View) -> View:
        if iscoroutinefunction(view):

            @wraps(view)
            async def answer_async(
                request: HttpRequest, *args: Any, **kwargs: Any
            ) -> HttpResponseBase:
                response: HttpResponseBase = await view(request, *args, **kwargs)
                add_policy(request, response, policy_for(request))
                return response

            return answer_async

        @wraps(view)
        def answer(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            response: HttpResponseBase = view(request, *args, **kwargs)
            add_policy(request, response, policy_for(request))
            return response

        return answer

    return decorate
