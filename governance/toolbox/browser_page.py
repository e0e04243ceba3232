"""A browser page in its own context, which shares no cookies, files or connections with other pages."""

import asyncio
import json
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from governance.core.exceptions import ToolFailed
from governance.toolbox.browser_proxy import BrowserProxy
from governance.toolbox.settings import SettingsSource
from governance.toolbox.workspace import shown

if TYPE_CHECKING:
    from playwright.async_api import Browser, Dialog, Frame, Page, Request

_NOTES = 10
_WORDS = 300
_LONGEST = 20_000_000  # maximum number of characters, because the text passes through this process
# The result for a page that is too long for the browser to measure.
_TOO_LONG = f'["", {_LONGEST + 1}]'
# The cause is another navigation, a download or a response without content.
_ABORTED = "net::ERR_ABORTED"
_LOOK = """(() => {
  const text = (element) => typeof element.value === "string" ? element.value.length : 0;
  const style = (element, part) => getComputedStyle(element, part).content.length;
  const size = (root) => root ? [...root.querySelectorAll("*")].reduce(
    (sum, element) => sum + size(element.contentDocument) + size(element.shadowRoot)
      + text(element) + style(element, "::before") + style(element, "::after"),
    (root.documentElement?.outerHTML ?? root.innerHTML ?? "").length,
  ) : 0;
  return JSON.stringify([document.title.slice(0, 300), size(document)]);
})()"""


class BrowserPage:
    """A page of the browser, with notes on recent events that its text does not show."""

    def __init__(self, page: "Page", *, proxy: BrowserProxy) -> None:
        self.page = page
        self.proxy = proxy
        self.used_at = asyncio.get_running_loop().time()
        self._users = 0
        self._notes: list[str] = []
        self._chores: set[asyncio.Task[object]] = set()
        self._navigation: Request | None = None  # has begun but not yet ended
        self._has_arrived = asyncio.Event()
        self._has_arrived.set()
        page.on("request", self._begin_navigation)
        page.on("requestfailed", self._abort_navigation)
        page.on("framenavigated", self._end_navigation)
        context = page.context
        context.on("page", self._refuse_window)
        page.on("dialog", self._dismiss)
        page.on(
            "download", lambda _: self._add_note("The page offered a download; it was refused.")
        )

    @property
    def is_usable(self) -> bool:
        return not self.page.is_closed()

    @property
    def is_busy(self) -> bool:
        """Whether a call is using the page."""
        return self._users > 0

    async def responds(self, *, within: float) -> bool:
        """Return whether the page responds within `within` seconds, which an endless script would prevent."""
        asking = self._start_task(self.page.evaluate("0"))
        done, _ = await asyncio.wait({asking}, timeout=within)
        asking.cancel()
        return bool(done)  # a page that is navigating raises an error, but it does respond

    async def settle(self, *, within: float) -> None:
        """Wait for at most `within` seconds until the navigation has ended. A partly loaded page can be read too.

        A failed navigation ends when Chromium shows its error page, which is after Playwright has reported the failure.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self._has_arrived.wait()

    async def read_title(self) -> str:
        """Return the page's title. Raise `ToolFailed` for a page that is too long to read.

        The code that reads the title runs in an isolated world, so that the page's own scripts can neither forge the
        result nor make it endless.
        """
        session = await self.page.context.new_cdp_session(self.page)
        try:
            tree = await session.send("Page.getFrameTree")
            frame = {"frameId": tree["frameTree"]["frame"]["id"]}
            world = await session.send("Page.createIsolatedWorld", frame)
            parameters = {"expression": _LOOK, "contextId": world["executionContextId"]}
            answer = await session.send("Runtime.evaluate", {**parameters, "returnByValue": True})
        finally:
            self._start_task(session.detach())
        title, size = json.loads(answer["result"].get("value", _TOO_LONG))
        if size > _LONGEST:
            raise ToolFailed(
                "The page is too long to be read. Use web_fetch, which reads the beginning of what was sent."
            )
        return str(title)

    @contextmanager
    def used(self) -> Iterator[None]:
        """Mark the page as in use during the `with` block."""
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            self.used_at = asyncio.get_running_loop().time()

    def take_notes(self) -> list[str]:
        """Return and clear the notes on events that the page's text does not show."""
        notes, self._notes = self._notes, []
        refused = list(self.proxy.problems.values())[:_NOTES]
        self.proxy.problems.clear()
        return [*notes, *(f"Not loaded: {sentence}" for sentence in refused)]

    async def aclose(self, *, within: float) -> None:
        """Close the page and its connections. Work that takes longer than `within` seconds ends with the browser."""
        await self.proxy.aclose()
        closing = self._start_task(self.page.context.close())
        await asyncio.wait({closing}, timeout=within)

    def _begin_navigation(self, request: "Request") -> None:
        if request.is_navigation_request() and request.frame == self.page.main_frame:
            self._navigation = request
            self._has_arrived.clear()

    def _abort_navigation(self, request: "Request") -> None:
        if request is self._navigation and request.failure == _ABORTED:
            self._end_navigation(self.page.main_frame)

    def _end_navigation(self, frame: "Frame") -> None:
        if frame == self.page.main_frame:
            self._navigation = None
            self._has_arrived.set()

    def _refuse_window(self, page: "Page") -> None:
        if page is self.page:
            return
        url = page.url
        where = f" for {shown(url, limit=_WORDS)}" if url.startswith(("http:", "https:")) else ""
        self._add_note(
            f"The page opened a new window{where}; it was closed. Open the address instead."
        )
        self._start_task(page.close())

    def _dismiss(self, dialog: "Dialog") -> None:
        if dialog.type == "beforeunload":  # dismissing it would keep the browser on the page
            self._start_task(dialog.accept())
            return
        message = shown(dialog.message, limit=_WORDS)
        self._add_note(f"The page showed a dialog, which was dismissed: {message!r}")
        self._start_task(dialog.dismiss())

    def _add_note(self, sentence: str) -> None:
        if len(self._notes) < _NOTES:
            self._notes.append(sentence)

    def _start_task(self, chore: Coroutine[Any, Any, object]) -> "asyncio.Task[object]":
        task = asyncio.create_task(chore, name="chore of a web page")
        self._chores.add(task)
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: "asyncio.Task[object]") -> None:
        self._chores.discard(task)
        if not task.cancelled():
            task.exception()  # keep asyncio from logging the exception, because the page is gone


async def open_page(browser: "Browser", *, settings: SettingsSource) -> BrowserPage:
    """Open an empty page that reaches the network only through its own proxy."""
    proxy = BrowserProxy(settings)
    try:
        context = await browser.new_context(
            proxy={"server": await proxy.open()}, accept_downloads=False, service_workers="block"
        )
        context.set_default_timeout(settings().browser_action_timeout * 1000)
        return BrowserPage(await context.new_page(), proxy=proxy)
    except BaseException:
        await proxy.aclose()
        raise
