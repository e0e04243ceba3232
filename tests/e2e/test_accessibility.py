"""What everybody can use: no finding of axe, nothing to scroll sideways on a phone, buttons that a finger hits."""

import pytest
from playwright.async_api import Page, expect

from tests.e2e.axe import COLOURS, UP_TO_AA, findings
from tests.e2e.chat import has_started, state

pytestmark = pytest.mark.asyncio(loop_scope="session")

DESKTOP = {"width": 1280, "height": 850}
PHONE = {"width": 390, "height": 844}
MAGNIFIED = {"width": 320, "height": 256}  # 1280 × 1024 at 400 %
TARGET = 44  # px
PLANT = """
    const text = document.createElement("p");
    text.textContent = "hard to read";
    Object.assign(text.style, { color: "#777", background: "#888" });
    document.querySelector("main").append(text, document.createElement("button"));
"""
SCROLLED_SIDEWAYS = """
    [document.scrollingElement, ...document.querySelectorAll("main, header, form, section, article, tool-call, #transcript, .dock, .question-buttons")]
        .filter((element) => element.scrollWidth > Math.max(element.clientWidth, 1) + 1)
        .map((element) => element.outerHTML.slice(0, 100))
"""


async def check(page: Page) -> None:
    """Judge what the tab shows, on both grounds and at both widths."""
    found = []
    for size in (DESKTOP, PHONE):
        await page.set_viewport_size(size)
        for scheme, rules in (("light", UP_TO_AA), ("dark", COLOURS)):
            await page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            found += [(scheme, size["width"], *one) for one in await findings(page, rules)]
    assert found == []
    assert await page.evaluate(SCROLLED_SIDEWAYS) == []
    for button in await page.get_by_role("button", name="Cancel").all():
        box = await button.bounding_box()
        assert min(box["width"], box["height"]) >= TARGET, await button.inner_text()
    await page.set_viewport_size(DESKTOP)


async def test_a_planted_fault_is_found(browser_user):
    page = await browser_user.open("/")
    await page.evaluate(PLANT)
    assert {"button-name", "color-contrast"} <= {
        rule for rule, *_ in await findings(page, UP_TO_AA)
    }
    assert {rule for rule, *_ in await findings(page, COLOURS)} == {"color-contrast"}


async def test_the_pages_around_the_chat_are_accessible(open_browser, site):
    person = await open_browser(site, user=None)
    page = await person.open("/")
    await check(page)
    await person.sign_in(page)
    await expect(page.get_by_role("heading", name="Conversations")).to_be_visible()
    await check(page)
    chat = await person.begin(page)
    await check(page)
    await chat.page.get_by_role("button", name="Keyboard shortcuts").click()
    await check(page)


async def test_the_chat_is_accessible_while_a_turn_runs_and_afterwards(browser_user):
    chat = await browser_user.start_conversation()
    path = "/srv/" + "a-very-long-name-without-a-space" * 12
    await chat.say(f"within 30min wait 600\nwithin 200ms wait 61\nread {path}\nsay `{path}`")
    await has_started(chat.card("seconds: 600"))
    await expect(state(chat.card("seconds: 61"))).to_contain_text("timed out")
    for card in await chat.cards.all():
        await card.get_by_role("button", expanded=False).click()
    await check(chat.page)
    await chat.cancel_turn.click()
    await expect(chat.ending("cancelled")).to_be_visible()
    await check(chat.page)
    await chat.say("help")
    await expect(chat.answers.last).to_contain_text("I understand these commands")
    await chat.has_ended()
    await check(chat.page)


async def test_every_other_state_of_the_chat_is_accessible(browser_user):
    chat = await browser_user.start_conversation()
    page = chat.page
    await chat.say("list")
    await expect(chat.question).to_be_visible()
    await check(page)
    await chat.question.get_by_role("button", name="Deny…", exact=True).click()
    await check(page)
    await chat.deny("Not now")
    await chat.has_ended()
    await chat.say("within 30min wait 600")
    await has_started(chat.card("seconds: 600"))
    await chat.say("help")
    await expect(chat.queue).to_have_count(1)
    await page.get_by_role("button", name="More ways to cancel").click()
    await check(page)
    await page.keyboard.press("Escape")
    await chat.composer.fill("stop it or not")
    await chat.composer.press("Enter")
    await expect(page.get_by_text("Stop the task?")).to_be_visible()
    await check(page)
    await chat.answer_stop_question(page.locator("#stop-question-stop").click)
    await chat.has_ended()
    browser_user.expect_connection_loss()
    await browser_user.context.set_offline(True)
    await expect(page.locator("#banner")).to_be_visible()
    await chat.say("sent later")
    await check(page)
    await browser_user.context.set_offline(False)
    await expect(chat.connection).to_have_attribute("data-status", "online")
    await chat.has_ended()


async def test_failed_turn_earlier_messages_lists_and_menus_are_accessible(
    own_site_of, open_browser
):
    site = own_site_of(TURNS_STEP_LIMIT="1", TURNS_SNAPSHOT_MESSAGES="6")
    person = await open_browser(site)
    chat = await person.start_conversation()
    page = chat.page
    for text in ("say one", "say two", "say three", "wait 0"):
        await chat.say(text)
        await chat.has_ended()
    await expect(chat.ending("failed")).to_be_visible()
    await check(page)
    await page.reload()
    show = page.get_by_role("button", name="Show earlier messages")
    await expect(show).to_be_visible()
    await chat.transcript.evaluate("log => { log.scrollTop = 0; }")
    await check(page)
    await show.click()
    await expect(chat.sent).to_have_count(4)
    await check(page)
    listed = await person.open("/")
    for tab in (page, listed):
        await tab.get_by_label("Search conversations").fill("say")
        await check(tab)
        opener = tab.get_by_role("button", name="Options for").first
        await opener.focus()
        await opener.press("Enter")
        await expect(tab.get_by_role("menu")).to_be_visible()
        await check(tab)
        if not await tab.get_by_role("menu").is_visible():  # it went with the list beside the chat
            await opener.press("Enter")
        await tab.get_by_role("menuitem", name="Rename").click()
        await expect(tab.get_by_role("dialog")).to_be_visible()
        await check(tab)


async def test_at_400_percent_most_of_the_window_is_left_to_what_is_read(browser_user):
    chat = await browser_user.start_conversation()
    page = chat.page
    await page.set_viewport_size(MAGNIFIED)
    await chat.say("within 30min wait 600")
    await has_started(chat.card("seconds: 600"))
    reading = await page.locator("#transcript").bounding_box()
    assert reading["height"] >= MAGNIFIED["height"] / 2
    assert await page.evaluate(SCROLLED_SIDEWAYS) == []
    for control in (chat.composer, chat.cancel_turn, page.locator("#cancel-more")):
        await expect(control).to_be_in_viewport(ratio=1)
        box = await control.bounding_box()
        assert min(box["width"], box["height"]) >= TARGET
    await chat.composer.fill("help")
    await expect(page.locator("#send")).to_be_in_viewport(ratio=1)
    await expect(chat.cancel_turn).to_be_in_viewport(ratio=1)
    for queued in (1, 2):
        await chat.say("say A message that waits for the turn")
        await expect(chat.queue).to_have_count(queued)
    for control in (chat.composer, chat.cancel_turn):
        await expect(control).to_be_in_viewport(ratio=1)
    await page.locator("#cancel-more").click()
    await expect(page.locator("#cancel-later")).to_be_in_viewport(ratio=1)
    await page.keyboard.press("Escape")
    await chat.cancel_turn.click()
    await chat.has_ended()


async def test_a_magnified_page_without_a_connection_has_its_controls_in_sight(browser_user):
    chat = await browser_user.start_conversation()
    page = chat.page
    await page.set_viewport_size(MAGNIFIED)
    await chat.say("within 30min wait 600")
    await has_started(chat.card("seconds: 600"))
    browser_user.expect_connection_loss()
    await browser_user.context.set_offline(True)
    await expect(page.locator("#reconnect")).to_be_in_viewport(ratio=1)
    assert await page.evaluate(SCROLLED_SIDEWAYS) == []
    for control in (page.locator("#help-open"), chat.composer, chat.cancel_turn):
        await expect(control).to_be_in_viewport(ratio=1)
    await browser_user.context.set_offline(False)
    await expect(chat.connection).to_have_attribute("data-status", "online")
    await chat.cancel_turn.click()
    await chat.has_ended()


async def test_a_magnified_question_covers_nothing_and_each_of_its_controls_is_reached(
    browser_user,
):
    chat = await browser_user.start_conversation()
    page = chat.page
    await chat.say("list")
    await chat.question.get_by_role("button", name="Deny…", exact=True).click()
    for size in (MAGNIFIED, {"width": 427, "height": 341}, {"width": 640, "height": 512}):
        await page.set_viewport_size(size)
        reading = await page.locator("#transcript").bounding_box()
        dock = await page.locator(".dock").bounding_box()
        assert reading["height"] >= 64
        assert reading["y"] + reading["height"] <= dock["y"]
        assert dock["y"] + dock["height"] <= size["height"]
        assert await page.evaluate(SCROLLED_SIDEWAYS) == []
        for control in await chat.question.locator("button:visible, input, summary").all():
            await control.scroll_into_view_if_needed()
            await expect(control).to_be_in_viewport(ratio=0.95)
        title = chat.question.locator(".question-title")
        await title.scroll_into_view_if_needed()
        await expect(title).to_be_in_viewport(ratio=0.95)
    await chat.deny()
    await chat.has_ended()
