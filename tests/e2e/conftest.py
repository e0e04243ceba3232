"""What the browser tests share: one real site, one real browser, and people who sign in."""

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from tests.e2e.browser_user import BrowserUser
from tests.e2e.chromium import started_chromium
from tests.e2e.contexts import Contexts
from tests.e2e.site import Site
from tests.support import eventually_sync

# It takes a picture and proves nothing: `make screenshot` asks for it.
collect_ignore = [] if os.environ.get("SCREENSHOTS") else ["test_screenshot.py"]

OpenBrowser = Callable[..., Awaitable[BrowserUser]]


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

    Ask for it before `open_browser`, so that the browser's tabs are closed before the server is.
    """
    made = Site(tmp_path)
    try:
        made.start()
        yield made
    finally:
        made.leave()


@pytest.fixture
def own_site_of(tmp_path: pytest.TempPathFactory) -> Iterator[Callable[..., Site]]:
    """Return a function that serves a site with other settings to one test. Ask for it before `open_browser`, too."""
    started: list[Site] = []

    def make(**settings: str) -> Site:
        started.append(Site(tmp_path, **settings))
        started[-1].start()
        return started[-1]

    yield make
    for site in started:
        site.leave()


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    """Start the browser once; each visitor gets a context of its own."""
    async with started_chromium() as browser:
        yield browser


@pytest.fixture(scope="package")
def contexts(browser: Browser) -> Contexts:
    """Return the contexts of the browser, which tests hand on to each other."""
    return Contexts(browser)


@pytest_asyncio.fixture(loop_scope="session")
async def open_browser(contexts: Contexts) -> AsyncIterator[OpenBrowser]:
    """Return a function that makes visitors; a browser's complaint in any of their tabs fails the test."""
    browser_users: list[BrowserUser] = []

    async def make(site: Site, *, user: str | None = "demo", **options: object) -> BrowserUser:
        made = BrowserUser(site, await contexts.take(site, user, **options))
        browser_users.append(made)
        if user and not contexts.has_signed_in(site, user):
            page = await made.open("/login/")
            await made.sign_in(page, user)
            await expect(page.get_by_role("heading", name="Conversations")).to_be_visible()
            await contexts.note_sign_in(site, user, made.context)
            await page.close()
        return made

    yield make
    for browser_user in browser_users:
        browser_user.leave()
        await contexts.give_back(browser_user.context, keep=not browser_user.has_scripts)
    assert [problem for browser_user in browser_users for problem in browser_user.problems] == []


@pytest_asyncio.fixture(loop_scope="session")
async def browser_user(open_browser: OpenBrowser, site: Site) -> BrowserUser:
    """Return the demo user, signed in."""
    return await open_browser(site)
