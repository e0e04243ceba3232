"""Sets Django up in a worker process, which imports the settings again."""

from collections.abc import Mapping

import django
from django.db import connections


def database_names() -> dict[str, str]:
    """Return the name of each database in this process, by alias. In a test, it differs from that in the settings."""
    return {alias: str(connections.settings[alias]["NAME"] or "") for alias in connections}


def setup(names: Mapping[str, str]) -> None:
    """Set Django up, with these database names by alias."""
    for alias, name in names.items():
        connections.settings[alias]["NAME"] = name
    django.setup()
