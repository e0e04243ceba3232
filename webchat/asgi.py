"""Django's ASGI application, with middleware that takes no thread for what waits for nothing."""

import django
from django.conf import settings
from django.core.handlers.asgi import ASGIHandler

_WITHOUT_THREADS = (
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
)


class AsyncHandler(ASGIHandler):
    """Handles requests as Django's does. Of Django's middleware, it takes that of `async_middleware`.

    A project lists the middleware of Django, whose checks look for these names. Classes of its own stay as they are.
    """

    def load_middleware(self, is_async: bool = False) -> None:  # noqa: FBT001, FBT002 - Django calls it like this
        """Build the chain."""
        listed = settings.MIDDLEWARE
        settings.MIDDLEWARE = [_here(name) if name in _WITHOUT_THREADS else name for name in listed]
        try:
            super().load_middleware(is_async)
        finally:
            settings.MIDDLEWARE = listed


def _here(name: str) -> str:
    return f"webchat.async_middleware.{name.rpartition('.')[-1]}"


def get_asgi_application() -> AsyncHandler:
    """Set Django up, and return the application for HTTP: what `django.core.asgi.get_asgi_application` is elsewhere."""
    django.setup(set_prefix=False)
    return AsyncHandler()
