"""Sign-in with limits: only a few passwords are hashed concurrently, and repeated failures lead to a lockout."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from functools import cache
from math import ceil
from threading import BoundedSemaphore, Lock, local
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.contrib.auth.backends import ModelBackend
from django.contrib.auth.hashers import BasePasswordHasher, PBKDF2PasswordHasher
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.deprecation import MiddlewareMixin

from governance.csp import add_policy
from governance.db import database_alias, run_in_pool_thread
from governance.durations import format_duration
from governance.sanitize import sanitize_text
from webchat.conf import app_settings
from webchat.decorators import policy_for

if TYPE_CHECKING:  # not at run time, because a project may have a custom user model
    from django.contrib.auth.models import User

TRY_AGAIN_AFTER = timedelta(seconds=5)  # suggested pause after too many concurrent sign-ins
_LONGEST_NAME = 255  # length of the column for names in django-axes


class TooManySignIns(Exception):
    """Too many password checks are already waiting in this process."""


@contextmanager
def password_check() -> Iterator[None]:
    """Return a context in which a password may be hashed.

    Entering the context blocks the thread, so never enter it on an event loop.

    Raises:
        TooManySignIns: on entering, if too many checks are already waiting.
    """
    if getattr(_thread, "has_slot", False):  # the backend has a slot, and calls the hasher
        yield
        return
    with _semaphores_lock:
        places, slots = _semaphores(
            app_settings.MAX_PASSWORD_CHECKS, app_settings.MAX_WAITING_SIGN_INS
        )
    if not places.acquire(blocking=False):
        raise TooManySignIns
    try:
        with slots:
            _thread.has_slot = True
            try:
                yield
            finally:
                _thread.has_slot = False
    finally:
        places.release()


_thread = local()
_semaphores_lock = Lock()


@cache
def _semaphores(running: int, waiting: int) -> tuple[BoundedSemaphore, BoundedSemaphore]:
    """Return the semaphore that limits waiting and running checks together, and the one that limits running checks."""
    return BoundedSemaphore(running + waiting), BoundedSemaphore(running)


class SignInBackend(ModelBackend):
    """Django's `ModelBackend` inside `password_check`, which also limits the hashing for unknown user names."""

    def authenticate(
        self,
        request: HttpRequest | None,
        username: str | None = None,
        password: str | None = None,
        **kwargs: Any,
    ) -> "User | None":
        """Check a password as soon as a slot is free. Return None for credentials without a password."""
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
        """Authenticate in another thread, because Django would hash the password on the event loop."""
        check = run_in_pool_thread(self.authenticate)
        return await check(request, username=username, password=password, **kwargs)


class QueuedHasher(BasePasswordHasher):
    """A mixin that makes a hasher work inside `password_check`, even when a form sets or changes a password.

    Inside a transaction, it does not wait for a slot, because other writers could be waiting for that transaction.
    """

    def encode(self, password: str, salt: str, *args: Any, **kwargs: Any) -> Any:
        """Hash a password as soon as a slot is free."""
        with _hashing():
            return super().encode(password, salt, *args, **kwargs)

    def verify(self, password: str, encoded: str) -> bool:
        """Compare a password with a hash as soon as a slot is free."""
        with _hashing():
            return super().verify(password, encoded)


class PasswordHasher(QueuedHasher, PBKDF2PasswordHasher):
    """Django's default hasher with limited concurrency."""


def _hashing() -> AbstractContextManager[None]:
    has_transaction = not transaction.get_autocommit(using=database_alias())
    return nullcontext() if has_transaction else password_check()


class SignInMiddleware(MiddlewareMixin):
    """Responds to a sign-in or another password form with a page and status 429 if too many checks are waiting."""

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        """Return the response to `TooManySignIns`, or None, which leaves any other exception to Django."""
        if not isinstance(exception, TooManySignIns):
            return None
        return _refusal(request, wait=TRY_AGAIN_AFTER, is_locked=False)


def counted_name(request: HttpRequest, credentials: Mapping[str, Any] | None = None) -> str | None:
    """Return the user name for which django-axes counts a failure, cut to the column's length
    (`AXES_USERNAME_CALLABLE`).

    If the database refused to store the name, the failure would not be counted for the address either.
    """
    name = (credentials or request.POST).get("username")
    return name and sanitize_text(name)[:_LONGEST_NAME]


def locked_out(request: HttpRequest, *_: Any) -> HttpResponse:
    """Return the response to a sign-in whose name or address has failed too often (`AXES_LOCKOUT_CALLABLE`)."""
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
    add_policy(request, answer, policy_for(request))
    if seconds:
        answer["Retry-After"] = str(seconds)
    return answer
