"""A page of the browser in a context of its own: no cookies, files or connections are shared with another one."""

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from governance.toolbox.gateway import Gateway
from governance.toolbox.settings import SettingsSource
from governance.toolbox.workspace import shown

if TYPE_CHECKING:
    from playwright.async_api import Browser, Dialog, Page

_NOTES = 10
_WORDS = 300


class Tab:
    """One page. `notes` holds what it did that its text does not show, since they were taken last."""

    def __init__(self, page: "Page", *, gateway: Gateway) -> None:
        self.page = page
        self.gateway = gateway
        self.used_at = asyncio.get_running_loop().time()
        self._users = 0
        self._notes: list[str] = []
        self._chores: set[asyncio.Task[None]] = set()
        context = page.context
        context.on("page", self._refuse_window)
        page.on("dialog", self._dismiss)
        page.on("download", lambda _: self._note("The page offered a download; it was refused."))

    @property
    def is_usable(self) -> bool:
        """Whether the page is still there."""
        return not self.page.is_closed()

    @property
    def is_busy(self) -> bool:
        """Whether a call works with it now."""
        return self._users > 0

    @contextmanager
    def used(self) -> Iterator[None]:
        """Work with the page: it is not idle meanwhile."""
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            self.used_at = asyncio.get_running_loop().time()

    def take_notes(self) -> list[str]:
        """Return what there is to say besides the page's text, once."""
        notes, self._notes = self._notes, []
        refused = list(self.gateway.problems.values())[:_NOTES]
        self.gateway.problems.clear()
        return [*notes, *(f"Not loaded: {sentence}" for sentence in refused)]

    async def aclose(self, *, within: float) -> None:
        """Close the page and cut its connections. What the browser does not do in time ends with the browser."""
        await self.gateway.aclose()
        closing = self._do(self.page.context.close())
        await asyncio.wait({closing}, timeout=within)

    def _refuse_window(self, page: "Page") -> None:
        if page is self.page:
            return
        url = page.url
        where = f" for {shown(url, limit=_WORDS)}" if url.startswith(("http:", "https:")) else ""
        self._note(f"The page opened a new window{where}; it was closed. Open the address instead.")
        self._do(page.close())

    def _dismiss(self, dialog: "Dialog") -> None:
        said = shown(dialog.message, limit=_WORDS)
        self._note(f"The page showed a dialog, which was dismissed: {said!r}")
        self._do(dialog.dismiss())

    def _note(self, sentence: str) -> None:
        if len(self._notes) < _NOTES:
            self._notes.append(sentence)

    def _do(self, chore: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.create_task(chore, name="chore of a web page")
        self._chores.add(task)
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: "asyncio.Task[None]") -> None:
        self._chores.discard(task)
        if not task.cancelled():
            task.exception()  # looked at, so that nobody complains: it was about a page that is gone


async def open_tab(browser: "Browser", *, settings: SettingsSource) -> Tab:
    """Open an empty page whose only way to the network is a gateway of its own."""
    gateway = Gateway(settings)
    try:
        context = await browser.new_context(
            proxy={"server": await gateway.open()}, accept_downloads=False, service_workers="block"
        )
        context.set_default_timeout(settings().browser_action_timeout * 1000)
        return Tab(await context.new_page(), gateway=gateway)
    except BaseException:
        await gateway.aclose()
        raise
