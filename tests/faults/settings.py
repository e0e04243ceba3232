"""The site's settings as the processes under test run with them; each test says what is different, as JSON."""

import json
import os

from config.settings import *  # noqa: F403
from config.settings import CHANNEL_LAYERS, INSTALLED_APPS

INSTALLED_APPS = [*INSTALLED_APPS, "tests.faults"]
ROOT_URLCONF = "tests.faults.urls"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
TURNS_MAX_MESSAGES_PER_MINUTE = WEBCHAT_MAX_POSTS_PER_MINUTE = 100_000
WEBCHAT_MAX_FRAMES_PER_MINUTE = WEBCHAT_MAX_USER_FRAMES_PER_MINUTE = 100_000
WEBCHAT_MAX_SOCKETS_PER_USER = 1_000
globals().update(json.loads(os.environ.get("FAULTS_SETTINGS", "{}")))
if _layer := os.environ.get("FAULTS_LAYER"):
    CHANNEL_LAYERS["default"] = {
        "BACKEND": "tests.faults.faulty_layer.FaultyLayer",
        "CONFIG": {"inner": CHANNEL_LAYERS["default"], **json.loads(_layer)},
    }
