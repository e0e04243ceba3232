"""The real browser of the tests, and how it is started."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from playwright.async_api import Browser, async_playwright, expect

from tests.support import PATIENCE, browser_path

# The last list of features counts, so it holds some of Playwright's as well. The others are two more pages that load
# with each window.
_LEFT_OUT = (
    "AvoidUnnecessaryBeforeUnloadCheckSync,DestroyProfileOnBrowserClose,HttpsUpgrades,HttpsFirstBalancedModeAutoEnable,"
    "LensOverlay,MediaRouter,PaintHolding,ThirdPartyStoragePartitioning,OptimizationHints,NetworkTimeServiceQuerying,"
    "AimEnabled,SpareRendererForSitePerProcess,PreconnectToSearch,WebUIOmniboxPopup,WebUIOmniboxAimPopup"
)
SWITCHES = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    f"--disable-features={_LEFT_OUT}",
    "--no-first-run",
    # The tabs of a visitor share a process. Starting one is a third of what opening a page takes.
    "--disable-site-isolation-trials",
    "--process-per-site",
    "--renderer-process-limit=1",
]


@asynccontextmanager
async def started_chromium() -> AsyncIterator[Browser]:
    """Run a browser in the block, whose pages are waited for with patience."""
    expect.set_options(timeout=PATIENCE * 1000)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=browser_path(), args=SWITCHES)
        yield browser
        await browser.close()
