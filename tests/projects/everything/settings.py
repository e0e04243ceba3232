"""Settings as a plain Django project has them, with what docs/howto/plug-into-your-project.md adds."""

import os

SECRET_KEY = "a-host-project-of-the-tests"
DEBUG = True
ALLOWED_HOSTS = ["localhost", "testserver"]
ROOT_URLCONF = "everything.urls"
ASGI_APPLICATION = "everything.asgi.application"
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "channels",
    "ninja",
    "governance",
    "turns",
    "webchat",
    "console",
    "shop",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ["HOST_PROJECT_DATABASE"],
        "OPTIONS": {
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;",
            "cached_statements": 32,
        },
    }
}
CHANNEL_LAYERS = {"default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
LOGIN_URL = "webchat:login"
STATIC_URL = "static/"
USE_TZ = True

# Names a tool of the project's own app: a check would complain if it were not found.
GOVERNANCE_TOOL_TIMEOUTS = {"order_status": 10}
