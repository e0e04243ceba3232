"""Authentication of the HTTP API: by a session of this site or by a token; else 401 as JSON."""

from typing import cast

from django.contrib.auth.models import AbstractBaseUser
from django.http import HttpRequest
from django.utils.translation import gettext as _
from ninja.security.base import AuthBase
from ninja.utils import check_csrf

from governance.db import run_in_query_thread
from webchat import api_tokens
from webchat.exceptions import CsrfFailed, Refused, SignedOut
from webchat.rate_limits import check_request_rate

# Through the door, as the token may be kept in the session, and that in the database.
_check_csrf = run_in_query_thread(check_csrf)


class TokenAuth(AuthBase):
    """`Authorization: Bearer <token>`, for programs."""

    openapi_type = "http"
    openapi_scheme = "bearer"

    async def __call__(self, request: HttpRequest) -> AbstractBaseUser | None:
        """Return the user of the token. A wrong token is refused even if the session is valid."""
        token = api_tokens.bearer_of(request.headers.get("Authorization", ""))
        if token is None:
            return None
        user = await api_tokens.find_user_async(token)
        if user is None:
            raise SignedOut("invalid_token", _("This token is unknown or was revoked."))
        check_request_rate(request, user)
        return user


class SessionAuth(AuthBase):
    """Django's session cookie, for pages of this site; unsafe methods need the CSRF token as well."""

    openapi_type = "apiKey"
    openapi_in = "cookie"
    openapi_name = "sessionid"
    csrf = True

    async def __call__(self, request: HttpRequest) -> AbstractBaseUser | None:
        user = await request.auser()
        if not user.is_authenticated or not user.is_active:
            return None
        if request.content_type == "multipart/form-data":
            # The check would read it, files and all, and leave no body to whoever asks next.
            sentence = _("Send no form; /api/docs says what is taken.")
            raise Refused(415, "unsupported_media_type", sentence)
        if await _check_csrf(request) is not None:
            raise CsrfFailed(
                "csrf_failed",
                _("The CSRF token is missing or wrong. Reload the page and try again."),
            )
        check_request_rate(request, cast(AbstractBaseUser, user))
        return cast(AbstractBaseUser, user)
