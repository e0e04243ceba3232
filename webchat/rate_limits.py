"""Limits each user's frames and requests per minute, and each user's open sockets, in this process.

The limits protect the process, so each process counts separately. With three processes, a user can send three times as
much. Messages are counted in the database, for all processes together (`turns.queueing.queue`).

A user's limit for frames never refuses a cancel, and each endpoint of the API has its own limit. A user's other sockets
and requests therefore cannot prevent a cancel.
"""

import time
from collections import deque
from collections.abc import Callable, Hashable
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from webchat import open_sockets
from webchat.conf import app_settings
from webchat.exceptions import Refused
from webchat.protocol.client_frames import Ack, ClientFrame
from webchat.protocol.operation import Operation

TOO_MANY_FRAMES = gettext_lazy("Too many frames in a minute. Wait a moment, then connect again.")
TOO_MANY_SOCKETS = gettext_lazy(
    "You have too many conversations open. Close one of their pages, then reload this one."
)
WINDOW = 60.0  # seconds


def may_send_frame(user_id: Any, frame: ClientFrame) -> bool:
    """Count a frame. Return False if the user's sockets together have sent too many in the last minute."""
    if isinstance(frame, Ack) or (isinstance(frame, Operation) and frame.is_cancel):
        return True
    return user_rate_limits.allow(user_id, "frames", limit=app_settings.MAX_USER_FRAMES_PER_MINUTE)


def may_open_socket(user_id: Any) -> bool:
    return open_sockets.count_for_user(user_id) < app_settings.MAX_SOCKETS_PER_USER


def check_request_rate(request: HttpRequest, user: AbstractBaseUser) -> None:
    """Count a POST request, separately for each endpoint. Raise `Refused` if there were too many in the last minute."""
    if request.method != "POST":
        return
    address = request.resolver_match.route if request.resolver_match else ""
    if not user_rate_limits.allow(
        user.pk, f"POST {address}", limit=app_settings.MAX_POSTS_PER_MINUTE
    ):
        raise Refused(429, "too_many_requests", _("Too many requests in a minute. Wait a moment."))


class RateLimit:
    """A rate limit that allows at most `limit` events within any minute.

    Refused events are not counted, so waiting helps.
    """

    def __init__(self, limit: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._clock = clock
        self._times: deque[float] = deque()

    @property
    def is_idle(self) -> bool:
        """Whether there was no event within the last minute."""
        return not self._times or self._times[-1] <= self._clock() - WINDOW

    def allow(self) -> bool:
        """Count an event, and return True.

        If there were too many in the last minute, do not count it, and return False.
        """
        now = self._clock()
        while self._times and self._times[0] <= now - WINDOW:
            self._times.popleft()
        if len(self._times) >= self._limit:
            return False
        self._times.append(now)
        return True


class UserRateLimits:
    """The rate limits of all users. The limits of users who were idle for a minute are dropped, so that few are stored."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._rates: dict[Hashable, RateLimit] = {}
        self._tidied_at = clock()

    def __len__(self) -> int:
        return len(self._rates)

    def allow(self, user_id: Hashable, what: str, *, limit: int) -> bool:
        """Count an event of a user. Return False if there were already `limit` such events in the last minute."""
        self._tidy()
        key = (user_id, what, limit)
        rate = self._rates.get(key)
        if rate is None:
            rate = self._rates[key] = RateLimit(limit, clock=self._clock)
        return rate.allow()

    def clear(self) -> None:
        self._rates.clear()

    def _tidy(self) -> None:
        if self._clock() - self._tidied_at >= WINDOW:
            self._tidied_at = self._clock()
            self._rates = {key: rate for key, rate in self._rates.items() if not rate.is_idle}


user_rate_limits = UserRateLimits()
