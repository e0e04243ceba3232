"""Find an installed Chromium, start it so that it cannot bypass its pages' proxies, and end it with all its processes.

Chromium is never downloaded. It is controlled by Playwright, which comes with the `browser` extra of this package and
is imported only when it is needed.
"""

import asyncio
import importlib
import logging
import os
import re
import shutil
import tempfile
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from governance.core.exceptions import ToolFailed
from governance.core.process_groups import kill_tagged_processes
from governance.threads import run_in_thread
from governance.toolbox.settings import BrowserSandbox, ToolboxSettings

if TYPE_CHECKING:
    from playwright.async_api import Browser, BrowserType, Playwright

logger = logging.getLogger(__name__)

_PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
NOT_INSTALLED = (
    "The browser is not installed on this server. An administrator can install it: the extra `browser` of "
    "django-turnkeeper, and the program Chromium. Use web_fetch instead."
)
_TAG = "TURNKEEPER_BROWSER"
_ARGUMENTS = (
    # The proxy resolves all names, and nothing bypasses the proxy, not even WebRTC or QUIC.
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
    "--webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--disable-quic",
    "--disable-gpu",
)
# The messages of Playwright and Chromium at the different stages of an aborted navigation.
_CHANGING = re.compile(
    "context was destroyed|Cannot find (default execution )?context|target navigated or closed|by another navigation|"
    "frame (was|got) detached",
    re.IGNORECASE,
)
_NETWORK_ERROR = re.compile(r"net::(ERR_[A-Z0-9_]{1,60})")


async def load_playwright() -> ModuleType:
    """Return Playwright's module. Raise `ToolFailed` if it is not installed."""
    try:
        return await run_in_thread(importlib.import_module, "playwright.async_api")
    except ImportError as error:
        raise ToolFailed(NOT_INSTALLED) from error


def find_program(settings: ToolboxSettings) -> str | None:
    """Return the path of an installed Chromium executable, or None."""
    if settings.browser_path:
        return shutil.which(settings.browser_path)
    return next(filter(None, map(shutil.which, _PROGRAMS)), None)


def uses_own_sandbox(settings: ToolboxSettings) -> bool:
    """Return whether Chromium should use its own sandbox, which does not work for root."""
    if settings.browser_sandbox is BrowserSandbox.AUTO:
        return os.geteuid() != 0
    return settings.browser_sandbox is BrowserSandbox.ON


@asynccontextmanager
async def launched(playwright: ModuleType, settings: ToolboxSettings) -> AsyncIterator["Browser"]:
    """Yield a running Chromium, and end all its processes at exit.

    Raise `ToolFailed` if Chromium is not installed or does not start.
    """
    tag, within = uuid.uuid4().hex, settings.browser_close_timeout
    making = asyncio.create_task(
        run_in_thread(tempfile.mkdtemp, prefix="turnkeeper-browser-"), name="directory of a browser"
    )
    try:
        home = Path(await asyncio.shield(making))  # a thread that makes it cannot be cancelled
        async with _driven(playwright, tag=tag, within=within) as driver:
            browser = await _launch(
                driver.chromium, playwright, settings=settings, tag=tag, home=home
            )
            try:
                yield browser
            finally:
                with suppress(playwright.Error, TimeoutError):
                    async with asyncio.timeout(within):
                        await browser.close()
    finally:
        await run_in_thread(shutil.rmtree, await making, ignore_errors=True)


@asynccontextmanager
async def _driven(
    playwright: ModuleType, *, tag: str, within: float
) -> AsyncIterator["Playwright"]:
    """Yield Playwright with its driver, which starts browsers. At exit, end the driver and all tagged processes."""
    manager = playwright.async_playwright()
    starting = asyncio.create_task(manager.start(), name="start of the browser's driver")
    try:
        yield await asyncio.shield(starting)  # a partly started driver cannot be stopped
    finally:
        try:
            await asyncio.wait({starting}, timeout=within)
            # End the browser first, because the driver would wait for a browser that hangs, and be killed before it
            # has cleaned up.
            await kill_tagged_processes(f"{_TAG}={tag}")
            with suppress(TimeoutError):
                async with asyncio.timeout(within):
                    await manager.__aexit__()
        finally:
            starting.cancel()
            await _kill(manager, within=within)
            await kill_tagged_processes(f"{_TAG}={tag}")


async def _kill(manager: Any, *, within: float) -> None:
    """Kill the driver if it has not ended."""
    try:  # Playwright has no public API for its process
        process = manager._client._transport._proc
    except AttributeError:
        return
    if process.returncode is not None:
        return
    logger.warning("The browser's driver did not end and is killed")
    process.kill()
    with suppress(TimeoutError):
        async with asyncio.timeout(within):
            await process.wait()


async def _launch(
    chromium: "BrowserType",
    playwright: ModuleType,
    *,
    settings: ToolboxSettings,
    tag: str,
    home: Path,
) -> "Browser":
    program = await run_in_thread(find_program, settings)
    if program is None:
        raise ToolFailed(
            "No Chromium is installed on this server. An administrator can install it, or name it: "
            "GOVERNANCE_BROWSER_PATH. Use web_fetch instead."
        )
    try:
        return await chromium.launch(
            executable_path=program,
            args=_ARGUMENTS,
            chromium_sandbox=uses_own_sandbox(settings),
            timeout=settings.browser_start_timeout * 1000,
            # The server, not a signal, decides when the browser ends.
            handle_sigint=False,
            handle_sigterm=False,
            handle_sighup=False,
            env=_environment(home, tag),
        )
    except playwright.Error as error:
        logger.warning("Chromium could not be started", exc_info=error)
        raise ToolFailed(
            "The browser could not be started. The reason is in the server's log: often its sandbox, which an "
            "administrator can switch off (GOVERNANCE_BROWSER_SANDBOX). Use web_fetch instead."
        ) from error


def _environment(home: Path, tag: str) -> dict[str, str | float | bool]:
    return {
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "PATH": os.environ.get("PATH", os.defpath),
        _TAG: tag,
    }


def is_navigating(error: Exception) -> bool:
    """Return whether the action failed because the page navigated by itself."""
    return _CHANGING.search(str(error)) is not None


def explain(error: Exception, playwright: ModuleType, *, problems: dict[str, str]) -> str:
    """Return a sentence for the model that does not contain the library's own message."""
    text = str(error)
    if isinstance(error, playwright.TimeoutError):
        return (
            "That did not work in time: the element is not on the page, hidden, or covered. Read the page again, and name the "
            "target by its ref."
        )
    if match := _NETWORK_ERROR.search(text):
        if match[1] == "ERR_ABORTED":
            return "The address gave no page: it is empty, or a download, which is refused. Use web_fetch."
        return next(reversed(problems.values()), f"The page could not be loaded ({match[1]}).")
    if "Download is starting" in text:
        return "The address is a download, which is refused. Use web_fetch."
    if "has been closed" in text or "crashed" in text:
        return "The page was closed or has crashed. Open it again."
    if is_navigating(error):
        return "The page keeps navigating to another one, so it cannot be used. Use web_fetch."
    if "strict mode violation" in text:
        return "More than one element matches this target. Read the page and name the target by its ref."
    logger.warning("The browser could not perform an action", exc_info=error)
    return "The browser could not do that with this target. Read the page and choose another one."
