"""The site's own settings, with pages of few messages: a long conversation need not be long."""

from config.settings import *  # noqa: F403

TURNS_SNAPSHOT_MESSAGES = 6
