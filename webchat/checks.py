"""System checks of webchat: what would make the live page deaf, slow or open, said before it happens."""

from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Error, Info, Tags, Warning, register

from governance import setting_rules
from webchat.conf import NUMBERS, app_settings

CORE_LAYER = "channels_redis.core.RedisChannelLayer"
MEMORY_LAYER = "channels.layers.InMemoryChannelLayer"
CSP_MIDDLEWARE = (
    "webchat.middleware.ContentSecurityPolicyMiddleware",
    "django.middleware.csp.ContentSecurityPolicyMiddleware",
)
RULES = {name: setting_rules.positive("webchat.E001") for name in NUMBERS}
Messages = list[CheckMessage]


def check_settings(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> Messages:
    """E001, W003: every number is above zero, and no name is misspelled."""
    return [
        *setting_rules.check_values(app_settings, RULES),
        *setting_rules.check_names(
            app_settings, check_id="webchat.W003", document="docs/settings/webchat.md"
        ),
    ]


def check_layer(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> Messages:
    """E002, E003, W001: the channel layer is there, and fit for streamed text."""
    layer = _layer()
    if layer is None:
        return [
            Error(
                "No channel layer is configured: sockets would see events only at each heartbeat.",
                hint=f"Set CHANNEL_LAYERS['default']['BACKEND'] to {MEMORY_LAYER!r} for one process.",
                id="webchat.E002",
            )
        ]
    found: Messages = []
    if layer["BACKEND"] == CORE_LAYER:
        found.append(
            Warning(
                "The core Redis layer is too slow for streamed text, and closes all sockets when Redis restarts.",
                hint="Use channels_redis.pubsub.RedisPubSubChannelLayer.",
                id="webchat.W001",
            )
        )
    if (
        layer["BACKEND"].startswith("channels_redis.")
        and _redis_major() >= 8
        and not _has_timeouts(layer)
    ):
        found.append(
            Error(
                "redis-py 8 ends idle connections after seconds, and with them every idle socket.",
                hint="Install redis<8, or give each of the layer's hosts 'socket_timeout': None and 'max_connections'.",
                id="webchat.E003",
            )
        )
    return found


def check_deployment(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> Messages:
    """I001, W002: the layer knows one process only; the pages have no content security policy."""
    found: Messages = []
    layer = _layer()
    if layer is not None and layer["BACKEND"] == MEMORY_LAYER:
        found.append(
            Info(
                "The channel layer is in memory: live updates reach the sockets of one process only.",
                hint="Fine for one process. For more, set REDIS_URL.",
                id="webchat.I001",
            )
        )
    if app_settings.CSP is not None and not set(CSP_MIDDLEWARE) & set(settings.MIDDLEWARE):
        found.append(
            Warning(
                "Pages are sent without a Content-Security-Policy.",
                hint=f"Add {CSP_MIDDLEWARE[0]!r} to MIDDLEWARE.",
                id="webchat.W002",
            )
        )
    return found


def register_all() -> None:
    """Register the checks; the last ones only speak under `check --deploy`."""
    register(check_settings)
    register(check_layer)
    register(check_deployment, Tags.security, deploy=True)


def _layer() -> dict[str, Any] | None:
    layers: dict[str, dict[str, Any]] = getattr(settings, "CHANNEL_LAYERS", None) or {}
    return layers.get("default")


def _redis_major() -> int:
    try:
        return int(version("redis").partition(".")[0])
    except PackageNotFoundError:
        return 0


def _has_timeouts(layer: dict[str, Any]) -> bool:
    hosts = layer.get("CONFIG", {}).get("hosts") or []
    return bool(hosts) and all(
        isinstance(host, dict) and "socket_timeout" in host for host in hosts
    )
