"""System checks of webchat: settings that would make the live page silent, slow or insecure."""

from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from django.conf import settings
from django.contrib.auth.backends import ModelBackend
from django.core import checks
from django.db import DatabaseError
from django.utils.module_loading import import_string

from governance import setting_rules
from turns import selectors
from turns.running.runtime import turns_run_here
from webchat.conf import app_settings
from webchat.routing import accepts_every_site

CORE_LAYER = "channels_redis.core.RedisChannelLayer"
MEMORY_LAYER = "channels.layers.InMemoryChannelLayer"
CSP_MIDDLEWARE = (
    "webchat.middleware.ContentSecurityPolicyMiddleware",
    "django.middleware.csp.ContentSecurityPolicyMiddleware",
)
SIGN_IN_BACKEND = "webchat.sign_in.SignInBackend"
SIGN_IN_MIDDLEWARE = "webchat.sign_in.SignInMiddleware"
UNGUARDED = ModelBackend.authenticate  # hashes whatever comes, as often as it comes
CLIENT_ADDRESS = "webchat.addresses.client_address"


def check_values(**_: Any) -> list[checks.CheckMessage]:
    """Every setting has the right type and a sensible value."""
    return setting_rules.check_values(app_settings)


def check_names(**_: Any) -> list[checks.CheckMessage]:
    """No setting is misspelled: it would be ignored without a word."""
    return setting_rules.check_names(app_settings, check_id="webchat.W003")


def check_layer(**_: Any) -> list[checks.CheckMessage]:
    """The channel layer is there, and fit for streamed text."""
    layer = _layer()
    if layer is None:
        return [
            checks.Error(
                "No channel layer is configured: sockets would see events only when they next look into the log.",
                hint=f"Set CHANNEL_LAYERS['default']['BACKEND'] to {MEMORY_LAYER!r} for one process.",
                id="webchat.E002",
            )
        ]
    found = setting_rules.check_path(
        layer["BACKEND"],
        what="There is no channel layer",
        otherwise=f"Correct CHANNEL_LAYERS: {MEMORY_LAYER!r} is the one for one process.",
        check_id="webchat.E008",
    )
    return [*found, *_problems_of_layer(layer)]


def _problems_of_layer(layer: dict[str, Any]) -> Iterator[checks.CheckMessage]:
    backend = layer["BACKEND"]
    if backend == CORE_LAYER:
        yield checks.Warning(
            "The core Redis layer is too slow for streamed text, and closes all sockets when Redis restarts.",
            hint="Use channels_redis.pubsub.RedisPubSubChannelLayer.",
            id="webchat.W001",
        )
    if backend == MEMORY_LAYER and not turns_run_here():
        yield checks.Warning(
            "Turns run in other processes, and the channel layer is in memory: pages see what happens"
            " only when they next look into the log.",
            hint="Set REDIS_URL, or CHANNEL_LAYERS to channels_redis.pubsub.RedisPubSubChannelLayer.",
            id="webchat.W004",
        )
    is_redis_8 = backend.startswith("channels_redis.") and _redis_major() >= 8
    if is_redis_8 and not _waits_for_ever(layer):
        yield checks.Error(
            "redis-py 8 ends idle connections after seconds, and with them every idle socket.",
            hint="Install redis<8, or give each of the layer's hosts 'socket_timeout': None and 'max_connections'.",
            id="webchat.E003",
        )


def check_origin(**_: Any) -> list[checks.CheckMessage]:
    """No page of another site opens a socket with the cookie of this site."""
    path = getattr(settings, "ASGI_APPLICATION", None)
    if not path:
        return []
    try:
        application = import_string(str(path))
    except Exception:  # noqa: BLE001 - another check says so
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
    """Several live processes share a channel layer (with `check --database default`)."""
    if not databases or not _lack_shared_layer():
        return []
    return [
        checks.Error(
            "Several processes are alive, and one at least has a channel layer that no other hears: pages do not see"
            " what happens elsewhere.",
            hint="Set REDIS_URL for all of them.",
            id="webchat.E005",
        )
    ]


def check_deployment(**_: Any) -> list[checks.CheckMessage]:
    """The layer is shared, and the pages have a content security policy."""
    found: list[checks.CheckMessage] = []
    layer = _layer()
    if layer is not None and layer["BACKEND"] == MEMORY_LAYER:
        found.append(
            checks.Info(
                "The channel layer is in memory: live updates reach the sockets of one process only.",
                hint="Fine for one process. For more, set REDIS_URL.",
                id="webchat.I001",
            )
        )
    if app_settings.CSP is not None and not set(CSP_MIDDLEWARE) & set(settings.MIDDLEWARE):
        found.append(
            checks.Warning(
                "Pages are sent without a Content-Security-Policy.",
                hint=f"Add {CSP_MIDDLEWARE[0]!r} to MIDDLEWARE.",
                id="webchat.W002",
            )
        )
    return found


def check_password_backend(**_: Any) -> list[checks.CheckMessage]:
    """Nobody stalls a process with sign-ins."""
    if not any(getattr(kind, "authenticate", None) is UNGUARDED for kind in _backends()):
        return []
    return [
        checks.Warning(
            "Passwords are checked as many at a time as come: a few dozen sign-ins stall a process and its turns.",
            hint=f"Put {SIGN_IN_BACKEND!r} into AUTHENTICATION_BACKENDS instead, and {SIGN_IN_MIDDLEWARE!r} into"
            " MIDDLEWARE.",
            id="webchat.W005",
        )
    ]


def check_sign_in_limit(**_: Any) -> list[checks.CheckMessage]:
    """Nobody guesses passwords without end."""
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
    """Sign-ins are counted by the address of the client, not of a proxy."""
    if (
        getattr(settings, "AXES_CLIENT_IP_CALLABLE", None) != CLIENT_ADDRESS
        or not getattr(settings, "SECURE_PROXY_SSL_HEADER", None)
        or app_settings.TRUSTED_PROXIES
    ):
        return []
    return [
        checks.Warning(
            "The site stands behind a proxy that it does not know: everybody seems to sign in from one address.",
            hint="Set WEBCHAT_TRUSTED_PROXIES to the proxy's address.",
            id="webchat.W006",
        )
    ]


def _backends() -> list[Any]:
    try:
        return [import_string(path) for path in settings.AUTHENTICATION_BACKENDS]
    except ImportError:  # Django says so at the first sign-in
        return []


def check_sign_in_middleware(**_: Any) -> list[checks.CheckMessage]:
    """The middleware answers sign-ins that found no room."""
    if (
        SIGN_IN_BACKEND not in settings.AUTHENTICATION_BACKENDS
        or SIGN_IN_MIDDLEWARE in settings.MIDDLEWARE
    ):
        return []
    return [
        checks.Error(
            "A sign-in for which there is no room would be answered as a server error.",
            hint=f"Add {SIGN_IN_MIDDLEWARE!r} to MIDDLEWARE.",
            id="webchat.E007",
        )
    ]


def register_all() -> None:
    """Register the checks; the last ones only speak under `check --deploy`."""
    for check in (
        check_values,
        check_names,
        check_layer,
        check_origin,
        check_sign_in_middleware,
    ):
        checks.register(check, "webchat")
    checks.register(check_processes, checks.Tags.database)
    for check in (
        check_deployment,
        check_password_backend,
        check_sign_in_limit,
        check_client_address,
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
