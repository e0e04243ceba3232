"""What a user may ask of this process: frames and requests in a minute, open sockets; with the sentence for who asks more.

They protect the process, so each counts by itself; messages are counted where they are taken, over all processes. A cancel
is never refused for something else that the same user does: stopping must always be possible.
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
    """Count a frame of a user's socket; return False if all of his sockets have sent too many."""
    if isinstance(frame, Operation) and frame.is_cancel:
        return True
    return user_rate_limits.allow(user_id, "frames", limit=app_settings.MAX_USER_FRAMES_PER_MINUTE)


def may_open_socket(user_id: Any) -> bool:
    """Return whether a user may have one more socket open here."""
    return open_sockets.count_for_user(user_id) < app_settings.MAX_SOCKETS_PER_USER


def check_request_rate(request: HttpRequest, user: AbstractBaseUser) -> None:
    """Count a request that changes something, for its address alone. Raise `Refused` if there were too many."""
    if request.method != "POST":
        return
    address = request.resolver_match.route if request.resolver_match else ""
    if not user_rate_limits.allow(
        user.pk, f"POST {address}", limit=app_settings.MAX_POSTS_PER_MINUTE
    ):
        raise Refused(429, "too_many_requests", _("Too many requests in a minute. Wait a moment."))
