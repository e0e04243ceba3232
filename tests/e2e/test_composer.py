"""The field in which a person writes. It grows with its text, and a long text makes no key slower than elsewhere."""

from collections import Counter
from itertools import pairwise

import pytest
from playwright.async_api import CDPSession, Locator, expect

from tests.e2e.browser_user import BrowserUser
from tests.e2e.chat import KEY_OF_INPUT_METHOD, has_started
from tests.e2e.test_accessibility import PHONE
from tests.e2e.test_editing import edit_button, editor
from tests.support import eventually

pytestmark = pytest.mark.asyncio(loop_scope="session")

LONG = "word " * 10_000
KEYS = 20
PAINTED = "() => new Promise((done) => requestAnimationFrame(() => setTimeout(done)))"
WARNS = "!dispatchEvent(new Event('beforeunload', { cancelable: true }))"
ADD_PLAIN = """() => {
  const plain = document.createElement("textarea");
  plain.id = "plain";
  const { font, width } = getComputedStyle(document.getElementById("composer-input"));
  Object.assign(plain.style, { font, width, height: "220px", position: "fixed", top: "0", left: "0" });
  document.body.append(plain);
}"""


async def height(field: Locator) -> float:
    box = await field.bounding_box()
    assert box is not None
    return float(box["height"])


async def work_of(session: CDPSession) -> Counter[str]:
    """What the tab has done so far, by the names of Chromium."""
    metrics = (await session.send("Performance.getMetrics"))["metrics"]
    return Counter({each["name"]: each["value"] for each in metrics})


async def work_of_keys(field: Locator, session: CDPSession) -> list[Counter[str]]:
    """Type behind a long text; return what each key has cost."""
    await field.fill(LONG)
    await field.press("Control+End")
    await field.page.evaluate(PAINTED)
    work = [await work_of(session)]
    for _ in range(KEYS):
        await field.press("a")
        await field.page.evaluate(PAINTED)
        work.append(await work_of(session))
    await field.fill("")
    return [after - before for before, after in pairwise(work)]


def fastest_layout(keys: list[Counter[str]]) -> float:
    return min(filter(None, (key["LayoutDuration"] for key in keys)))


async def test_field_grows_with_its_text_to_a_bound_and_shrinks_again(browser_user: BrowserUser):
    chat = await browser_user.start_conversation()
    empty = await height(chat.composer)
    await chat.composer.fill("one\ntwo\nthree")
    three = await height(chat.composer)
    await chat.composer.fill("line\n" * 30)
    most = await height(chat.composer)
    await chat.composer.fill(LONG)
    assert empty < three < most == await height(chat.composer)
    await chat.composer.fill("")
    assert await height(chat.composer) == empty
    await chat.page.set_viewport_size(PHONE)
    assert await height(chat.composer) == empty  # the placeholder has one line there, too


ROOM_LEFT = """field => {
  const { font, paddingLeft, paddingRight } = getComputedStyle(field);
  const pen = document.createElement("canvas").getContext("2d");
  pen.font = font;
  const needed = pen.measureText(field.placeholder).width;
  return field.clientWidth - parseFloat(paddingLeft) - parseFloat(paddingRight) - needed;
}"""


@pytest.mark.parametrize("language", ["en", "de"])
async def test_advice_in_the_empty_field_is_not_cut_on_a_phone(open_browser, site, language: str):
    person = await open_browser(site)
    cookie = {"name": "django_language", "value": language, "url": site.url}
    chat = await person.start_conversation()
    await person.context.add_cookies([cookie])
    await chat.page.reload()
    await chat.page.set_viewport_size(PHONE)
    field = chat.page.locator("#composer-input")
    assert await field.evaluate(ROOM_LEFT) >= 0
    title = chat.page.locator("#title")
    assert await title.evaluate("title => title.clientWidth") >= 80
    await field.fill("within 30min wait 600")
    await field.press("Enter")
    await expect(chat.cancel_turn).to_be_visible()  # the button beside the field says "Queue" now
    await expect(field).to_be_empty()
    assert await field.evaluate(ROOM_LEFT) >= 0
    await chat.cancel_turn.click()
    await chat.has_ended()


OWN_ADVICE = "Ask for a delivery, an invoice or a bouquet; or send a photo of the flowers that you would like"
IS_CUT = "field => field.scrollWidth > field.clientWidth || field.scrollHeight > field.clientHeight"


async def test_long_advice_of_an_agent_is_read_whole_on_a_phone(browser_user: BrowserUser):
    chat = await browser_user.start_conversation()
    await chat.page.set_viewport_size(PHONE)
    empty = await height(chat.composer)
    await chat.composer.evaluate("(field, advice) => { field.placeholder = advice; }", OWN_ADVICE)
    assert not await chat.composer.evaluate(IS_CUT)
    assert await height(chat.composer) > empty
    await chat.composer.fill("x")
    assert await height(chat.composer) == empty


async def test_key_behind_a_long_text_costs_no_more_layout_than_in_a_plain_field(
    browser_user: BrowserUser,
):
    chat = await browser_user.start_conversation()
    await chat.page.evaluate(ADD_PLAIN)
    session = await chat.page.context.new_cdp_session(chat.page)
    await session.send("Performance.enable")
    plain_keys = await work_of_keys(chat.page.locator("#plain"), session)
    our_keys = await work_of_keys(chat.composer, session)
    later_keys = await work_of_keys(chat.page.locator("#plain"), session)
    plain, ours = sum(plain_keys, Counter()), sum(our_keys, Counter())
    # Chromium measures a layout by the clock. So the fastest key counts: a busy machine has not interrupted it. The
    # machine may have become slower meanwhile.
    slower = max(fastest_layout(plain_keys), fastest_layout(later_keys))
    assert fastest_layout(our_keys) < 2 * slower
    assert ours["LayoutCount"] < plain["LayoutCount"] + KEYS / 2
    # One for the button and the field; the rest of the page is not styled anew.
    assert ours["RecalcStyleCount"] < plain["RecalcStyleCount"] + 2 * KEYS


async def test_long_draft_survives_a_reload_right_after_its_last_key(browser_user: BrowserUser):
    chat = await browser_user.start_conversation()
    await chat.composer.fill(LONG)
    await chat.composer.press("Control+End")
    await chat.composer.press("x")
    await chat.page.reload()
    await expect(chat.composer).to_have_value(f"{LONG}x")


async def test_a_link_that_does_not_lead_away_leaves_the_warning_of_unsent_text(
    browser_user: BrowserUser,
):
    chat = await browser_user.start_conversation()
    await chat.composer.fill("say Unsent.")
    link = chat.page.get_by_role("link", name="All conversations").last
    async with browser_user.context.expect_page() as opened:
        await link.click(modifiers=["ControlOrMeta"])
    await (await opened.value).close()
    assert await chat.page.evaluate(WARNS)
    await chat.page.route(browser_user.site.url + "/", lambda route: route.fulfill(status=204))
    await link.click()
    await eventually(lambda: chat.page.evaluate(WARNS))
    await expect(chat.composer).to_have_value("say Unsent.")


async def test_keys_of_an_input_method_send_and_cancel_nothing(browser_user: BrowserUser):
    chat = await browser_user.start_conversation()
    await chat.say("say one")
    await chat.has_ended()
    await edit_button(chat, "say one").click()
    await chat.say("within 30min wait 600")
    await has_started(chat.cards.last)
    await chat.composer.fill("say Later.")
    search = chat.page.locator("#conversation-search")
    for field in (chat.composer, editor(chat), search):
        for key in ("Enter", "Escape"):
            assert await field.evaluate(KEY_OF_INPUT_METHOD, key)
    await chat.is_painted()
    await expect(chat.composer).to_have_value("say Later.")
    await expect(editor(chat)).to_have_value("say one")
    await expect(chat.cancel_turn).to_be_enabled()
    await has_started(chat.cards.last)
    await chat.cancel_turn.click()
    await chat.has_ended()


async def test_long_text_runs_in_the_direction_of_its_first_letter(browser_user: BrowserUser):
    chat = await browser_user.start_conversation()
    direction = "field => getComputedStyle(field).direction"
    for word, expected in (("word ", "ltr"), ("\u05e9\u05dc\u05d5\u05dd ", "rtl")):
        await chat.composer.fill(word * 2_000)
        await expect(chat.composer).to_have_attribute("data-full", "")
        assert await chat.composer.evaluate(direction) == expected
