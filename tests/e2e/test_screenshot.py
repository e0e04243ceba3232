"""The picture in the README: a turn at work, with calls of every colour. Taken by `make screenshot` only."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.async_api import expect

from tests.e2e.chat import state
from tests.e2e.site import Site

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(600)]

FOLDER = Path(os.environ.get("SCREENSHOTS", ""))
SLOW = 60_000  # ms
PAUSE = 0.5  # s


@contextmanager
def slow_page() -> Iterator[str]:
    """Serve a page that does not come until the block ends."""
    over = threading.Event()

    class Slow(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain")
            self.end_headers()
            while not over.wait(PAUSE):
                self.wfile.write(b".")

    server = ThreadingHTTPServer(("127.0.0.1", 0), Slow)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/quarterly-report"
    finally:
        over.set()
        server.shutdown()
        server.server_close()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """Serve a site of its own that may fetch pages from this machine."""
    made = Site(tmp_path, GOVERNANCE_WEB_ALLOW_PRIVATE="true")
    try:
        made.start()
        yield made
    finally:
        made.leave()


async def test_the_picture_shows_a_turn_with_calls_of_every_colour(open_browser, site):
    admin = await open_browser(site, user="admin")
    page = await admin.open("/admin/governance/toolpolicy/add/")
    await page.get_by_label("Tool:").select_option("wait")
    await page.get_by_label("Calls at once").fill("2")
    await page.get_by_role("button", name="Save", exact=True).click()
    browser_user = await open_browser(site)
    for words in ("help", "write notes.txt: Buy milk"):
        chat = await browser_user.start_conversation()
        await chat.say(words)
        await expect(chat.answers.last).to_be_visible()
        await chat.has_ended()
    chat = await browser_user.start_conversation()
    await chat.say("run date")
    await expect(chat.answers.last).to_contain_text("succeeded")
    await chat.has_ended()
    with slow_page() as url:
        # Two may wait at once, so the others begin later: that makes calls of different ages.
        await chat.say(f"fetch {url}\nwait 15\nwait 28\nwait 120\nwait 45")
        await expect(state(chat.cards.nth(1))).to_have_text("very slow", timeout=SLOW)
        await expect(state(chat.card("seconds: 120"))).to_have_text("slow")
        await expect(state(chat.card("seconds: 45"))).to_have_text("running")
        await chat.page.screenshot(path=FOLDER / "chat.png", animations="disabled")
        await chat.cancel_turn.click()
        await expect(chat.ending("Turn cancelled")).to_be_visible()
