"""Limits for one user in this process: frames and requests in a minute, and open sockets.

They protect the process, so each process counts alone. Messages are counted in the database, over all processes.
No limit for other things refuses a cancel: stopping must always be possible.
"""

from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from webchat import open_sockets
from webchat.conf import app_settings
from webchat.exceptions import Refused
from webchat.protocol.client_frames import ClientFrame
from webchat.protocol.operation import Operation
from webchat.sliding_window import user_rate_limits

TOO_MANY_FRAMES = gettext_lazy("Too many frames in a minute. Wait a moment, then connect again.")
TOO_MANY_SOCKETS = gettext_lazy(
    "You have too many conversations open at once. Close a page that you do not need, then reload this one."
)


def may_send_frame(user_id: Any, frame: ClientFrame) -> bool:
    """Count a frame. Return False if the user's sockets together have sent too many."""
    if isinstance(frame, Operation) and frame.is_cancel:
        return True
    return user_rate_limits.allow(user_id, "frames", limit=app_settings.MAX_USER_FRAMES_PER_MINUTE)


def may_open_socket(user_id: Any) -> bool:
    return open_sockets.count_for_user(user_id) < app_settings.MAX_SOCKETS_PER_USER


def check_request_rate(request: HttpRequest, user: AbstractBaseUser) -> None:
    """Count a POST request, for each route apart. Raise `Refused` if there were too many."""
    if request.method != "POST":
        return
    address = request.resolver_match.route if request.resolver_match else ""
    if not user_rate_limits.allow(
        user.pk, f"POST {address}", limit=app_settings.MAX_POSTS_PER_MINUTE
    ):
        raise Refused(429, "too_many_requests", _("Too many requests in a minute. Wait a moment."))
