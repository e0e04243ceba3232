"""Settings of the site: safe for production by default; the environment or a `.env` file overrides them."""

from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

from django.conf import global_settings
from django.core.exceptions import ImproperlyConfigured

from config import databases, environment, secret_key, tracing
from governance import private_files
from governance.conf import GovernanceSettings
from turns.conf import TurnsSettings
from webchat.conf import WebchatSettings

BASE_DIR = Path(__file__).resolve().parent.parent

env = environment.Environment()
env.read_env(env.str("ENV_FILE", str(BASE_DIR / ".env")))

VAR_DIR = Path(env.str("VAR_DIR", str(BASE_DIR / "var"))).resolve()
with suppress(OSError):  # the code that writes there will report the error
    private_files.make_directory(VAR_DIR)
HOST = env.str("HOST", "127.0.0.1")
PORT = env.int("PORT", 8000)

# Security

DEBUG = env.bool("DEBUG", False)
SECRET_KEY = env.str("SECRET_KEY", "") or secret_key.read_or_create(VAR_DIR / "secret_key")
ALLOWED_HOSTS: list[str] = env.list("ALLOWED_HOSTS", default=["127.0.0.1", "localhost", "[::1]"])
CSRF_TRUSTED_ORIGINS: list[str] = env.list("CSRF_TRUSTED_ORIGINS", default=[])

# Turn this off only if no other machine can eavesdrop. `make run` turns it off on a loopback address.
HTTPS = env.bool("HTTPS", not DEBUG)
SECURE_SSL_REDIRECT = env.bool("SECURE_SSL_REDIRECT", HTTPS)
# Health checks reach each process directly over HTTP, without the proxy and its certificate.
SECURE_REDIRECT_EXEMPT = [r"^healthz$", r"^metrics$", r"^readyz$"]
SECURE_HSTS_SECONDS = env.int("SECURE_HSTS_SECONDS", 31_536_000 if HTTPS else 0)
SECURE_HSTS_INCLUDE_SUBDOMAINS = HTTPS
SECURE_HSTS_PRELOAD = HTTPS
SESSION_COOKIE_SECURE = HTTPS
CSRF_COOKIE_SECURE = HTTPS
SESSION_COOKIE_HTTPONLY = True
X_FRAME_OPTIONS = "DENY"
if env.bool("BEHIND_PROXY", False):
    # Only behind a proxy that overwrites this header, because a browser could set it as well.
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    WEBCHAT_TRUSTED_PROXIES = ["127.0.0.1", "::1"]  # on this machine by default

SILENCED_SYSTEM_CHECKS: list[str] = env.list("SILENCED_SYSTEM_CHECKS", default=[])

# Applications

INSTALLED_APPS = [
    "daphne",  # before staticfiles, because Daphne's `runserver` also serves WebSockets
    "console.admin_site.ConsoleAdminConfig",  # Django's admin, with the overview as its first page
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "axes",
    "channels",
    "ninja",  # without it, the pages of the API description would load scripts from another site
    "governance",
    "turns",
    "webchat",
    "console",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "webchat.static_files.StaticFilesMiddleware",
    "webchat.middleware.ContentSecurityPolicyMiddleware",
    "webchat.middleware.AdminLookupsMiddleware",
    "webchat.sign_in.SignInMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "axes.middleware.AxesMiddleware",
]

ROOT_URLCONF = "config.urls"
ASGI_APPLICATION = "config.asgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "config" / "templates", BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

# Data

DATABASES = {
    "default": databases.with_options(
        env.db_url("DATABASE_URL", f"sqlite:///{quote(str(VAR_DIR / 'db.sqlite3'))}"),
        pool_size=env.int("DATABASE_POOL_SIZE", 20),
    ),
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

REDIS_URL = env.str("REDIS_URL", "")


def _channel_layer() -> dict[str, Any]:
    if not REDIS_URL:
        return {"BACKEND": "channels.layers.InMemoryChannelLayer"}
    # Reads have no timeout, because a subscription without messages is not broken.
    host = {
        "address": REDIS_URL,
        "socket_timeout": None,
        "socket_connect_timeout": 2.0,
        "socket_keepalive": True,
        "max_connections": 100,
    }
    return {"BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer", "CONFIG": {"hosts": [host]}}


CHANNEL_LAYERS = {"default": _channel_layer()}

# Users and passwords

AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in (
        "UserAttributeSimilarityValidator",
        "MinimumLengthValidator",
        "CommonPasswordValidator",
        "NumericPasswordValidator",
    )
]
LOGIN_URL = "webchat:login"
LOGIN_REDIRECT_URL = "/"

# Sign-in. After too many failures, a user name or address is locked out for a while. Only a few passwords are checked
# concurrently.
AUTHENTICATION_BACKENDS = [
    "axes.backends.AxesStandaloneBackend",
    "webchat.sign_in.SignInBackend",
]
# Setting or changing a password waits for a hashing slot, just like a sign-in.
PASSWORD_HASHERS = ["webchat.sign_in.PasswordHasher", *global_settings.PASSWORD_HASHERS[1:]]
AXES_FAILURE_LIMIT = env.int("SIGN_IN_ATTEMPTS", 20)
AXES_COOLOFF_TIME = timedelta(minutes=env.int("SIGN_IN_PAUSE_MINUTES", 10))
AXES_LOCKOUT_PARAMETERS = ["ip_address", "username"]
AXES_CLIENT_IP_CALLABLE = "webchat.addresses.client_address"
AXES_LOCKOUT_CALLABLE = "webchat.sign_in.locked_out"
AXES_USERNAME_CALLABLE = "webchat.sign_in.counted_name"
# Further attempts during a lockout neither prolong it for the owner of the name nor fill the table.
AXES_RESET_COOL_OFF_ON_FAILURE_DURING_LOCKOUT = False
AXES_DISABLE_ACCESS_LOG = True  # the log of successful sign-ins, whose rows would never be deleted
AXES_VERBOSE = False

# Language and time

LANGUAGE_CODE = "en"
LANGUAGES = [("en", "English"), ("de", "Deutsch")]  # the browser selects the language
LOCALE_PATHS = [BASE_DIR / "config" / "locale"]
TIME_ZONE = env.str("TIME_ZONE", "UTC")
USE_I18N = True
USE_TZ = True

# Static files are served from their source directories or, if STATIC_ROOT is set, from there after `collectstatic`.

STATIC_URL = "static/"
STATIC_ROOT = env.str("STATIC_ROOT", "") or None
STATICFILES_DIRS = [BASE_DIR / "static"]
WHITENOISE_USE_FINDERS = STATIC_ROOT is None
WHITENOISE_AUTOREFRESH = DEBUG
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "whitenoise.storage.CompressedStaticFilesStorage"},
    # Attachments of messages. No web server serves them, and only the server's user can read them.
    "attachments": {
        "BACKEND": "django.core.files.storage.FileSystemStorage",
        "OPTIONS": {
            "location": env.str("ATTACHMENT_ROOT", "") or VAR_DIR / "attachments",
            "file_permissions_mode": 0o600,
            "directory_permissions_mode": 0o700,
        },
    },
}

# Logging and tracing. They contain ids and statuses, but no text written by people and no tool results.

_LOG_FORMATS = ("line", "json")
_log_format = env.str("LOG_FORMAT", "line")
if _log_format not in _LOG_FORMATS:
    raise ImproperlyConfigured(f"LOG_FORMAT is one of {_LOG_FORMATS}, not {_log_format!r}.")
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "line": {
            "()": "governance.logs.KeyValueFormatter",
            "format": "{asctime} {levelname} {name}: {message}",
            "style": "{",
        },
        "json": {"()": "governance.logs.JsonFormatter"},
    },
    "filters": {"short_lines": {"()": "governance.logs.ShortLines"}},
    "handlers": {
        "console": {
            "class": "logging.StreamHandler",
            "formatter": _log_format,
            "filters": ["short_lines"],
        }
    },
    "root": {"handlers": ["console"], "level": "WARNING"},
    "loggers": {
        name: {"handlers": ["console"], "level": env.str("LOG_LEVEL", "INFO"), "propagate": False}
        for name in ("governance", "turns", "webchat", "django")
    },
}

tracing.begin()

# Settings of governance, turns and webchat. Environment variables of the same name set them, and two can also be set
# with a variable that other programs use.

GOVERNANCE_DEFAULT_TIMEOUT: float | None = env.float("AGENT_TOOL_TIMEOUT", None)
TURNS_ATTACHMENT_STORAGE = "attachments"
TURNS_CHAT_MODEL = env.str("AGENT_MODEL", "local")
vars().update(
    environment.read(env.ENVIRON, GovernanceSettings, TurnsSettings, WebchatSettings),
)
GOVERNANCE_WORKSPACE_ROOT = Path(
    env.str("GOVERNANCE_WORKSPACE_ROOT", "") or VAR_DIR / "workspaces"
).resolve()
private_files.restrict(GOVERNANCE_WORKSPACE_ROOT)
