"""The settings of `everything`, on PostgreSQL."""

import os
from urllib.parse import urlsplit

from everything.settings import *  # noqa: F403

_place = urlsplit(os.environ["HOST_PROJECT_POSTGRES"])
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": _place.path.lstrip("/"),
        "USER": _place.username,
        "PASSWORD": _place.password,
        "HOST": _place.hostname,
        "PORT": _place.port,
        "ATOMIC_REQUESTS": True,
    }
}
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
