"""System checks for mistakes in a project that would make the chat page slow, insecure or blind to events."""

import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from django.apps import apps
from django.conf import settings
from django.contrib.auth.backends import ModelBackend
from django.contrib.staticfiles.storage import staticfiles_storage
from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.core.files.storage import FileSystemStorage
from django.core.management import get_commands
from django.db import DatabaseError
from django.shortcuts import resolve_url
from django.urls import NoReverseMatch, Resolver404, get_script_prefix, resolve
from django.utils.module_loading import import_string

from governance import setting_rules
from turns import selectors
from turns.running.runtime import turns_run_here
from webchat.conf import app_settings
from webchat.import_map import import_map
from webchat.routing import accepts_every_site
from webchat.sign_in import QueuedHasher

CORE_LAYER = "channels_redis.core.RedisChannelLayer"
SHARED_LAYER = "channels_redis.pubsub.RedisPubSubChannelLayer"
MEMORY_LAYER = "channels.layers.InMemoryChannelLayer"
SIGN_IN_BACKEND = "webchat.sign_in.SignInBackend"
SIGN_IN_HASHER = "webchat.sign_in.PasswordHasher"
SIGN_IN_MIDDLEWARE = "webchat.sign_in.SignInMiddleware"
UNGUARDED = ModelBackend.authenticate  # hashes any number of passwords concurrently
CLIENT_ADDRESS = "webchat.addresses.client_address"
STYLE = "webchat/css/page.css"  # a file that every page uses
_WITHOUT_SOCKETS = ("django.core", "django.contrib.staticfiles")


def check_values(**_: Any) -> list[checks.CheckMessage]:
    """Check that every setting has the right type and a sensible value."""
    return setting_rules.check_values(app_settings)


def check_names(**_: Any) -> list[checks.CheckMessage]:
    """Check that no setting is misspelled. Django would silently ignore it."""
    return setting_rules.check_names(app_settings, check_id="webchat.W003")


def check_layer(**_: Any) -> list[checks.CheckMessage]:
    """Check that a channel layer is configured, exists, and is suitable for streamed text."""
    layer = _layer()
    if layer is None:
        return [
            checks.Error(
                "No channel layer is configured: sockets would see events only when they next look into the log.",
                hint=f"Set CHANNEL_LAYERS['default']['BACKEND'] to {MEMORY_LAYER!r} for one process.",
                id="webchat.E002",
            )
        ]
    problems = setting_rules.check_path(
        layer["BACKEND"],
        what="There is no channel layer",
        otherwise=f"Correct CHANNEL_LAYERS: {MEMORY_LAYER!r} is the one for one process.",
        check_id="webchat.E008",
    )
    return [*problems, *_problems_of_layer(layer)]


def _problems_of_layer(layer: dict[str, Any]) -> Iterator[checks.CheckMessage]:
    backend = layer["BACKEND"]
    if backend == CORE_LAYER:
        yield checks.Warning(
            "The core Redis layer is too slow for streamed text, and closes all sockets when Redis restarts.",
            hint=f"Use {SHARED_LAYER!r}.",
            id="webchat.W001",
        )
    if backend == MEMORY_LAYER and not turns_run_here():
        yield checks.Warning(
            "Turns run in other processes, and the channel layer is in memory: pages see what happens"
            " only when they next look into the log.",
            hint=f"Let CHANNEL_LAYERS name {SHARED_LAYER!r}, with the address of one Redis.",
            id="webchat.W004",
        )
    is_redis_8 = backend.startswith("channels_redis.") and _redis_major() >= 8
    if is_redis_8 and not _waits_for_ever(layer):
        yield checks.Error(
            "redis-py 8 ends idle connections after seconds, and with them every idle socket.",
            hint="Give each of the layer's hosts 'socket_timeout': None and 'max_connections'.",
            id="webchat.E003",
        )


def check_origin(**_: Any) -> list[checks.CheckMessage]:
    """Check that pages of other sites cannot open a socket with this site's session cookie."""
    path = getattr(settings, "ASGI_APPLICATION", None)
    if not path:
        return []
    try:
        application = import_string(str(path))
    except Exception:  # noqa: BLE001 - `check_application` reports it
        return []
    if not accepts_every_site(application):
        return []
    return [
        checks.Error(
            "WebSockets are accepted from every site: a page of somebody else could use a visitor's session.",
            hint="Route them with webchat.routing.websocket_application, or wrap your own in SiteOriginValidator.",
            id="webchat.E004",
        )
    ]


def check_processes(*, databases: Any = None, **_: Any) -> list[checks.CheckMessage]:
    """Check that all live processes share a channel layer. This check runs only with `check --database default`."""
    if not databases or not _lack_shared_layer():
        return []
    return [
        checks.Error(
            "Several processes are alive, and one at least has a channel layer that no other hears: pages do not see"
            " what happens elsewhere.",
            hint=f"Let CHANNEL_LAYERS name {SHARED_LAYER!r} in all of them, with the address of one Redis.",
            id="webchat.E005",
        )
    ]


def check_deployment(**_: Any) -> list[checks.CheckMessage]:
    """Check that several processes can share the channel layer."""
    layer = _layer()
    if layer is None or layer["BACKEND"] != MEMORY_LAYER:
        return []
    return [
        checks.Info(
            "The channel layer is in memory: live updates reach the sockets of one process only.",
            hint=f"Fine for one process. For more, let CHANNEL_LAYERS name {SHARED_LAYER!r}.",
            id="webchat.I001",
        )
    ]


def check_password_backend(**_: Any) -> list[checks.CheckMessage]:
    """Check that concurrent sign-ins cannot stall a process."""
    open_ones = [
        path
        for path, kind in zip(settings.AUTHENTICATION_BACKENDS, _backends(), strict=False)
        if getattr(kind, "authenticate", None) is UNGUARDED
    ]
    if not open_ones or _hashes_in_queue():
        return []
    return [
        checks.Warning(
            "Passwords are checked as many at a time as come: a few dozen sign-ins stall a process and its turns.",
            hint=f"Put {SIGN_IN_BACKEND!r} in the place of {open_ones[0]!r} in AUTHENTICATION_BACKENDS, and"
            f" {SIGN_IN_MIDDLEWARE!r} into MIDDLEWARE. All other backends stay where they are; those that check"
            f" passwords by themselves wait their turn with {SIGN_IN_HASHER!r} as the first of PASSWORD_HASHERS.",
            id="webchat.W005",
        )
    ]


def _hashes_in_queue() -> bool:
    """Return whether every password check waits in the queue, no matter which backend runs it."""
    try:
        return issubclass(import_string(settings.PASSWORD_HASHERS[0]), QueuedHasher)
    except (ImportError, IndexError):  # Django reports this when it hashes a password
        return False


def check_sign_in_limit(**_: Any) -> list[checks.CheckMessage]:
    """Check that the number of password guesses is limited."""
    backends = _backends()
    kinds = [kind for backend in backends for kind in backend.__mro__]
    if not backends or any(kind.__module__.startswith("axes.") for kind in kinds):
        return []
    return [
        checks.Info(
            "Nothing here limits how often somebody may try to sign in.",
            hint='Install "django-turnkeeper[sign-in]" and set django-axes up, unless something else does that.',
            id="webchat.I002",
        )
    ]


def check_client_address(**_: Any) -> list[checks.CheckMessage]:
    """Check that failed sign-ins are counted for the client's address, not for that of a proxy."""
    if (
        getattr(settings, "AXES_CLIENT_IP_CALLABLE", None) != CLIENT_ADDRESS
        or not getattr(settings, "SECURE_PROXY_SSL_HEADER", None)
        or app_settings.TRUSTED_PROXIES
    ):
        return []
    return [
        checks.Warning(
            "The site is behind a proxy that is not configured, so all users seem to sign in from one address.",
            hint="Set WEBCHAT_TRUSTED_PROXIES to the proxy's address.",
            id="webchat.W006",
        )
    ]


def check_proxy(**_: Any) -> list[checks.CheckMessage]:
    """Check that a proxy is configured, which can limit the request bodies of clients that are not signed in."""
    if getattr(settings, "SECURE_PROXY_SSL_HEADER", None) or app_settings.TRUSTED_PROXIES:
        return []
    return [
        checks.Info(
            "The settings name no proxy. Daphne writes request bodies of any size to the disk before the site can refuse"
            " them, and waits a minute for half a request.",
            hint="Put a proxy that limits bodies in front, and name it in WEBCHAT_TRUSTED_PROXIES.",
            id="webchat.I003",
        )
    ]


def _backends() -> list[Any]:
    try:
        return [import_string(path) for path in settings.AUTHENTICATION_BACKENDS]
    except ImportError:  # Django reports this at the first sign-in
        return []


def check_sign_in_middleware(**_: Any) -> list[checks.CheckMessage]:
    """Check that the middleware for sign-ins that find the queue full is installed."""
    is_queued = SIGN_IN_BACKEND in settings.AUTHENTICATION_BACKENDS or _hashes_in_queue()
    if not is_queued or SIGN_IN_MIDDLEWARE in settings.MIDDLEWARE:
        return []
    return [
        checks.Error(
            "A sign-in for which there is no room would be answered as a server error.",
            hint=f"Add {SIGN_IN_MIDDLEWARE!r} to MIDDLEWARE.",
            id="webchat.E007",
        )
    ]


def check_apps(**_: Any) -> list[checks.CheckMessage]:
    """Check that the apps that webchat depends on are installed."""
    return setting_rules.check_apps("webchat", "governance", "turns", check_id="webchat.E022")


def check_application(**_: Any) -> list[checks.CheckMessage]:
    """Check that the ASGI application is set and can be imported."""
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
    except Exception as error:  # noqa: BLE001 - importing the project's code may raise anything
        return [
            checks.Error(
                f"ASGI_APPLICATION is {path!r}, which cannot be imported: {type(error).__name__}: {error}",
                hint="Correct the path, or what the module imports.",
                id="webchat.E021",
            )
        ]
    return []


def check_static_files(**_: Any) -> list[checks.CheckMessage]:
    """Check that the scripts and styles of the pages are served."""
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


def check_import_map(**_: Any) -> list[checks.CheckMessage]:
    """Check that the Content-Security-Policy allows the import map of the page."""
    policy = app_settings.CSP
    if not policy or "{nonce}" in policy or "'unsafe-inline'" in policy or not import_map():
        return []
    return [
        checks.Warning(
            "Static files have a hash in their names, and WEBCHAT_CSP refuses the import map that names the scripts of"
            " the chat.",
            hint="Add {nonce} to its script-src: \"script-src 'self' {nonce}\".",
            id="webchat.W007",
        )
    ]


def check_sign_in(**_: Any) -> list[checks.CheckMessage]:
    """Check that LOGIN_URL resolves to an existing page."""
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
    """If the running command is `runserver`, check that it supports WebSockets."""
    if sys.argv[1:2] != ["runserver"] or get_commands()["runserver"] not in _WITHOUT_SOCKETS:
        return []
    return [
        checks.Warning(
            "This runserver knows no WebSockets: the chat pages will not hear anything.",
            hint='Start `manage.py serve` instead, or put "daphne" first in INSTALLED_APPS.',
            id="webchat.W023",
        )
    ]


def register_all() -> None:
    """Register the checks. The last group runs only with `check --deploy`."""
    for check in (
        check_values,
        check_names,
        check_layer,
        check_origin,
        check_sign_in_middleware,
        check_apps,
        check_application,
        check_static_files,
        check_import_map,
        check_sign_in,
        check_runserver,
    ):
        checks.register(check, "webchat")
    checks.register(check_processes, checks.Tags.database)
    for check in (
        check_deployment,
        check_password_backend,
        check_sign_in_limit,
        check_client_address,
        check_proxy,
    ):
        checks.register(check, checks.Tags.security, deploy=True)


def _layer() -> dict[str, Any] | None:
    layers: dict[str, dict[str, Any]] = getattr(settings, "CHANNEL_LAYERS", None) or {}
    layer = layers.get("default")
    return layer if layer and layer.get("BACKEND") else None


def _redis_major() -> int:
    try:
        return int(version("redis").partition(".")[0])
    except PackageNotFoundError:
        return 0


def _waits_for_ever(layer: dict[str, Any]) -> bool:
    hosts = layer.get("CONFIG", {}).get("hosts") or []
    return bool(hosts) and all(
        isinstance(host, dict) and host.get("socket_timeout", 0) is None for host in hosts
    )


def _lack_shared_layer() -> bool:
    try:
        return selectors.processes_lack_shared_layer()
    except DatabaseError:  # before the first migration
        return False


def _are_static_files_served() -> bool:
    """Return whether static files are probably served.

    A web server in front cannot be detected, but its collected files can.
    """
    if settings.DEBUG and apps.is_installed("django.contrib.staticfiles"):
        return True  # `serve` and `runserver` serve them
    if getattr(settings, "WHITENOISE_USE_FINDERS", False) or _is_answered(
        f"{settings.STATIC_URL}{STYLE}"
    ):
        return True
    if not isinstance(staticfiles_storage, FileSystemStorage):
        return True
    return settings.STATIC_ROOT is not None and Path(settings.STATIC_ROOT, _stored_name()).exists()


def _stored_name() -> str:
    """Return the collected name of `STYLE`, because a storage may keep only the file with a hash in its name."""
    stored_name = getattr(staticfiles_storage, "stored_name", None)
    try:
        return str(stored_name(STYLE)) if stored_name else STYLE
    except ValueError:  # the file is not in the manifest
        return STYLE


def _how_to_serve() -> str:
    if not apps.is_installed("django.contrib.staticfiles"):
        return 'Add "django.contrib.staticfiles" to INSTALLED_APPS.'
    if settings.STATIC_ROOT:
        return f"Run `manage.py collectstatic`: there is no {_stored_name()} in {settings.STATIC_ROOT}."
    return (
        "Set STATIC_ROOT and run `manage.py collectstatic`. Let your web server serve that directory, or put"
        ' "webchat.static_files.StaticFilesMiddleware" behind SecurityMiddleware'
        " (pip install 'django-turnkeeper[static]')."
    )


def _is_answered(to: Any) -> bool:
    """Return whether a URL name or address leads to a view of this project or to another host."""
    try:
        address = urlsplit(resolve_url(to))
        if not address.netloc:
            resolve(f"/{address.path.removeprefix(get_script_prefix())}")
    except (
        ImproperlyConfigured,
        NoReverseMatch,
        Resolver404,
        TypeError,
    ):  # a TypeError means that the value is not a string
        return False
    return True
