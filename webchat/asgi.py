"""Django's ASGI application, with middleware that takes no thread for what waits for nothing."""

import django
from django.conf import settings
from django.core.handlers.asgi import ASGIHandler
from django.utils.module_loading import import_string


class AsyncHandler(ASGIHandler):
    """Handles requests as Django's does. Of Django's middleware, it takes that of `async_middleware`.

    A project lists the middleware of Django, whose checks look for these names. Classes of its own stay as they are.
    """

    def load_middleware(self, is_async: bool = False) -> None:  # noqa: FBT001, FBT002 - Django calls it like this
        """Build the chain."""
        listed = settings.MIDDLEWARE
        settings.MIDDLEWARE = [_without_threads(name) for name in listed]
        try:
            super().load_middleware(is_async)
        finally:
            settings.MIDDLEWARE = listed


def _without_threads(name: str) -> str:
    """Return the name of what takes the place of a middleware, or the same name."""
    from webchat import async_middleware  # noqa: PLC0415 - it needs Django's apps

    ours = getattr(async_middleware, name.rpartition(".")[-1], None)
    if isinstance(ours, type) and import_string(name) in ours.__bases__:
        return f"{ours.__module__}.{ours.__name__}"
    return name


def get_asgi_application() -> AsyncHandler:
    """Set Django up, and return the application for HTTP: what `django.core.asgi.get_asgi_application` is elsewhere."""
    django.setup(set_prefix=False)
    return AsyncHandler()
