"""A tool that no cancel reaches; found because `tests.e2e` is an installed app of one test's site."""

import time
from pathlib import Path

from django.conf import settings

from governance import tool

LET_GO = "let-go"


@tool
def dig() -> str:
    """Dig in a thread until the test lets it go."""
    while not (Path(settings.VAR_DIR) / LET_GO).exists():
        time.sleep(0.01)
    return "gold"
