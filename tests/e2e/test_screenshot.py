"""The pictures in the docs: the chat at work, and what operators see of it. Taken by `make screenshot` only."""

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


async def allow_two_waits(open_browser, site) -> None:
    admin = await open_browser(site, user="admin")
    page = await admin.open("/admin/governance/toolpolicy/add/")
    await page.get_by_label("Tool:").select_option("wait")
    await page.get_by_label("Concurrent calls").fill("2")
    await page.get_by_role("button", name="Save", exact=True).click()
    await page.close()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """Serve a site of its own that may fetch pages from this machine."""
    made = Site(
        tmp_path,
        GOVERNANCE_WEB_ALLOW_PRIVATE="true",
        GOVERNANCE_APPROVAL="*=never,list_files=once_per_conversation",
    )
    try:
        made.start()
        yield made
    finally:
        made.leave()


async def test_the_picture_shows_a_turn_with_calls_of_every_colour(site, open_browser):
    await allow_two_waits(open_browser, site)
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
        await expect(chat.ending("cancelled")).to_be_visible()


async def test_the_pictures_show_an_answer_and_a_question_on_a_phone(site, open_browser):
    person = await open_browser(
        site, viewport={"width": 390, "height": 844}, color_scheme="dark", device_scale_factor=2
    )
    chat = await person.start_conversation()
    await chat.say("write notes.txt: Buy milk\nread notes.txt")
    await chat.has_ended()
    await chat.page.screenshot(path=FOLDER / "answer-phone.png")
    await chat.say("list")
    await expect(chat.question.get_by_role("button", name="Allow once")).to_be_enabled()
    await chat.page.screenshot(path=FOLDER / "question-phone.png")


async def test_the_pictures_show_what_operators_see(site, open_browser):
    person = await open_browser(site)
    chat = await person.start_conversation()
    for seconds in (0.2, 0.4, 0.6, 0.7, 0.8, 1.1, 1.3, 2.1):
        await chat.say(f"wait {seconds}")
        await chat.has_ended()
    admin = await open_browser(site, user="admin", viewport={"width": 1280, "height": 900})
    page = await admin.open("/admin/governance/toolpolicy/tool/wait/")
    for limit, why in (("1 min", "the queue was full"), ("1.5 s", "the tool answers sooner now")):
        await page.get_by_label("Total limit").fill(limit)
        await page.get_by_label("Reason").fill(why)
        async with page.expect_navigation():
            await page.get_by_role("button", name="Save").click()
        if await page.locator(".errornote, .errorlist").count():  # it warns once
            await page.get_by_role("button", name="Save").click()
        await expect(page.get_by_text(f"Current limits: {limit}")).to_be_visible()
    await chat.say("wait 1\nwait 0.3\nwait 9")
    await chat.has_ended()
    other = await person.start_conversation()
    await other.say("run sleep 50\nwait 60")
    await expect(other.cards).to_have_count(2)
    await page.reload()
    await page.screenshot(path=FOLDER / "admin-tool.png")
    await page.goto(f"{site.url}/admin/governance/toolpolicy/?o=calls")
    await page.locator("summary", has_text="wait").click()
    await page.get_by_label("Total limit: wait").fill("900 ms")
    await expect(page.locator("[data-told=wait]")).to_contain_text("Would have cut")
    await page.locator("#limits-in-force").evaluate("line => line.scrollIntoView()")
    await page.screenshot(path=FOLDER / "admin-limits.png")
    await page.goto(f"{site.url}/admin/")
    await page.screenshot(path=FOLDER / "admin-overview.png")
    await page.goto(f"{site.url}/admin/turns/turn/")
    await page.locator("#result_list tbody tr").nth(1).get_by_role("link").first.click()
    await page.locator(".field-timeline").evaluate("row => row.scrollIntoView()")
    await page.screenshot(path=FOLDER / "admin-turn.png")
    await other.cancel_turn.click()
    await expect(other.ending("cancelled")).to_be_visible()
