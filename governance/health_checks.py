"""What a process needs to work: apps above register how to ask it, and the admin shows what it answers."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthCheck:
    """One thing that is needed: its label, how to ask whether it answers, the address of its page."""

    label: Any
    ask: Callable[[], Awaitable[bool]]
    page: str = ""


_checks: list[HealthCheck] = []


def register(check: HealthCheck) -> None:
    """Let the admin show it. The same one counts once."""
    if check not in _checks:
        _checks.append(check)


async def ask_all() -> list[tuple[HealthCheck, bool]]:
    """Ask everything at once; what raises does not answer."""
    answers = await asyncio.gather(*(check.ask() for check in _checks), return_exceptions=True)
    return [(check, answer is True) for check, answer in zip(_checks, answers, strict=True)]
