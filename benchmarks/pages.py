"""Rows of the page in a real browser: what a long conversation asks of its main thread, as Chromium counts."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import UUID

from playwright.async_api import Browser, Page, async_playwright

from benchmarks.clock_model import WRITE, stream
from benchmarks.growth import MESSAGES_OF_A_TURN, Ground
from benchmarks.main_thread import MainThread
from benchmarks.measurement import Effort, Timed, spread, spread_of
from benchmarks.rows import NO_BAR, Bar, Row, amount, latency
from scripts.servers import NotInstalled
from tests.bulk_history import BulkHistory
from tests.e2e.chat import Chat
from tests.e2e.chromium import SWITCHES
from tests.e2e.scripted_socket import ScriptedSocket
from tests.faults.site import Site
from tests.support import browser_path

_OF_PAGES = 500_000_000  # where the ids of what is planted begin
_USER = "ada"  # and the password
_PATIENCE_MS = 180_000  # a long page keeps its main thread busy
_PER_SECOND = 25
_TURNS, _CALLS = 750, 500
_MESSAGES = 2 * _TURNS + _CALLS
_FLOOD_SECONDS = 5
_BAR_OPEN = Bar(most=500)
_BAR_TASK = Bar(most=50)
_KEYS = "a few words that somebody types"
_MUCH = "word " * 10_000
_ADD_PLAIN = """() => {
  const plain = document.createElement("textarea");
  plain.id = "plain";
  const { font, width } = getComputedStyle(document.querySelector("textarea"));
  Object.assign(plain.style, { font, width, height: "220px", position: "fixed", top: "0", left: "0" });
  document.body.append(plain);
}"""
_WATCH = """
window.keys = [];
addEventListener("keydown", () => {
  const began = performance.now();
  requestAnimationFrame(() => {
    const after = new MessageChannel();
    after.port1.onmessage = () => window.keys.push(performance.now() - began);
    after.port2.postMessage(0);
  });
}, true);
"""
_IS_LOADED = "!document.getElementById('earlier').hasAttribute('data-loading')"
_IS_WORKING = "!document.getElementById('running-bar').hidden"
_IS_USABLE = """() => {
  const composer = document.querySelector("textarea");
  return composer && !composer.disabled && document.querySelector("article.message-agent");
}"""

_IS_EMPTY = "!document.getElementById('empty').hidden"


def measure(ground: Ground, effort: Effort) -> list[Row]:
    """Return the rows: as the page opens, and with all earlier messages shown."""
    if (browser := browser_path()) is None:
        raise NotInstalled("no Chromium")
    history = BulkHistory(
        conversations=1,
        turns_each=max(effort.page_messages // MESSAGES_OF_A_TURN, 1),
        first=_OF_PAGES,
    )
    client = ground.site.client()
    template = client.converse()
    client.until_ended(client.say(template, WRITE))
    ground.insert_history(UUID(template), [history])
    long = str(history.conversation_id())
    return asyncio.run(_measure(ground.site, browser, long, effort, bare=template))


async def _measure(
    site: Site, program: str, conversation: str, effort: Effort, *, bare: str
) -> list[Row]:
    of = f"a conversation of {effort.page_messages:,} messages"
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=program, args=SWITCHES)
        async with _visit(browser, site) as visitor:
            short, opened = [], []
            for _ in range(effort.lost + 1):
                short.append(await visitor.open(bare))
                opened.append(await visitor.open(conversation))
            rows = [
                latency(
                    "page_open",
                    f"page: {of}, until it can be used",
                    spread_of(opened[1:]),
                    bare=spread_of(short[1:]),
                ),
                *await visitor.rows("page", "as it opens", effort),
                *await visitor.opened_with_calls(bare, effort),
                *await visitor.flooded(bare),
            ]
            await visitor.open(conversation)
            await visitor.show_all()
            rows += await visitor.rows("page_all", "all earlier messages shown", effort)
        await browser.close()
    return rows


@asynccontextmanager
async def _visit(browser: Browser, site: Site) -> "AsyncIterator[_Visitor]":
    context = await browser.new_context(bypass_csp=True, viewport={"width": 1280, "height": 850})
    context.set_default_timeout(_PATIENCE_MS)
    page = await context.new_page()
    await page.add_init_script(_WATCH)
    await page.goto(f"{site.url()}/login/")
    await page.get_by_label("Username").fill(_USER)
    await page.get_by_label("Password").fill(_USER)
    await page.get_by_role("button", name="Sign in").click()
    await page.wait_for_url(f"{site.url()}/")
    yield _Visitor(site, page, await MainThread.of(page))
    await context.close()


class _Visitor:
    """Somebody who looks at a conversation, and how busy that keeps the main thread of the tab."""

    def __init__(self, site: Site, page: Page, thread: MainThread) -> None:
        self._site = site
        self._page = page
        self._thread = thread
        self._chat = Chat(page)

    async def open(self, conversation: str) -> Timed:
        await self._page.goto("about:blank")
        began, busy = time.perf_counter(), await self._thread.busy()
        await self._page.goto(f"{self._site.url()}/c/{conversation}/", wait_until="commit")
        await self._page.wait_for_function(_IS_USABLE)
        wall = time.perf_counter() - began
        return Timed(wall=wall, cpu=await self._thread.busy() - busy)

    async def show_all(self) -> None:
        """Ask for what came before until there is no more."""
        show = self._page.get_by_role("button", name="Show earlier messages")
        while await show.is_visible():
            # Not counted in elements: the page keeps no more of them than are near to what is read.
            async with self._page.expect_response("**/messages?before=*"):
                await show.press("Enter")
            await self._page.wait_for_function(_IS_LOADED)

    async def rows(self, name: str, words: str, effort: Effort) -> list[Row]:
        """Type, then let an answer come."""
        keys = await self._type()
        async with self._thread.traced() as longest:
            busy = await self._stream(effort.chunks, per_second=_PER_SECOND)
        behind_much, plain = await self._type_behind_much()
        return [
            latency(
                f"{name}_long_key",
                f"page: key behind {len(_MUCH) // 1000} kB, {words}; bare: in a plain field",
                spread_of(behind_much),
                bare=spread_of(plain),
            ),
            latency(f"{name}_key", f"page: key → the frame after it, {words}", spread(keys)),
            amount(
                f"{name}_stream",
                f"page: of its main thread, while {_PER_SECOND} chunks/s come, {words}",
                spread([busy]),
                unit="%",
            ),
            latency(f"{name}_stream_task", "… the longest task of it", spread([longest.task])),
        ]

    async def opened_with_calls(self, conversation: str, effort: Effort) -> list[Row]:
        """Open a long conversation behind a stub of the server's socket, in turn with an empty one."""
        long: list[float] = []
        empty: list[float] = []
        for _ in range(effort.lost + 1):
            for spent, turns, calls in ((empty, 0, 0), (long, _TURNS, _CALLS)):
                _socket, page, thread = await self._behind_stub(conversation, turns, calls)
                spent.append(await thread.busy())
                await page.close()
        words = f"page: of its main thread, to open {_MESSAGES:,} messages and {_CALLS} calls"
        return [
            latency(
                "page_calls_open",
                f"{words}; bare: an empty one",
                spread(long[1:]),
                bare=spread(empty[1:]),
                bar=_BAR_OPEN,
            )
        ]

    async def flooded(self, conversation: str) -> list[Row]:
        """Let a stub send pieces of text into the long conversation, and a chat model into a short one."""
        rows = []
        socket, page, thread = await self._behind_stub(conversation, _TURNS, _CALLS)
        socket.begin_turn()
        for per_second, bar in ((200, _BAR_TASK), (1_000, NO_BAR)):
            async with thread.traced() as longest:
                await socket.write(pieces=per_second * _FLOOD_SECONDS, per_second=per_second)
            words = f"page: its longest task, while a stub sends {per_second:,} frames/s"
            task = spread([longest.task])
            rows.append(latency(f"page_flood_{per_second}", words, task, bar=bar))
        await page.close()
        await self.open(conversation)
        async with self._thread.traced() as longest:
            await self._stream(1_000 * _FLOOD_SECONDS, per_second=1_000)
        words = "… while a chat model streams 1,000 chunks/s through the server"
        return [*rows, latency("page_model", words, spread([longest.task]), bar=_BAR_TASK)]

    async def _behind_stub(
        self, conversation: str, turns: int, calls: int
    ) -> tuple[ScriptedSocket, Page, MainThread]:
        """Open a page behind a stub of the server's socket, in a tab of its own."""
        socket = ScriptedSocket(turns=turns, calls=calls, user=_USER)
        page = await self._page.context.new_page()
        await socket.stand_behind(page)
        thread = await MainThread.of(page)
        await page.goto(f"{self._site.url()}/c/{conversation}/")
        await page.wait_for_function(_IS_USABLE if turns else _IS_EMPTY)
        return socket, page, thread

    async def _type(self) -> list[float]:
        await self._chat.composer.click()
        await self._page.evaluate("window.keys = []")
        await self._page.keyboard.type(_KEYS, delay=30)
        await self._page.wait_for_function(f"window.keys.length >= {len(_KEYS)}")
        keys: list[float] = await self._page.evaluate("window.keys")
        await self._chat.composer.fill("")
        return [key / 1000 for key in keys]

    async def _type_behind_much(self) -> tuple[list[Timed], list[Timed]]:
        """Type into the page's field and into a plain one, each with a long text. Of the main thread, a key has its part."""
        await self._page.evaluate(_ADD_PLAIN)
        plain = self._page.locator("#plain")
        spent = []
        for field in (self._chat.composer, plain):
            await field.fill(_MUCH)
            await field.press("Control+End")
            await self._page.evaluate("window.keys = []")
            busy = await self._thread.busy()
            await self._page.keyboard.type(_KEYS, delay=60)
            await self._page.wait_for_function(f"window.keys.length >= {len(_KEYS)}")
            part = (await self._thread.busy() - busy) / len(_KEYS)
            keys: list[float] = await self._page.evaluate("window.keys")
            spent.append([Timed(wall=key / 1000, cpu=part) for key in keys])
            await field.fill("")
        await plain.evaluate("field => field.remove()")
        return spent[0], spent[1]

    async def _stream(self, chunks: int, *, per_second: int) -> float:
        """Return how busy the main thread is while an answer comes, in %."""
        await self._chat.composer.fill(stream(chunks, per_second=per_second))
        await self._chat.composer.press("Enter")
        await self._page.wait_for_function(_IS_WORKING)
        began, busy = time.perf_counter(), await self._thread.busy()
        await asyncio.sleep(chunks / per_second)
        share = 100 * (await self._thread.busy() - busy) / (time.perf_counter() - began)
        await self._page.wait_for_function(f"!({_IS_WORKING})")  # else the next answer waits for it
        return share
