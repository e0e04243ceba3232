"""The settings of `everything`, as a careful project changes them for production."""

import os
from pathlib import Path

from everything.settings import *  # noqa: F403
from everything.settings import DATABASES, MIDDLEWARE, TEMPLATES

DEBUG = False
DATABASES["default"]["ATOMIC_REQUESTS"] = True
FORCE_SCRIPT_NAME = "/app"
STATIC_ROOT = Path(os.environ["HOST_PROJECT_DATABASE"]).with_name("static")
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "whitenoise.storage.CompressedManifestStaticFilesStorage"},
}
WHITENOISE_KEEP_ONLY_HASHED_FILES = True
MIDDLEWARE.insert(1, "webchat.static_files.StaticFilesMiddleware")
MIDDLEWARE.append("django.contrib.auth.middleware.LoginRequiredMiddleware")
TEMPLATES[0]["DIRS"] = [Path(__file__).with_name("templates")]
WEBCHAT_BRAND = {"name": "Petal & Stem", "logo": "shop/shop.svg", "url": "support"}
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "handlers": {"console": {"class": "logging.StreamHandler"}},
    "root": {"handlers": ["console"], "level": "DEBUG"},
}
