"""The settings of `everything`, with users of the project's own."""

from everything.settings import *  # noqa: F403
from everything.settings import INSTALLED_APPS

INSTALLED_APPS.append("members")
AUTH_USER_MODEL = "members.Member"
