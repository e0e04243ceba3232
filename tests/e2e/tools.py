"""Tools that the site itself does not have; found because `tests.e2e` is an installed app of some tests' sites."""

import asyncio
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


@tool(side_effects=True)
async def refund(customer: str) -> str:
    """Refund a customer, which takes longer than any test."""
    await asyncio.Event().wait()
    return f"refunded {customer}"
