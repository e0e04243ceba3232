"""Whose conversation it is: strangers find nothing, and a sign-out is noticed everywhere."""

import pytest
from playwright.async_api import Page, expect

from tests.e2e.browser_user import BrowserUser
from tests.e2e.test_accessibility import check
from tests.e2e.test_attachments import PHOTO, attach, waiting
from tests.e2e.test_beginning import conversations
from tests.e2e.test_connection import sign_out
from tests.e2e.test_conversations import choose, entry
from tests.governance.toolbox.http_server import HttpServer, answer

pytestmark = pytest.mark.asyncio(loop_scope="session")

CAME_BACK = "window.dispatchEvent(new Event('focus'))"
# Another port of the same host: the browser sends the cookies of the site along.
ANOTHER_SITE = """<iframe src="CHAT"></iframe><p id="came-of-it"></p><script>
const cookies = { credentials: "include" };
const form = { ...cookies, method: "POST", mode: "no-cors", body: "{}" };
Promise.all([
  fetch("API", cookies).then((found) => found.text(), () => "unread"),
  fetch("API", form).then((sent) => sent.type, () => "unsent"),
  new Promise((settle) => {
    const socket = new WebSocket("SOCKET");
    socket.onopen = () => settle("open");
    socket.onerror = () => settle("refused");
  }),
]).then((all) => { document.getElementById("came-of-it").textContent = all.join(", "); });
</script>"""


async def test_a_conversation_of_somebody_else_does_not_exist(open_browser, browser_user, site):
    admin = await open_browser(site, user="admin")
    foreign = await admin.start_conversation()
    browser_user.expect_problem("status of 404")
    page = await browser_user.context.new_page()
    answer = await page.goto(foreign.page.url)
    assert answer.status == 404
    await expect(page.get_by_role("heading", name="There is nothing here")).to_be_visible()
    await check(page)


async def test_who_is_not_signed_in_signs_in_and_gets_what_was_asked_for(
    open_browser, browser_user, site
):
    chat = await browser_user.start_conversation()
    nobody = await open_browser(site, user=None)
    page = await nobody.open(chat.page.url.removeprefix(site.url))
    await expect(page.get_by_role("heading", name="Sign in to Turnkeeper")).to_be_visible()
    await page.get_by_label("Username").fill("demo")
    await page.get_by_label("Password").fill("wrong")
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.get_by_role("alert")).to_contain_text("correct username and password")
    await check(page)
    await nobody.sign_in(page)
    await expect(page).to_have_url(chat.page.url)
    await expect(page.locator("#connection")).to_have_attribute("data-status", "online")


async def test_a_sign_out_in_another_tab_is_noticed(open_browser, site):
    person = await open_browser(site, user=None)
    page = await person.open("/")
    await person.sign_in(page)
    chat = await person.start_conversation(page=page)
    other = await person.join(chat)
    await sign_out(other.page)
    await check(other.page)
    await expect(chat.connection).to_have_attribute("data-status", "signed_out")
    await expect(page.locator("#banner")).to_contain_text("Your session ended.")
    await expect(page.get_by_role("link", name="Sign in")).to_be_visible()
    await check(page)


async def signed_in_anew(person: BrowserUser, page: Page, name: str) -> None:
    """Sign out in a tab, and in again."""
    await sign_out(page)
    await page.goto(f"{person.site.url}/login/")
    await person.sign_in(page, name)
    await expect(page.get_by_role("heading", name="Conversations")).to_be_visible()


async def test_pages_that_are_older_than_the_last_sign_in_work_on(open_browser, site):
    person = await open_browser(site, user=None)
    person.expect_problem("status of 40[13]")
    other = await person.open("/")
    await person.sign_in(other)
    chat = await person.start_conversation()
    await chat.say("say Lasting.")
    await chat.has_ended()
    listed, old = await person.open("/"), await person.open("/")
    await signed_in_anew(person, other, "demo")
    await chat.page.evaluate(CAME_BACK)
    await expect(chat.connection).to_have_attribute("data-status", "online")
    await attach(chat, PHOTO)
    await expect(waiting(chat)).not_to_have_attribute("data-failed", "")
    await choose(listed, "say Lasting.", "Rename")
    await listed.get_by_label("Title").fill("Outlasting")
    await listed.get_by_label("Title").press("Enter")
    await expect(entry(listed, "Outlasting")).to_be_visible()
    await sign_out(old)
    await expect(chat.connection).to_have_attribute("data-status", "signed_out")


async def test_an_empty_page_shows_the_sign_out_and_sends_what_it_kept_after_a_sign_in(
    open_browser, site
):
    person = await open_browser(site, user=None)
    person.expect_problem("status of 40[13]")
    page = await person.open("/")
    await person.sign_in(page)
    chat = await person.begin(page)
    other = await person.open("/")
    await sign_out(other)
    await chat.say("say Kept for you.")
    await expect(chat.connection).to_have_attribute("data-status", "signed_out")
    await expect(chat.page.get_by_role("link", name="Sign in")).to_be_visible()
    await expect(chat.unsent).to_have_count(1)
    await other.goto(f"{site.url}/login/")
    await person.sign_in(other)
    await expect(other.get_by_role("heading", name="Conversations")).to_be_visible()
    await chat.page.evaluate(CAME_BACK)
    await expect(chat.answers).to_contain_text("Kept for you.")
    await chat.has_ended()


async def test_an_empty_page_writes_nothing_under_another_user(open_browser, site):
    person = await open_browser(site, user=None)
    person.expect_problem("status of 403")
    page = await person.open("/")
    await person.sign_in(page)
    chat = await person.begin(page)
    await signed_in_anew(person, await person.open("/"), "admin")
    await chat.say("say Not hers.")
    await expect(chat.page.locator("#notice-text")).to_contain_text("Reload the page")
    await expect(chat.composer).to_have_value("say Not hers.")
    assert "say Not hers." not in await conversations(person)


async def test_a_page_of_another_site_shows_reads_and_does_nothing_of_this_one(browser_user, site):
    chat = await browser_user.start_conversation()
    conversation = chat.page.url.rstrip("/").rpartition("/")[2]
    socket = f"{site.url.replace('http', 'ws', 1)}/ws/conversations/{conversation}/"
    page = await browser_user.context.new_page()
    browser_user.expect_problem("frame|CORS|net::ERR_FAILED|status of 403|WebSocket connection to")

    async def known():
        found = await browser_user.context.request.get(f"{site.url}/api/conversations")
        return len((await found.json())["conversations"])

    before = await known()
    async with HttpServer().serve() as elsewhere:
        lure = ANOTHER_SITE.replace("CHAT", chat.page.url).replace("SOCKET", socket)
        lure = lure.replace("API", f"{site.url}/api/conversations")
        elsewhere.pages["/"] = answer(lure, content_type="text/html")
        await page.goto(elsewhere.url())
        await expect(page.locator("#came-of-it")).to_have_text("unread, opaque, refused")
        _, frame = page.frames
        await frame.wait_for_load_state()
        assert frame.url == "chrome-error://chromewebdata/"
        assert await known() == before
        await page.close()
