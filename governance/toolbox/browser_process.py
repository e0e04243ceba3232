"""The browser of one event loop: a Chromium process with one page for each scope.

A single task owns the browser for its whole life. The task starts the browser for the first page, closes pages that
have been idle for a while, and ends the browser once it has had no pages for the same time. Calls only wait for this
task, so a cancelled call leaves no half-finished work behind.
"""

import asyncio
import logging
from types import ModuleType
from typing import TYPE_CHECKING

from governance.core.containment import outside
from governance.core.exceptions import ToolFailed
from governance.toolbox.browser_page import BrowserPage, open_page
from governance.toolbox.chromium import launched
from governance.toolbox.settings import SettingsSource

if TYPE_CHECKING:
    from playwright.async_api import Browser

logger = logging.getLogger(__name__)


class BrowserProcess:
    """A browser that is started on demand and has one page for each scope."""

    def __init__(self, playwright: ModuleType, *, settings: SettingsSource) -> None:
        self.playwright = playwright
        self._settings = settings
        self._tabs: dict[str, BrowserPage] = {}
        self._opening: dict[str, asyncio.Task[BrowserPage]] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._browser: asyncio.Future[Browser] | None = None
        self._owners: dict[asyncio.Future[Browser], asyncio.Task[None]] = {}
        self._changed = asyncio.Event()
        self._used_at = 0.0
        self._is_closing = False

    def find(self, scope: str) -> BrowserPage | None:
        """Return the scope's page, or `None` if it has no usable one."""
        tab = self._tabs.get(scope)
        return tab if tab is not None and tab.is_usable else None

    async def open(self, scope: str) -> BrowserPage:
        """Return the scope's page, and open one if needed. Raise `ToolFailed` if no page can be opened."""
        if (tab := self.find(scope)) is not None:
            return tab
        opening = self._opening.get(scope)
        if opening is None:
            self._make_room()
            opening = asyncio.create_task(
                self._open(scope), name="opening a web page", context=outside()
            )
            self._opening[scope] = opening
        return await asyncio.shield(opening)

    def close(self, scope: str) -> "asyncio.Task[None]":
        """Remove the scope's page, even if it is still opening. Return a task that ends once the page is closed."""
        tab, opening = self._tabs.pop(scope, None), self._opening.pop(scope, None)
        closing = asyncio.create_task(
            self._close(tab, opening), name="closing a web page", context=outside()
        )
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)
        return closing

    def touch(self) -> None:
        """Record that the browser was used, and check again for idle pages."""
        self._used_at = asyncio.get_running_loop().time()
        self._changed.set()

    async def aclose(self) -> None:
        """Close every page and end the browser, even if it is still starting."""
        self._is_closing = True
        for scope in {*self._tabs, *self._opening}:
            self.close(scope)
        self._changed.set()
        for ready, owner in self._owners.items():
            if not ready.done():
                owner.cancel()
        if tasks := {*self._closing, *self._owners.values()}:
            await asyncio.wait(tasks)

    async def _open(self, scope: str) -> BrowserPage:
        try:
            tab = await open_page(await self._started(), settings=self._settings)
        except self.playwright.Error as error:
            logger.warning("A page could not be opened", exc_info=error)
            raise ToolFailed("The browser could not open a page. Try again later.") from error
        finally:
            current = self._opening.get(scope) is asyncio.current_task()
            if current:
                del self._opening[scope]
        if current:
            self._tabs[scope] = tab
        return tab

    async def _close(
        self, tab: BrowserPage | None, opening: "asyncio.Task[BrowserPage] | None"
    ) -> None:
        within = self._settings().browser_close_timeout
        if opening is not None:
            await asyncio.wait({opening})
            tab = None if opening.cancelled() or opening.exception() else opening.result()
        if tab is not None:
            await tab.aclose(within=within)
        self.touch()

    def _make_room(self) -> None:
        """Close the least recently used page if the limit is reached. Raise `ToolFailed` if all pages are in use."""
        most = self._settings().browser_max_pages
        if len(self._tabs) + len(self._opening) < most:
            return
        idle = [(tab.used_at, scope) for scope, tab in self._tabs.items() if not tab.is_busy]
        if not idle:
            raise ToolFailed(
                f"The browser has {most} pages open already, and all are in use. Try again later."
            )
        self.close(min(idle)[1])

    async def _started(self) -> "Browser":
        if self._is_closing:
            raise ToolFailed(_ENDS)
        if self._browser is None:
            ready = self._browser = asyncio.get_running_loop().create_future()
            owner = asyncio.create_task(
                self._run(ready), name="owner of the browser", context=outside()
            )
            self._owners[ready] = owner
            owner.add_done_callback(lambda _: self._after_end(ready))
        return await asyncio.shield(self._browser)

    async def _run(self, ready: "asyncio.Future[Browser]") -> None:
        """Start the browser, keep it running while it is used, and then end it."""
        try:
            async with launched(self.playwright, self._settings()) as browser:
                browser.on("disconnected", lambda _: self._changed.set())
                self._used_at = asyncio.get_running_loop().time()
                ready.set_result(browser)
                await self._run_until_idle(browser)
                self._forget_browser(ready)
        except Exception as error:
            self._forget_browser(ready)
            logger.warning("The browser has failed", exc_info=error)
            _fail(ready, error if isinstance(error, ToolFailed) else ToolFailed(_BROKEN))

    def _after_end(self, ready: "asyncio.Future[Browser]") -> None:
        # A callback, because a task that is cancelled before its first step runs no `finally`.
        del self._owners[ready]
        self._forget_browser(ready)
        _fail(ready, ToolFailed(_ENDS))

    async def _run_until_idle(self, browser: "Browser") -> None:
        """Close idle pages until the browser ends, is closed, or has been idle for `browser_idle` seconds."""
        loop = asyncio.get_running_loop()
        while not self._is_closing and browser.is_connected():
            self._changed.clear()
            idle_after, now = self._settings().browser_idle, loop.time()
            for scope, tab in list(self._tabs.items()):
                if not tab.is_usable or (not tab.is_busy and now - tab.used_at >= idle_after):
                    self.close(scope)
            in_use = self._tabs or self._opening or self._closing
            if not in_use and now - self._used_at >= idle_after:
                return
            ends = [tab.used_at for tab in self._tabs.values() if not tab.is_busy]
            wait = (
                min([*ends, *([] if in_use else [self._used_at])], default=now) + idle_after - now
            )
            await self._wait_for_change(within=wait)

    async def _wait_for_change(self, *, within: float) -> None:
        try:
            async with asyncio.timeout(max(within, 0.0)):
                await self._changed.wait()
        except TimeoutError:
            return

    def _forget_browser(self, ready: "asyncio.Future[Browser]") -> None:
        """Forget the browser and its pages, so that the next page starts a new one."""
        if self._browser is ready:
            self._browser = None
            for scope in list(self._tabs):
                self.close(scope)


def _fail(ready: "asyncio.Future[Browser]", error: ToolFailed) -> None:
    """Fail the calls that wait for the browser."""
    if not ready.done():
        ready.set_exception(error)
        ready.exception()  # mark the exception as retrieved, in case no call is waiting for the browser


_ENDS = "The server is shutting down."
_BROKEN = "The browser has stopped working. Try again later, or use web_fetch."
