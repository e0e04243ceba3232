"""What the browser tests share: one real site, one real browser, and people who sign in."""

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, StorageState, async_playwright, expect

from tests.e2e.browser_user import BrowserUser
from tests.e2e.site import Site
from tests.support import PATIENCE, browser_path, eventually_sync

# It takes a picture and proves nothing: `make screenshot` asks for it.
collect_ignore = [] if os.environ.get("SCREENSHOTS") else ["test_screenshot.py"]

# The last list of features counts, so it holds some of Playwright's as well. The others are two more pages that load
# with each window.
_LEFT_OUT = (
    "AvoidUnnecessaryBeforeUnloadCheckSync,DestroyProfileOnBrowserClose,HttpsUpgrades,HttpsFirstBalancedModeAutoEnable,"
    "LensOverlay,MediaRouter,PaintHolding,ThirdPartyStoragePartitioning,OptimizationHints,NetworkTimeServiceQuerying,"
    "AimEnabled,PreconnectToSearch,WebUIOmniboxPopup,WebUIOmniboxAimPopup"
)
SWITCHES = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    f"--disable-features={_LEFT_OUT}",
    "--no-first-run",
]
PATIENCE_MS = PATIENCE * 1000  # every wait ends as soon as what it waits for is there

OpenBrowser = Callable[..., Awaitable[BrowserUser]]
StartSite = Callable[[], Site]


@pytest.fixture(scope="package")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Serve the site to all tests that leave it running; Ctrl-C then has to end all of it."""
    made = Site(tmp_path_factory.mktemp("site"))
    try:
        made.start()
        yield made
        made.interrupt()
        assert made.wait() == 0, made.said
        eventually_sync(lambda: not made.processes())
    finally:
        made.leave()


@pytest.fixture
def own_site(tmp_path: pytest.TempPathFactory) -> Iterator[Site]:
    """Serve a site to one test, which may kill it.

    Ask for it before `visit`, so that the browser's tabs are closed before the server is.
    """
    made = Site(tmp_path)
    try:
        made.start()
        yield made
    finally:
        made.leave()


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    """Start the browser once; each visitor gets a context of its own."""
    expect.set_options(timeout=PATIENCE_MS)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=browser_path(), args=SWITCHES)
        yield browser
        await browser.close()


@pytest.fixture(scope="package")
def signed_in() -> dict[tuple[str, str], StorageState]:
    """The cookies of who has signed in where: the form is filled in once for each."""
    return {}


@pytest_asyncio.fixture(loop_scope="session")
async def open_browser(
    browser: Browser, signed_in: dict[tuple[str, str], StorageState]
) -> AsyncIterator[OpenBrowser]:
    """Return a function that makes visitors; a browser's complaint in any of their tabs fails the test."""
    browser_users: list[BrowserUser] = []

    async def make(site: Site, *, user: str | None = "demo", **context: object) -> BrowserUser:
        known = signed_in.get((site.url, user or ""))
        made = BrowserUser(site, await _context(browser, storage_state=known, **context))
        browser_users.append(made)
        if user and known is None:
            page = await made.open("/login/")
            await made.sign_in(page, user)
            await expect(page.get_by_role("heading", name="Conversations")).to_be_visible()
            signed_in[site.url, user] = await made.context.storage_state()
            await page.close()
        return made

    yield make
    for browser_user in browser_users:
        await browser_user.context.close()
    assert [problem for browser_user in browser_users for problem in browser_user.problems] == []


async def _context(browser: Browser, **options: object) -> object:
    context = await browser.new_context(**{"viewport": {"width": 1280, "height": 850}, **options})
    context.set_default_timeout(PATIENCE_MS)
    return context


@pytest_asyncio.fixture(loop_scope="session")
async def browser_user(open_browser: OpenBrowser, site: Site) -> BrowserUser:
    """Return the demo user, signed in."""
    return await open_browser(site)
