"""Whose conversation it is: strangers find nothing, and a sign-out is noticed everywhere."""

import pytest
from playwright.async_api import expect

from tests.e2e.test_accessibility import check
from tests.governance.toolbox.http_server import HttpServer, answer

pytestmark = pytest.mark.asyncio(loop_scope="session")

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
    await expect(page.locator("#connection")).to_have_text("Connected")


async def test_a_sign_out_in_another_tab_is_noticed(open_browser, site):
    person = await open_browser(site, user=None)
    page = await person.open("/")
    await person.sign_in(page)
    chat = await person.start_conversation(page)
    other = await person.join(chat)
    await other.page.get_by_role("button", name="Sign out").click()
    await expect(other.page.get_by_role("heading", name="You are signed out")).to_be_visible()
    await check(other.page)
    await expect(chat.connection).to_have_text("Signed out")
    await expect(page.locator("#banner")).to_contain_text("Your session ended.")
    await expect(page.get_by_role("link", name="Sign in")).to_be_visible()
    await check(page)


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
