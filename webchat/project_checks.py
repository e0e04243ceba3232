"""System checks of the project around the chat: what it has to name, serve and answer."""

import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from django.apps import apps
from django.conf import settings
from django.contrib.staticfiles.storage import staticfiles_storage
from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.core.files.storage import FileSystemStorage
from django.core.management import get_commands
from django.shortcuts import resolve_url
from django.urls import NoReverseMatch, Resolver404, get_script_prefix, resolve
from django.utils.module_loading import import_string

from governance import setting_rules

STYLE = "webchat/css/page.css"  # one of the files that every page names
_WITHOUT_SOCKETS = ("django.core", "django.contrib.staticfiles")


def check_apps(**_: Any) -> list[checks.CheckMessage]:
    """The apps below are installed."""
    return setting_rules.check_apps("webchat", "governance", "turns", check_id="webchat.E022")


def check_application(**_: Any) -> list[checks.CheckMessage]:
    """The ASGI application is named and can be imported."""
    path = getattr(settings, "ASGI_APPLICATION", None)
    if not path:
        return [
            checks.Warning(
                "ASGI_APPLICATION is not set: `manage.py serve` does not know what to serve.",
                hint='Set ASGI_APPLICATION = "myproject.asgi.application", with the name of your project.',
                id="webchat.W021",
            )
        ]
    try:
        import_string(str(path))
    except Exception as error:  # noqa: BLE001 - whatever the project's code does when it is imported
        return [
            checks.Error(
                f"ASGI_APPLICATION is {path!r}, which cannot be imported: {type(error).__name__}: {error}",
                hint="Correct the path, or what the module imports.",
                id="webchat.E021",
            )
        ]
    return []


def check_static_files(**_: Any) -> list[checks.CheckMessage]:
    """Somebody serves the scripts and styles that the pages name."""
    if not settings.STATIC_URL:
        return [
            checks.Error(
                "STATIC_URL is not set: no page can name its scripts and styles.",
                hint='Set STATIC_URL = "static/".',
                id="webchat.E020",
            )
        ]
    if _are_static_files_served():
        return []
    return [
        checks.Warning(
            f"Nothing serves the scripts and styles of the pages below {settings.STATIC_URL}.",
            hint=_how_to_serve(),
            id="webchat.W020",
        )
    ]


def check_sign_in(**_: Any) -> list[checks.CheckMessage]:
    """Whoever has to sign in is sent to a page that exists."""
    if _is_answered(settings.LOGIN_URL):
        return []
    return [
        checks.Warning(
            f"LOGIN_URL is {str(settings.LOGIN_URL)!r}, where no page answers: who is not signed in is sent there.",
            hint='Set LOGIN_URL = "webchat:login", or to the address or name of your own page.',
            id="webchat.W022",
        )
    ]


def check_runserver(**_: Any) -> list[checks.CheckMessage]:
    """The development server speaks WebSocket, where it is the one that was started."""
    if sys.argv[1:2] != ["runserver"] or get_commands()["runserver"] not in _WITHOUT_SOCKETS:
        return []
    return [
        checks.Warning(
            "This runserver knows no WebSockets: the chat pages will not hear anything.",
            hint='Start `manage.py serve` instead, or install daphne and put "daphne" first in INSTALLED_APPS.',
            id="webchat.W023",
        )
    ]


def register_all() -> None:
    for check in (
        check_apps,
        check_application,
        check_static_files,
        check_sign_in,
        check_runserver,
    ):
        checks.register(check, "webchat")


def _are_static_files_served() -> bool:
    """Guess: a web server in front cannot be seen from here, but the files that it needs can."""
    if settings.DEBUG and apps.is_installed("django.contrib.staticfiles"):
        return True  # by `serve` and `runserver`
    if getattr(settings, "WHITENOISE_USE_FINDERS", False) or _is_answered(
        f"{settings.STATIC_URL}{STYLE}"
    ):
        return True
    if not isinstance(staticfiles_storage, FileSystemStorage):
        return True
    return settings.STATIC_ROOT is not None and Path(settings.STATIC_ROOT, STYLE).exists()


def _how_to_serve() -> str:
    if not apps.is_installed("django.contrib.staticfiles"):
        return 'Add "django.contrib.staticfiles" to INSTALLED_APPS.'
    if settings.STATIC_ROOT:
        return "Run `manage.py collectstatic`: STATIC_ROOT does not hold them yet."
    return (
        "Set STATIC_ROOT and run `manage.py collectstatic`. Let your web server serve that directory, or put"
        ' "webchat.static_files.StaticFilesMiddleware" behind SecurityMiddleware'
        " (pip install 'django-turnkeeper[static]')."
    )


def _is_answered(to: Any) -> bool:
    """Return whether a name or an address leads to a view of this project, or to another host."""
    try:
        address = urlsplit(resolve_url(to))
        if not address.netloc:
            resolve(f"/{address.path.removeprefix(get_script_prefix())}")
    except (
        ImproperlyConfigured,
        NoReverseMatch,
        Resolver404,
        TypeError,
    ):  # the last: it is no text
        return False
    return True
