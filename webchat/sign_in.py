"""Sign-in: hashes few passwords at a time, so that turns keep running, and locks out repeated failures."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from math import ceil
from threading import Condition, local
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.contrib.auth.backends import ModelBackend
from django.contrib.auth.hashers import BasePasswordHasher, PBKDF2PasswordHasher
from django.db import connection
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.deprecation import MiddlewareMixin

from governance.db import run_in_pool_thread
from governance.durations import format_duration
from governance.sanitize import sanitize_text
from webchat.conf import app_settings

if TYPE_CHECKING:  # a project may have a user model of its own
    from django.contrib.auth.models import User

TRY_AGAIN_AFTER = timedelta(seconds=5)  # when too many were at once
_LONGEST_NAME = 255  # that django-axes has a column for


class TooManySignIns(Exception):
    """Too many passwords wait for their check in this process."""


class _PasswordCheckQueue:
    """Bounds the password checks that run, and those that wait. A thread has one slot, however often it enters."""

    def __init__(self) -> None:
        self._thread = local()
        self._changed = Condition()
        self._running = 0
        self._waiting = 0

    @contextmanager
    def slot(self) -> Iterator[None]:
        if getattr(self._thread, "has_slot", False):
            yield
            return
        self._enter()
        self._thread.has_slot = True
        try:
            yield
        finally:
            self._thread.has_slot = False
            with self._changed:
                self._running -= 1
                self._changed.notify()

    def _enter(self) -> None:
        room = app_settings.MAX_PASSWORD_CHECKS
        with self._changed:
            if self._running + self._waiting >= room + app_settings.MAX_WAITING_SIGN_INS:
                raise TooManySignIns
            self._waiting += 1
            try:
                self._changed.wait_for(lambda: self._running < room)
            finally:
                self._waiting -= 1
            self._running += 1


_queue = _PasswordCheckQueue()


def password_check() -> AbstractContextManager[None]:
    """Return a context in which a password may be hashed. Entering blocks the thread, so never enter it on a loop.

    Raises:
        TooManySignIns: on entering, when too many wait already.
    """
    return _queue.slot()


class SignInBackend(ModelBackend):
    """Django's own backend inside `password_check`, for known and unknown names alike."""

    def authenticate(
        self,
        request: HttpRequest | None,
        username: str | None = None,
        password: str | None = None,
        **kwargs: Any,
    ) -> "User | None":
        """Check a password once there is room. Ignore credentials without a password."""
        if password is None:
            return None
        with password_check():
            return super().authenticate(request, username=username, password=password, **kwargs)

    async def aauthenticate(
        self,
        request: HttpRequest | None,
        username: str | None = None,
        password: str | None = None,
        **kwargs: Any,
    ) -> "User | None":
        """Authenticate in a thread of its own: Django would hash on the event loop."""
        check = run_in_pool_thread(self.authenticate)
        return await check(request, username=username, password=password, **kwargs)


class QueuedHasher(BasePasswordHasher):
    """Lets a hasher of Django's hash inside `password_check`, also where a form sets or changes a password.

    Whoever holds a transaction does not wait: all who write would wait for that one.
    """

    def encode(self, password: str, salt: str, *args: Any, **kwargs: Any) -> Any:
        """Hash a password once there is room."""
        with _hashing():
            return super().encode(password, salt, *args, **kwargs)

    def verify(self, password: str, encoded: str) -> bool:
        """Compare a password with its hash once there is room."""
        with _hashing():
            return super().verify(password, encoded)


class PasswordHasher(QueuedHasher, PBKDF2PasswordHasher):
    """Django's default hasher, a few at a time."""


def _hashing() -> AbstractContextManager[None]:
    return nullcontext() if connection.in_atomic_block else password_check()


class SignInMiddleware(MiddlewareMixin):
    """Answers a sign-in, or another form with a password, that found no room with a page and status 429."""

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        """Answer `TooManySignIns`; leave every other exception to Django."""
        if not isinstance(exception, TooManySignIns):
            return None
        return _refusal(request, wait=TRY_AGAIN_AFTER, is_locked=False)


def counted_name(request: HttpRequest, credentials: Mapping[str, Any] | None = None) -> str | None:
    """Return the name that a failure counts for, as its column takes it (`AXES_USERNAME_CALLABLE`).

    A failure that the database refuses to keep would not count, for the address neither.
    """
    name = (credentials or request.POST).get("username")
    return name and sanitize_text(name)[:_LONGEST_NAME]


def locked_out(request: HttpRequest, *_: Any) -> HttpResponse:
    """Answer a sign-in whose name or address failed too often (`AXES_LOCKOUT_CALLABLE`)."""
    pause = getattr(settings, "AXES_COOLOFF_TIME", None)
    return _refusal(request, wait=pause if isinstance(pause, timedelta) else None, is_locked=True)


def _refusal(request: HttpRequest, *, wait: timedelta | None, is_locked: bool) -> HttpResponse:
    seconds = wait and ceil(wait.total_seconds())
    user = getattr(request, "user", None)
    context = {
        "is_locked": is_locked,
        "is_signed_in": user is not None and user.is_authenticated,
        "wait": format_duration(seconds * 1000) if seconds else "",
        "address": request.get_full_path(),
    }
    answer = render(request, "webchat/too_many_sign_ins.html", context, status=429)
    if seconds:
        answer["Retry-After"] = str(seconds)
    return answer
