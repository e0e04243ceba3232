"""The browser's processes: none without need, none left behind, and what is said where it is not installed (G1)."""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
from pathlib import Path

import playwright.async_api
import pytest

from governance import toolbox
from governance.core.exceptions import InvalidToolInput, ToolFailed
from governance.core.registry import ToolRegistry
from governance.core.tools import Concurrency
from governance.toolbox import BrowserSandbox, ToolboxSettings, chromium
from governance.toolbox.browser import make_browser
from governance.toolbox.browser_process import BrowserProcess
from tests.governance.core.process_table import tagged
from tests.governance.toolbox.browser_harness import (
    BrowserHarness,
    browser_tags,
    driver_of,
    page,
    parent_of,
)
from tests.governance.toolbox.http_server import HttpServer
from tests.support import PATIENCE, eventually, eventually_sync, with_room

pytestmark = pytest.mark.browser


@pytest.fixture
async def server():
    async with HttpServer().serve() as running:
        running.pages["/"] = page("<title>A form</title>")
        yield running


@pytest.fixture
def own_temporary_files(monkeypatch, tmp_path):
    """The directory for temporary files of this process, of the driver and of the browser."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def test_it_declares_how_it_is_governed():
    registry = ToolRegistry()
    toolbox.register(registry, settings=ToolboxSettings)
    tool = registry.get("browser")
    assert tool.limits.timeout == 180
    assert tool.concurrency is Concurrency.SUPERSEDE
    assert tool.side_effects
    assert tool.isolation != "thread"
    with pytest.raises(InvalidToolInput, match="action"):
        tool.validate({"action": "download"})


# What is not installed, and what is left


async def alone(**values):
    """Tools of their own, with a browser of their own."""
    browser = BrowserHarness(None)
    browser.reset()
    browser.change(**values)
    return browser


async def test_without_playwright_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "playwright.async_api", None)
    browser = await alone()
    await browser.fails("the extra `browser`", "open", url="http://example.org/")


def test_without_playwright_nobody_is_asked(monkeypatch):
    assert make_browser(ToolboxSettings).disabled_reason() == ""
    monkeypatch.setitem(sys.modules, "playwright", None)
    assert "the extra `browser`" in make_browser(ToolboxSettings).disabled_reason()


async def test_without_chromium_it_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    browser = await alone()
    await browser.fails("No Chromium is installed", "open", url="http://example.org/")
    await toolbox.aclose(browser.registry)


async def test_a_program_that_is_no_browser_is_a_sentence(tmp_path):
    browser = await alone(browser_path="/bin/true")
    await browser.fails("could not be started", "open", url="http://example.org/")
    await toolbox.aclose(browser.registry)


async def test_a_driver_that_ends_at_once_is_a_sentence(monkeypatch, own_temporary_files):
    started, start = [], asyncio.create_subprocess_exec

    async def start_and_note(*arguments, **options):
        started.append(await start(*arguments, **options))
        return started[-1]

    monkeypatch.setattr(asyncio, "create_subprocess_exec", start_and_note)
    monkeypatch.setenv("PLAYWRIGHT_NODEJS_PATH", "/bin/false")
    browser = await alone()
    await browser.fails("has stopped working", "open", url="http://example.org/")
    await toolbox.aclose(browser.registry)
    [driver] = started
    assert await driver.wait() == 1  # else the loop may be closed before it is reaped
    assert list(own_temporary_files.iterdir()) == []


def test_its_own_sandbox_is_used_unless_we_are_root(monkeypatch):
    for user, choice, expected in (
        (0, BrowserSandbox.AUTO, False),
        (1000, BrowserSandbox.AUTO, True),
        (0, BrowserSandbox.ON, True),
        (1000, BrowserSandbox.OFF, False),
    ):
        monkeypatch.setattr(os, "geteuid", lambda user=user: user)
        assert chromium.uses_own_sandbox(ToolboxSettings(browser_sandbox=choice)) is expected


async def test_closing_leaves_no_process_and_it_can_begin_again(server):
    browser = await alone()
    await browser.call("open", url=server.url())
    (tag,) = browser_tags()
    assert len(tagged(tag)) > 2
    await toolbox.aclose(browser.registry)
    await eventually(lambda: tagged(tag) == [])
    assert browser.browsing is None


async def test_a_browser_that_hangs_ends_with_its_driver(server):
    browser = await alone(browser_close_timeout=with_room(1.0))
    await browser.call("open", url=server.url())
    (tag,) = browser_tags()
    pids = tagged(tag)
    driver = driver_of(pids)
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    await toolbox.aclose(browser.registry)
    await eventually(lambda: tagged(tag) == [])
    assert not Path(f"/proc/{driver}").exists()  # reaped, too


async def test_a_driver_that_hangs_is_killed(server):
    browser = await alone(browser_close_timeout=0.2)
    await browser.call("open", url=server.url())
    (tag,) = browser_tags()
    driver = driver_of(tagged(tag))
    os.kill(driver, signal.SIGSTOP)
    await toolbox.aclose(browser.registry)
    await eventually(lambda: tagged(tag) == [])
    assert not Path(f"/proc/{driver}").exists()


async def test_closing_gives_up_a_browser_that_does_not_start(tmp_path):
    program = tmp_path / "chromium"
    program.write_text("#!/bin/sh\nexec sleep infinity\n")
    program.chmod(0o700)
    browser = await alone(browser_path=str(program), browser_start_timeout=2 * PATIENCE)
    opening = asyncio.create_task(browser.fails("shutting down", "open", url="http://example.org/"))
    (tag,) = await eventually(browser_tags)
    (pid,) = tagged(tag)
    driver = parent_of(pid)
    async with asyncio.timeout(PATIENCE):
        await toolbox.aclose(browser.registry)
        await opening
    await eventually(lambda: tagged(tag) == [])
    assert not Path(f"/proc/{driver}").exists()


@pytest.mark.parametrize("steps", range(6))
async def test_closing_ends_a_browser_at_each_of_its_first_steps(steps):
    """A task that is cancelled before its first step runs nothing of itself, so nothing may depend on that."""
    process = BrowserProcess(playwright.async_api, settings=ToolboxSettings)
    opening = asyncio.create_task(process.open("a conversation"))
    for _ in range(steps):
        await asyncio.sleep(0)
    async with asyncio.timeout(PATIENCE):
        await process.aclose()
        with pytest.raises(ToolFailed, match="shutting down"):
            await opening


async def test_closing_removes_a_directory_that_a_thread_is_just_making(tmp_path, monkeypatch):
    begun, may_go_on, made = threading.Event(), threading.Event(), threading.Event()
    mkdtemp = tempfile.mkdtemp

    def make_late(**facts):
        begun.set()
        assert may_go_on.wait(PATIENCE)
        path = mkdtemp(dir=tmp_path, **facts)
        made.set()
        return path

    monkeypatch.setattr(tempfile, "mkdtemp", make_late)
    process = BrowserProcess(playwright.async_api, settings=ToolboxSettings)
    opening = asyncio.create_task(process.open("a conversation"))
    await eventually(begun.is_set)
    closing = asyncio.create_task(process.aclose())
    for _ in range(10):  # it has cancelled the start of the browser by then
        await asyncio.sleep(0)
    may_go_on.set()
    async with asyncio.timeout(PATIENCE):
        await closing
        with pytest.raises(ToolFailed, match="shutting down"):
            await opening
    await eventually(made.is_set)
    assert list(tmp_path.iterdir()) == []


async def test_closing_ends_a_driver_that_has_just_started(monkeypatch):
    started, start = asyncio.Event(), asyncio.create_subprocess_exec
    processes = []

    async def start_and_tell(*arguments, **options):
        processes.append(await start(*arguments, **options))
        started.set()
        return processes[0]

    monkeypatch.setattr(asyncio, "create_subprocess_exec", start_and_tell)
    browser = await alone(browser_close_timeout=PATIENCE)
    opening = asyncio.create_task(browser.fails("shutting down", "open", url="http://example.org/"))
    async with asyncio.timeout(PATIENCE):
        await started.wait()
        await toolbox.aclose(browser.registry)
        await opening
    assert processes[0].returncode is not None


async def test_a_browser_without_pages_ends_after_the_idle_time(server):
    browser = await alone(browser_idle=0.2)
    await browser.call("open", url=server.url())
    (tag,) = browser_tags()
    await eventually(lambda: not tagged(tag), timeout=PATIENCE)
    assert "A form" in await browser.call("open", url=server.url())
    await toolbox.aclose(browser.registry)


SERVER = textwrap.dedent(
    """
    import asyncio
    from governance import toolbox
    from governance.core.cancellation import CancellationToken
    from governance.core.registry import ToolRegistry
    from governance.core.tools import ToolContext
    registry = ToolRegistry()
    toolbox.register(registry, settings=lambda: toolbox.ToolboxSettings(web_allow_private=True))
    async def main():
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        context = ToolContext(call_id="c", tool_name="browser", scope="s", token=CancellationToken(), report=print)
        port = server.sockets[0].getsockname()[1]
        await registry.get("browser").function(context, "open", url=f"http://127.0.0.1:{port}/")
        print("up", flush=True)
        await asyncio.Event().wait()
    async def serve(reader, writer):
        await reader.readuntil(b"\\r\\n\\r\\n")
        writer.write(b"HTTP/1.0 200 OK\\r\\nContent-Type: text/html\\r\\n\\r\\n<p>page</p>")
        await writer.drain()
        writer.close()
    asyncio.run(main())
    """
)


def test_a_killed_server_leaves_no_browser_behind():
    """kill -9: nothing of ours runs any more, and still every process of the browser ends."""
    process = subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True)
    with process:
        assert any(line.strip() == "up" for line in process.stdout)
        (tag,) = browser_tags(ancestor=process.pid)
        assert len(tagged(tag)) > 2
        process.kill()
    eventually_sync(lambda: not tagged(tag), timeout=PATIENCE)


@pytest.mark.parametrize(
    "said",
    [
        "Page.evaluate: Execution context was destroyed, most likely because of a navigation",
        "CDPSession.send: Protocol error (Runtime.evaluate): Inspected target navigated or closed",
        "Protocol error (Runtime.callFunctionOn): Cannot find context with specified id",
        "Protocol error (Runtime.evaluate): Cannot find default execution context",
        'Page.goto: Navigation to "/" is interrupted by another navigation to "/second"',
        "Locator.click: Frame was detached",
    ],
)
def test_every_word_for_a_page_that_goes_on_is_known(said):
    assert chromium.is_navigating(Exception(said))
