"""The `browser` tool, which works with one web page per conversation in a real browser (G1, C9).

A newer call supersedes an earlier one. When a call is cancelled or times out, its page is closed, so that nothing
continues to run unseen.
"""

import asyncio
import re
from contextlib import suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from governance.core.exceptions import ToolFailed
from governance.core.excerpts import spaced
from governance.core.policy import ApprovalRule
from governance.core.registry import make_tool
from governance.core.tools import Concurrency, Tool, ToolContext
from governance.per_loop import PerLoop
from governance.threads import run_in_thread
from governance.toolbox.browser_page import BrowserPage
from governance.toolbox.browser_process import BrowserProcess
from governance.toolbox.chromium import NOT_INSTALLED, explain, is_navigating, load_playwright
from governance.toolbox.client import parse
from governance.toolbox.known_hosts import unknown_host_of
from governance.toolbox.settings import SettingsSource
from governance.toolbox.text_files import save_new
from governance.toolbox.workspace import find_workspace, shown

if TYPE_CHECKING:
    from playwright.async_api import Locator, Page

_TIMEOUT = 180.0
_REF = re.compile(r"(?:\[?ref=)?((?:f\d+)?e\d+)\]?")
_BLANK = "about:blank"

_READING = ("open", "read", "screenshot", "close")

Action = Literal["open", "read", "click", "fill", "screenshot", "close"]


def make_browser(settings: SettingsSource) -> Tool:
    reason = "" if find_spec("playwright") else NOT_INSTALLED
    find_host = unknown_host_of(settings)
    return make_tool(
        Browser(settings).browser,
        title="Use a browser",
        off=lambda: reason,
        timeout=_TIMEOUT,
        concurrency=Concurrency.SUPERSEDE,
        side_effects=True,
        approval=ApprovalRule.ONCE_PER_CONVERSATION,
        asks_for=lambda call_input: call_input.get("action") not in _READING,
        unknown_host=lambda call_input: (
            find_host(call_input) if call_input.get("action") == "open" else ""
        ),
    )


class Browser:
    """The `browser` tool, which reads the current settings for each call."""

    def __init__(self, settings: SettingsSource) -> None:
        self._settings = settings
        self._processes: PerLoop[BrowserProcess] = PerLoop()

    async def browser(
        self,
        context: ToolContext,
        action: Annotated[Action, Field(description="The action to perform.")],
        url: Annotated[str, Field(description="For open: the http:// or https:// address.")] = "",
        target: Annotated[
            str,
            Field(
                max_length=1000,
                description="For click and fill: the ref of an element as shown by read (e12), its exact name or "
                "text, or css=… with a selector.",
            ),
        ] = "",
        text: Annotated[
            str,
            Field(
                max_length=20_000,
                description="For fill: the text to type, or the option to select. A line break at the end presses "
                "Enter.",
            ),
        ] = "",
    ) -> str:
        """Work with one web page in a real browser: open it, read it as text, click, fill in fields, take a screenshot.

        The page stays open between calls. Wait for each call to end before you make the next one, because a new call
        cancels the previous one and closes its page. If you only need to read a page, web_fetch is faster.
        """
        browsing = await self._browsing()
        try:
            return await self._act(
                browsing, context, action=action, url=url, target=target, text=text
            )
        except browsing.playwright.Error as error:
            tab = browsing.find(context.scope)
            problems = tab.proxy.problems if tab else {}
            raise ToolFailed(explain(error, browsing.playwright, problems=problems)) from error
        except asyncio.CancelledError:
            closing = browsing.close(context.scope)
            await asyncio.wait({closing}, timeout=self._settings().kill_grace)
            raise
        finally:
            browsing.touch()

    async def aclose(self) -> None:
        """Close the pages and the browser of the running event loop."""
        browsing = self._processes.pop()
        if browsing is not None:
            await browsing.aclose()

    async def _browsing(self) -> BrowserProcess:
        playwright = await load_playwright()
        return self._processes.get_or_make(
            lambda: BrowserProcess(playwright, settings=self._settings)
        )

    async def _act(
        self,
        browsing: BrowserProcess,
        context: ToolContext,
        *,
        action: Action,
        url: str,
        target: str,
        text: str,
    ) -> str:
        if action == "close":
            await asyncio.wait({browsing.close(context.scope)})
            return "The page is closed."
        if action == "open":
            address = str(parse(url))
            context.progress(f"Opening {shown(address)}")
            return await self._open(browsing, context.scope, address)
        tab = _require(browsing, context)
        with tab.used():
            match action:
                case "click":
                    await (await _locate(tab.page, target)).click()
                case "fill":
                    await _fill(await _locate(tab.page, target), text)
                case "screenshot":
                    return await self._screenshot(tab, context)
            return await self._describe(tab, browsing)

    async def _open(self, browsing: BrowserProcess, scope: str, address: str) -> str:
        """Navigate the scope's page to the URL and return its text. Replace the page if it cannot navigate."""
        errors, open_page = browsing.playwright, browsing.find(scope)
        if open_page is not None:
            if await open_page.responds(within=self._settings().browser_settle):
                try:
                    return await self._visit(open_page, address, browsing)
                except errors.Error as error:
                    # Pending work of the previous document can affect the new one, which then never becomes idle.
                    # The previous document may also navigate by itself, which aborts the new navigation.
                    is_elsewhere = is_navigating(error) or "ERR_ABORTED" in error.message
                    if not (is_elsewhere or isinstance(error, errors.TimeoutError)):
                        raise
            await asyncio.wait({browsing.close(scope)})
        return await self._visit(await browsing.open(scope), address, browsing)

    async def _visit(self, tab: BrowserPage, address: str, browsing: BrowserProcess) -> str:
        with tab.used():
            tab.proxy.problems.clear()
            tab.proxy.allow(address)
            # Playwright needs no time limit, because the executor enforces one.
            await tab.page.goto(address, wait_until="domcontentloaded", timeout=0)
            return await self._describe(tab, browsing)

    async def _describe(self, tab: BrowserPage, browsing: BrowserProcess) -> str:
        """Wait briefly for the page to load, and return it as text. Raise `ToolFailed` if it cannot be read."""
        page, settings = tab.page, self._settings()
        await tab.settle(within=settings.browser_settle)
        with suppress(browsing.playwright.TimeoutError):  # a partly loaded page can be read too
            await page.wait_for_load_state("load", timeout=settings.browser_settle * 1000)
        if page.url != _BLANK and not page.url.startswith(("http://", "https://")):
            problems = list(tab.proxy.problems.values())
            raise ToolFailed(problems[-1] if problems else "The page could not be loaded.")
        title = await self._read_title(tab)
        snapshot = await page.aria_snapshot(mode="ai")
        lines = [
            f"{shown(page.url, limit=2000)} · {shown(title, limit=300) or 'no title'}",
            *tab.take_notes(),
            "",
            snapshot[: settings.browser_read_limit] or "(no text)",
        ]
        if len(snapshot) > settings.browser_read_limit:
            rest = len(snapshot) - settings.browser_read_limit
            lines.append(f"… {spaced(rest)} characters left out …")
        return "\n".join(lines).replace("\0", "\ufffd")

    async def _read_title(self, tab: BrowserPage) -> str:
        """Return the page's title. Raise `ToolFailed` if the page does not respond or is too long to read."""
        try:
            async with asyncio.timeout(self._settings().browser_action_timeout):
                return await tab.read_title()
        except TimeoutError:
            raise ToolFailed(
                "The page does not respond: a script keeps it busy. Open another one, or use web_fetch."
            ) from None

    async def _screenshot(self, tab: BrowserPage, context: ToolContext) -> str:
        settings = self._settings()
        workspace = await run_in_thread(find_workspace, context, settings)
        picture = await tab.page.screenshot(type="png")
        name = await run_in_thread(
            save_new,
            workspace,
            "screenshot",
            suffix=".png",
            content=picture,
            token=context.token,
            settings=settings,
        )
        return "\n".join(
            [
                f"Saved {name} in the workspace: {spaced(len(picture))} bytes, of {shown(tab.page.url)}.",
                await context.show_image(picture, name="screenshot"),
                *tab.take_notes(),
            ]
        )


def _require(browsing: BrowserProcess, context: ToolContext) -> BrowserPage:
    tab = browsing.find(context.scope)
    if tab is None:
        raise ToolFailed("No page is open in this conversation. Open one first: action=open.")
    return tab


async def _fill(element: "Locator", text: str) -> None:
    kind = await element.evaluate("element => element.tagName")
    if kind == "SELECT":
        await element.select_option(label=text)
        return
    presses_enter = text.endswith("\n") and kind == "INPUT"
    await element.fill(text[:-1] if presses_enter else text)
    if presses_enter:
        await element.press("Enter")


async def _locate(page: "Page", target: str) -> "Locator":
    """Return a locator of the target. Raise `ToolFailed` if no element, or more than one, has this name."""
    if not target.strip():
        raise ToolFailed("Set `target` to the ref of an element, as read shows it.")
    if match := _REF.fullmatch(target.strip()):
        return page.locator(f"aria-ref={match[1]}")
    if target.startswith("css="):
        return page.locator(target)
    for candidates in _named(page, target):
        count = await candidates.count()
        if count == 1:
            return candidates
        if count > 1:
            raise ToolFailed(
                f"{count} elements are named {shown(target)!r}. Read the page and name the target by its ref."
            )
    raise ToolFailed(
        f"Nothing on the page is named {shown(target)!r}. Read the page and name the target by its ref."
    )


def _named(page: "Page", name: str) -> "tuple[Locator, ...]":
    return (
        page.get_by_label(name, exact=True),
        page.get_by_role("button", name=name, exact=True),
        page.get_by_role("link", name=name, exact=True),
        page.get_by_placeholder(name, exact=True),
        page.get_by_text(name, exact=True),
    )
