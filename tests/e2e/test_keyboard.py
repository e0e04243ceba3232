"""Without a mouse: Tab reaches every control and shows where it is; keys alone do what buttons do."""

import json
import re

import pytest
from playwright.async_api import Locator, Page, expect

from tests.e2e.chat import Chat, cancel_button, clock, has_started, state

pytestmark = pytest.mark.asyncio(loop_scope="session")

ASK = f"call list_files {json.dumps({'path': '.'})}"
MOST_STOPS = 300
NUMBER_CONTROLS = """() => {
  for (const one of document.querySelectorAll("[data-stop]")) delete one.dataset.stop;
  const all = document.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex='0']");
  const reachable = [...all].filter((one) => one.checkVisibility({ visibilityProperty: true }) && !one.disabled && one.tabIndex >= 0);
  for (const [number, one] of reachable.entries()) one.dataset.stop = number;
  return reachable.map((one) => one.outerHTML.slice(0, 120));
}"""
# Those that are still there: a button that leads to what is in sight now is not.
NUMBERS = """() => [...document.querySelectorAll("[data-stop]")]
  .filter((one) => one.checkVisibility({ visibilityProperty: true }) && !one.disabled)
  .map((one) => Number(one.dataset.stop))"""
# Where the focus is, and whether that can be seen: a line around the element, or around the box that it stands in.
STOP = """() => {
  const stop = document.activeElement;
  const isMarked = (one) => {
    const style = getComputedStyle(one);
    const hasLine = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0;
    return (hasLine || style.boxShadow !== "none") && one.checkVisibility({ visibilityProperty: true, opacityProperty: true });
  };
  return [Number(stop.dataset.stop ?? -1), isMarked(stop) || isMarked(stop.parentElement ?? stop)];
}"""


async def is_reached_by_tab(page: Page) -> None:
    """Go around the page until no control is left: none holds the focus, and each shows it. Lists may change meanwhile."""
    controls = await page.evaluate(NUMBER_CONTROLS)
    reached: dict[int, bool] = {}
    for _stop in range(MOST_STOPS):
        await page.keyboard.press("Tab")
        number, is_seen = await page.evaluate(STOP)
        reached[number] = is_seen
        if set(await page.evaluate(NUMBERS)) <= set(reached):
            break
    still_there = await page.evaluate(NUMBERS)
    assert [controls[number] for number in still_there if not reached.get(number)] == []


async def go_to(page: Page, target: Locator, *, back: bool = False) -> None:
    """Press Tab until the control has the focus."""
    await expect(target).to_be_visible()
    for _stop in range(MOST_STOPS):
        if await target.evaluate("one => one === document.activeElement"):
            return
        await page.keyboard.press("Shift+Tab" if back else "Tab")
    raise AssertionError(f"Tab does not lead to {target}")


async def test_tab_reaches_every_control_and_shows_where_it_is(browser_user):
    listed = await browser_user.open("/")
    await is_reached_by_tab(listed)
    chat = await browser_user.begin(listed)
    page = chat.page
    await is_reached_by_tab(page)
    await chat.say(f"within 30min wait 600\n{ASK}")
    await expect(chat.question).to_be_visible()
    await expect(chat.question.get_by_role("button", name="Allow once")).to_be_enabled()
    await chat.say("say Later.")
    await expect(chat.queue).to_have_count(1)
    await chat.card("seconds: 600").get_by_role("button", expanded=False).click()
    await chat.question.get_by_role("button", name="Deny…").click()
    await is_reached_by_tab(page)
    await chat.deny()
    await expect(chat.question).to_be_hidden()  # else Esc closes its field
    await chat.composer.press("Escape")
    await chat.has_ended()
    await is_reached_by_tab(page)


async def test_where_a_button_goes_with_its_press_the_focus_is_where_writing_goes_on(browser_user):
    chat = await browser_user.begin(await browser_user.open("/"))
    await chat.page.get_by_role("button", name="Other commands").press("Enter")
    await expect(chat.answers).to_have_count(1)
    await expect(chat.composer).to_be_focused()
    await chat.has_ended()
    await chat.page.get_by_role("button", name="Try again").press("Enter")
    await expect(chat.answers).to_have_count(2)
    await expect(chat.composer).to_be_focused()
    await chat.has_ended()
    await chat.composer.fill("x" * 60_001)
    await chat.composer.press("Enter")
    close = chat.page.get_by_role("button", name="Close this notice")
    await close.press("Enter")
    await expect(close).to_be_hidden()
    await expect(chat.composer).to_be_focused()


async def test_a_person_without_a_mouse_signs_in_talks_cancels_and_decides(open_browser, site):
    person = await open_browser(site, user=None)
    page = await person.open("/")
    keys = page.keyboard
    await go_to(page, page.get_by_label("Username"))
    await keys.type("demo")
    await keys.press("Tab")
    await keys.type(site.password("demo"))
    await keys.press("Enter")
    await go_to(page, page.get_by_role("button", name="New conversation").first)
    await keys.press("Enter")
    chat = Chat(page)
    await expect(chat.composer).to_be_focused()
    await talk(chat)
    await decide(chat)
    await tidy_up(chat)


async def talk(chat: Chat) -> None:
    """Cancel one call, give another one more time, take a message back, then end the turn."""
    page, keys = chat.page, chat.page.keyboard
    await keys.type("wait 600")
    await keys.press("Shift+Enter")
    await keys.type("within 2min wait 610")
    await keys.press("Enter")
    first, second = chat.card("seconds: 600"), chat.card("seconds: 610")
    for card in (first, second):
        await has_started(card)
    await keys.press("Alt+ArrowDown")
    await expect(first).to_be_focused()
    await keys.press("c")
    await expect(state(first)).to_contain_text("cancelled by you")
    await expect(first).to_be_focused()
    await keys.press("Alt+ArrowDown")
    await expect(second).to_be_focused()
    await go_to(page, second.get_by_role("button", name="+30 s for Wait"))
    await keys.press("Enter")
    await expect(clock(second)).to_contain_text("/ 02:30")
    await go_to(page, cancel_button(second))
    await go_to(page, second.get_by_role("button", expanded=False), back=True)
    await keys.press("Enter")
    await expect(second.locator(".call-facts")).to_contain_text("limit changed to 02:30 by you")
    await keys.press("Control+k")
    await expect(chat.composer).to_be_focused()
    await keys.type("say Later.")
    await keys.press("Enter")
    await go_to(page, chat.queue.get_by_role("button", name="Remove"), back=True)
    await keys.press("Enter")
    await expect(chat.queue).to_have_count(0)
    await expect(chat.composer).to_be_focused()
    await keys.press("Escape")
    await expect(chat.ending("cancelled")).to_be_visible()
    await chat.has_ended()


async def decide(chat: Chat) -> None:
    """Allow a call, and deny the next one with a reason."""
    page, keys = chat.page, chat.page.keyboard
    await keys.type(ASK)
    await keys.press("Enter")
    once = chat.question.get_by_role("button", name="Allow once")
    await expect(once).to_be_enabled()
    await go_to(page, once, back=True)
    await keys.press("Enter")
    await expect(chat.question).to_be_hidden()
    await expect(chat.composer).to_be_focused()
    await chat.has_ended()
    await keys.type(ASK)
    await keys.press("Enter")
    await go_to(page, chat.question.get_by_role("button", name="Deny…"), back=True)
    await keys.press("Enter")
    await keys.type("not now")
    await expect(chat.question.get_by_role("button", name="Deny: ")).to_be_enabled()
    await keys.press("Enter")
    await expect(state(chat.cards.last)).to_have_text("denied, did not run")
    await chat.has_ended()


async def tidy_up(chat: Chat) -> None:
    """Copy an answer, choose colours, look at the keys, rename the conversation and delete it."""
    page, keys = chat.page, chat.page.keyboard
    await go_to(page, page.get_by_role("button", name="Copy the answer").last, back=True)
    await keys.press("?")
    await expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()
    await keys.press("Escape")
    await go_to(page, page.get_by_label("Theme"), back=True)
    await keys.press("End")
    await expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    opener = page.get_by_role("button", name=re.compile("^Options for “wait 600 within 2min"))
    await go_to(page, opener, back=True)
    await keys.press("Enter")
    await expect(page.get_by_role("menuitem", name="Rename")).to_be_focused()
    await keys.press("Enter")
    await keys.press("Control+a")
    await keys.type("By keys alone")
    await keys.press("Enter")
    await expect(page.locator("#title")).to_have_text("By keys alone")
    await go_to(
        page, page.get_by_role("button", name=re.compile("^Options for “By keys")), back=True
    )
    await keys.press("Enter")
    await keys.press("ArrowUp")
    await keys.press("Enter")
    dialog = page.get_by_role("dialog", name="Delete this conversation?")
    await go_to(page, dialog.get_by_role("button", name="Delete", exact=True))
    await keys.press("Enter")
    await expect(page.get_by_role("heading", name="Conversations")).to_be_visible()


async def test_the_first_tab_leads_past_the_list_to_the_conversation(browser_user):
    chat = await browser_user.start_conversation()
    skip = chat.page.get_by_role("link", name="Skip to the conversation")
    await chat.page.evaluate("document.body.tabIndex = -1; document.body.focus()")
    await chat.page.keyboard.press("Tab")
    await expect(skip).to_be_focused()
    await expect(skip).to_be_in_viewport(ratio=1)
    await chat.page.keyboard.press("Enter")
    await expect(chat.transcript).to_be_focused()
