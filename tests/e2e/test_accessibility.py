"""What everybody can use: no finding of axe, nothing to scroll sideways on a phone, buttons that a finger hits."""

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Page, expect

from tests.e2e.chat import state

pytestmark = pytest.mark.asyncio(loop_scope="session")

DESKTOP = {"width": 1280, "height": 850}
PHONE = {"width": 390, "height": 844}
TARGET = 44  # px
SCROLLED_SIDEWAYS = """
    [document.scrollingElement, ...document.querySelectorAll("main, header, form, section, article, tool-call, #transcript")]
        .filter((element) => element.scrollWidth > Math.max(element.clientWidth, 1) + 1)
        .map((element) => element.outerHTML.slice(0, 100))
"""


async def check(page: Page) -> None:
    """Judge what the tab shows, on both grounds and at both widths."""
    findings = []
    for size in (DESKTOP, PHONE):
        await page.set_viewport_size(size)
        for scheme in ("light", "dark"):
            await page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            results = await Axe().run(page)
            assert results.response["passes"]
            findings += [
                (scheme, size["width"], found["id"], node["target"], node["failureSummary"])
                for found in results.response["violations"]
                for node in found["nodes"]
            ]
    assert findings == []
    assert await page.evaluate(SCROLLED_SIDEWAYS) == []
    for button in await page.get_by_role("button", name="Cancel").all():
        box = await button.bounding_box()
        assert min(box["width"], box["height"]) >= TARGET, await button.inner_text()
    await page.set_viewport_size(DESKTOP)


async def test_the_pages_around_the_chat_are_accessible(open_browser, site):
    person = await open_browser(site, user=None)
    page = await person.open("/")
    await check(page)
    await person.sign_in(page)
    await expect(page.get_by_role("heading", name="Conversations")).to_be_visible()
    await check(page)
    chat = await person.begin(page)
    await check(page)
    await chat.page.get_by_role("button", name="Keys").click()
    await check(page)


async def test_the_chat_is_accessible_while_a_turn_runs_and_afterwards(browser_user):
    chat = await browser_user.start_conversation()
    path = "/srv/" + "a-very-long-name-without-a-space" * 12
    await chat.say(f"wait 60\nwithin 200ms wait 61\nread {path}\nsay `{path}`")
    await expect(state(chat.card("seconds: 60"))).to_have_text("running")
    await expect(state(chat.card("seconds: 61"))).to_contain_text("timed out")
    for card in await chat.cards.all():
        await card.get_by_role("button", expanded=False).click()
    await check(chat.page)
    await chat.cancel_turn.click()
    await expect(chat.ending("Turn cancelled")).to_be_visible()
    await check(chat.page)
    await chat.say("help")
    await expect(chat.answers.last).to_contain_text("I understand these commands")
    await chat.has_ended()
    await check(chat.page)


async def test_a_card_that_asks_for_a_decision_is_accessible(browser_user):
    chat = await browser_user.start_conversation()
    await chat.say('call list_files {"path": "."}')
    await expect(chat.cards.last.locator(".approval")).to_be_visible()
    await check(chat.page)
    for name in ("Allow list_files once", "Deny list_files"):
        button = chat.page.get_by_role("button", name=name, exact=True)
        assert (await button.bounding_box())["height"] >= TARGET
        await button.scroll_into_view_if_needed()
    await chat.page.get_by_role("button", name="Deny list_files").click()
    await expect(state(chat.cards.last)).to_have_text("denied, did not run")
    await check(chat.page)
    await chat.has_ended()
