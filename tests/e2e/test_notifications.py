"""Who is elsewhere learns that a long turn has ended or that a decision is wanted, by the title and by a notification."""

import re

import pytest
from playwright.async_api import expect

pytestmark = pytest.mark.asyncio(loop_scope="session")

# A headless browser never hides a page and shows no notification: these stand for what it would do.
_BROWSER = """
let isAway = false;
let held = [];
const draw = window.requestAnimationFrame.bind(window);
window.requestAnimationFrame = (paint) => (isAway ? held.push(paint) : draw(paint));
Object.defineProperty(document, "visibilityState", { get: () => (isAway ? "hidden" : "visible") });
window.go = (away) => {
  isAway = away;
  if (!isAway) for (const paint of held.splice(0)) draw(paint);
  document.dispatchEvent(new Event("visibilitychange"));
};
window.told = [];
window.asked = 0;
window.answer = "granted";
window.Notification = class extends EventTarget {
  static get permission() { return sessionStorage.getItem("permission") ?? "default"; }
  static async requestPermission() {
    window.asked += 1;
    sessionStorage.setItem("permission", window.answer);
    return window.answer;
  }
  constructor(title, { body }) {
    super();
    window.told.push([title, body]);
  }
};
"""


async def start(browser_user):
    await browser_user.add_script(_BROWSER)
    return await browser_user.start_conversation()


def button(chat):
    return chat.page.get_by_role("button", name="Notify me when a long task ends")


async def test_the_end_of_a_long_turn_changes_the_title_and_notifies_who_has_allowed_it(
    browser_user,
):
    chat = await start(browser_user)
    assert await chat.page.evaluate("asked") == 0
    await button(chat).click()
    await expect(button(chat)).to_have_attribute("aria-pressed", "true")
    assert await chat.page.evaluate("asked") == 1
    await chat.say("wait 11")
    await chat.page.evaluate("go(true)")
    await expect(chat.page).to_have_title(re.compile("^✓ wait 11"))
    [[title, body]] = await chat.page.evaluate("told")
    assert title.startswith("wait 11")
    assert body == "The answer is ready."
    await chat.page.evaluate("go(false)")
    await expect(chat.page).to_have_title(re.compile("^wait 11"))
    await chat.page.reload()
    await expect(button(chat)).to_have_attribute("aria-pressed", "true")
    assert await chat.page.evaluate("asked") == 0
    await button(chat).click()
    await expect(button(chat)).to_have_attribute("aria-pressed", "false")


async def test_a_short_turn_and_one_in_sight_disturb_nobody_and_a_question_does(
    browser_user,
):
    chat = await start(browser_user)
    await button(chat).click()
    await chat.say("wait 11")
    await chat.has_ended()
    await chat.page.evaluate("setTimeout(() => go(true), 0)")
    tab = await browser_user.join(chat)
    await tab.say("help")
    await tab.has_ended()
    await expect(chat.page).to_have_title(re.compile("^wait 11"))
    await tab.say('call list_files {"path": "."}')
    await expect(chat.page).to_have_title(re.compile(r"^\(1\) "))
    await chat.page.wait_for_function("told.length > 0")
    [[title, body]] = await chat.page.evaluate("told")
    assert title.startswith("wait 11")
    assert "List files" in body
    await tab.deny()
    await tab.has_ended()
    # How long that turn was is up to the machine.
    await expect(chat.page).to_have_title(re.compile("^(✓ )?wait 11"))


async def test_a_browser_that_refuses_is_said_and_the_button_stays_off(browser_user):
    chat = await start(browser_user)
    await chat.page.evaluate("answer = 'denied'")
    await button(chat).click()
    await expect(chat.page.locator("#alert")).to_contain_text("Notifications are blocked")
    await expect(button(chat)).to_have_attribute("aria-pressed", "false")
