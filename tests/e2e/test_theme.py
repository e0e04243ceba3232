"""The choice of colours: light, dark, or the system's. The browser keeps it, and it is there with the first paint."""

import pytest
from playwright.async_api import Page, expect

pytestmark = pytest.mark.asyncio(loop_scope="session")

LIGHT, DARK = "rgb(255, 255, 255)", "rgb(13, 17, 23)"
# Each frame that the browser draws, from the first on: what the ground of the page is.
WATCH_FRAMES = """
    window.grounds = [];
    const watch = () => {
        if (document.body) window.grounds.push(getComputedStyle(document.body).backgroundColor);
        requestAnimationFrame(watch);
    };
    requestAnimationFrame(watch);
"""
HAS_DRAWN = "() => window.grounds?.length > 2"

HAS_SHAPE = """element => {
  const style = getComputedStyle(element);
  const isOf = (colour) => colour !== getComputedStyle(document.body).backgroundColor && !/^rgba.*, 0\\)$/.test(colour);
  return isOf(style.backgroundColor) || (style.borderTopStyle !== "none" && isOf(style.borderTopColor));
}"""

HAS_SHARE = (
    "() => document.querySelector('.call-bar:not([hidden])')?.getBoundingClientRect().width > 1"
)
IS_DRAWN = (
    "sign => getComputedStyle(sign).stroke !== getComputedStyle(document.body).backgroundColor"
)


async def ground(page: Page) -> str:
    return str(await page.evaluate("getComputedStyle(document.body).backgroundColor"))


def choice(page: Page):
    return page.get_by_label("Theme")


async def test_a_choice_holds_for_every_page_of_the_browser_from_the_first_paint_on(
    open_browser, site
):
    person = await open_browser(site, color_scheme="light")
    chat = await person.start_conversation()
    assert await ground(chat.page) == LIGHT
    other = await person.open("/")
    await choice(chat.page).select_option("Dark")
    assert await ground(chat.page) == DARK
    await expect(choice(other)).to_have_value("dark")  # a tab that was open before
    assert await ground(other) == DARK
    await person.add_script(WATCH_FRAMES)
    for page in (chat.page, other):
        await page.reload()
        await page.wait_for_function(HAS_DRAWN)
        assert set(await page.evaluate("window.grounds")) == {DARK}
        await expect(choice(page)).to_have_value("dark")
    assert await chat.page.locator("meta[name=theme-color][media=all]").get_attribute(
        "content"
    ) == ("#0d1117")


async def test_without_a_choice_the_colours_are_those_of_the_system(open_browser, site):
    person = await open_browser(site, color_scheme="dark")
    page = await person.open("/")
    await expect(choice(page)).to_have_value("auto")
    assert await ground(page) == DARK
    await page.emulate_media(color_scheme="light")
    assert await ground(page) == LIGHT
    await choice(page).select_option("Dark")
    await choice(page).select_option("System")
    assert await ground(page) == LIGHT


async def test_a_kept_choice_that_nobody_offers_counts_as_none(open_browser, site):
    person = await open_browser(site, color_scheme="dark")
    page = await person.open("/")
    await page.evaluate("localStorage.setItem('theme', '\"><script>alert(1)</script>')")
    await page.reload()
    await expect(choice(page)).to_have_value("auto")
    assert await ground(page) == DARK


async def test_the_admin_has_the_same_colours(open_browser, site):
    person = await open_browser(site, user="admin", color_scheme="light")
    page = await person.open("/")
    await choice(page).select_option("Dark")
    await page.goto(f"{site.url}/admin/")
    await expect(page.locator("html")).to_have_attribute("data-theme", "dark")


@pytest.mark.parametrize("choose", ["Light", "Dark"])
async def test_forced_colours_stay_those_of_the_system(open_browser, site, choose: str):
    person = await open_browser(site, forced_colors="active", color_scheme="dark")
    chat = await person.start_conversation()
    forced = await ground(chat.page)
    await choice(chat.page).select_option(choose)
    await choice(chat.page).focus()
    assert await ground(chat.page) == forced
    outline = await chat.page.locator(".theme").evaluate(
        "box => getComputedStyle(box).outlineStyle"
    )
    assert outline == "solid"


async def test_forced_colours_keep_what_a_background_tells_otherwise(open_browser, site):
    person = await open_browser(site, forced_colors="active")
    chat = await person.start_conversation()
    await chat.say("within 30min wait 600.2")
    await expect(chat.running_bar).to_be_visible()
    listed = await person.open("/")
    for shape in (
        chat.page.locator(".sidebar-link[aria-current]"),
        chat.sent.locator(".message-text"),
        chat.running_bar.locator(".dot"),
        chat.cards.locator(".call-dot").first,
        chat.page.locator("#connection .dot"),
        listed.locator(".mark:visible > .mark-shape").first,
    ):
        assert await shape.evaluate(HAS_SHAPE), shape
    await chat.cancel_turn.click()
    await chat.has_ended()


async def test_forced_colours_keep_questions_queued_messages_and_ends(open_browser, site):
    person = await open_browser(site, forced_colors="active")
    chat = await person.start_conversation()
    page = chat.page
    await chat.say('within 30min wait 500\nread nowhere.txt\ncall list_files {"path": "."}')
    await expect(chat.question).to_be_visible()
    await chat.say("say Later.")
    await expect(chat.queue).to_have_count(1)
    await chat.say("stop it or not")
    await expect(page.locator("#stop-question")).to_be_visible()
    await page.wait_for_function(HAS_SHARE)
    for shape in (
        chat.question,
        chat.queue,
        page.locator("#stop-question"),
        page.locator("#stop-question-stop"),
        chat.running_bar,
        chat.running_bar.locator(".dot"),
        chat.card("seconds: 500").locator(".call-bar"),
        page.locator(".composer"),
    ):
        assert await shape.evaluate(HAS_SHAPE), shape
    await chat.answer_stop_question(page.locator("#stop-question-stop").click)
    await chat.has_ended()
    for card in (chat.card("nowhere.txt"), chat.card("seconds: 500")):
        assert await card.locator(".call-mark > svg").evaluate(IS_DRAWN)
    await expect(chat.turn("say Later.").locator(".message-user .message-text")).to_have_css(
        "text-decoration-line", "line-through"
    )
