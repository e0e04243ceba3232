"""What the main thread of a tab computes, as Chromium itself counts it. Time in which it has to wait for a core is left out."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Self

from playwright.async_api import Browser, CDPSession, Page

_CATEGORIES = ["toplevel", "disabled-by-default-devtools.timeline"]
_TASK = "RunTask"
_MICROSECOND = 1e-6


@dataclass
class Longest:
    """The longest of the tasks that were traced, in seconds; known once the tracing has ended."""

    task: float = 0.0


class MainThread:
    """The main thread of one tab."""

    def __init__(self, page: Page, session: CDPSession) -> None:
        self._page = page
        self._session = session

    @classmethod
    async def of(cls, page: Page) -> Self:
        """Watch a tab."""
        session = await page.context.new_cdp_session(page)
        await session.send("Performance.enable", {"timeDomain": "threadTicks"})
        return cls(page, session)

    async def busy(self) -> float:
        """Return how many seconds it has computed so far."""
        metrics = (await self._session.send("Performance.getMetrics"))["metrics"]
        return float(next(m["value"] for m in metrics if m["name"] == "TaskDuration"))

    @asynccontextmanager
    async def traced(self) -> AsyncIterator[Longest]:
        """Trace its tasks meanwhile."""
        browser = self._page.context.browser
        assert isinstance(browser, Browser)
        longest = Longest()
        await browser.start_tracing(page=self._page, categories=_CATEGORIES)
        try:
            yield longest
        finally:
            events = json.loads(await browser.stop_tracing())["traceEvents"]
        longest.task = max(_tasks(events), default=0.0)


def _tasks(events: list[dict[str, Any]]) -> list[float]:
    """What each task of the tabs' main threads has computed."""
    threads = {
        (event["pid"], event["tid"])
        for event in events
        if event["name"] == "thread_name" and event["args"]["name"] == "CrRendererMain"
    }
    return [
        event["tdur"] * _MICROSECOND
        for event in events
        if event["name"] == _TASK
        and (event["pid"], event["tid"]) in threads
        and "tdur" in event  # not of one that was under way as the tracing ended
    ]
