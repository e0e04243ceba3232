"""Work in the background is visible: who works, on what, since when. One place stops it, and says what it ended."""

import re

import pytest
from playwright.async_api import expect

from tests.e2e.chat import Chat
from tests.e2e.site import UNTIL_TOLD
from tests.e2e.test_accessibility import check

pytestmark = pytest.mark.asyncio(loop_scope="session")

WAITING = re.compile("assistant: Wait")


async def with_work(browser_user, *, agents=1):
    """Return a conversation whose turn has ended while its sub-agents go on."""
    chat = await browser_user.start_conversation()
    await chat.say("\n".join(["spawn assistant within 30min wait 600"] * agents))
    await expect(lines(chat)).to_have_count(agents)
    await expect(chat.live_turns).to_have_count(0)
    return chat


def lines(chat):
    """Return the lines of the dock, one for each sub-agent."""
    return chat.page.get_by_role("region", name="In the background").get_by_role("listitem")


async def test_the_dock_and_the_card_say_what_a_sub_agent_does_and_since_when(browser_user):
    chat = await with_work(browser_user)
    line, card = lines(chat).first, chat.cards.first
    for place in (line, card):
        await expect(place).to_contain_text(WAITING)
        await expect(place.get_by_role("timer")).to_contain_text(re.compile(r"[2-9] s"))
        await expect(place.get_by_role("link", name="Open assistant")).to_be_visible()
        await expect(place.get_by_role("button", name="Stop assistant")).to_be_enabled()
    await expect(chat.composer).to_be_enabled()
    await check(chat.page)
    await chat.page.reload()
    await expect(line).to_contain_text(WAITING)
    await expect(card).to_contain_text(WAITING)
    await line.get_by_role("link", name="Open assistant").click()
    below = Chat(chat.page)
    await expect(below.card("seconds: 600")).to_be_visible()
    await below.cancel_turn.click()
    await expect(below.ending("cancelled")).to_be_visible()


@pytest.mark.parametrize("place", ["dock", "card"])
async def test_one_sub_agent_is_stopped_while_the_other_goes_on(browser_user, place):
    chat = await with_work(browser_user, agents=2)
    where = lines(chat) if place == "dock" else chat.cards
    await where.first.get_by_role("button", name="Stop assistant").click()
    await expect(lines(chat)).to_have_count(1)
    await expect(chat.page.locator("#notice")).to_contain_text("Ended in the background: assistant")
    await expect(chat.cards.filter(has_text=WAITING)).to_have_count(1)
    await expect(chat.page.locator("#running-text")).to_have_text(
        "1 agent working in the background"
    )
    await lines(chat).first.get_by_role("button", name="Stop assistant").click()
    await expect(lines(chat)).to_have_count(0)
    await expect(chat.page.locator("#running-bar")).to_be_hidden()
    await expect(chat.composer).to_be_focused()


async def test_escape_ends_what_the_button_names_and_says_what_it_ended(browser_user):
    chat = await with_work(browser_user, agents=2)
    await expect(chat.page.get_by_role("button", name="Stop 2 agents")).to_be_visible()
    await chat.page.keyboard.press("Escape")
    await expect(lines(chat)).to_have_count(0)
    await expect(chat.page.locator("#notice")).to_contain_text("assistant")
    await chat.has_ended()


async def test_a_turn_that_is_cancelled_names_the_sub_agents_that_end_with_it(browser_user):
    chat = await browser_user.start_conversation()
    await chat.say("spawn assistant within 30min wait 600\nthen\nwithin 30min wait 601")
    await expect(lines(chat)).to_have_count(1)
    await expect(chat.cancel_turn).to_contain_text("Cancel task and 1 agent")
    await chat.page.keyboard.press("Escape")
    await expect(chat.ending("cancelled")).to_be_visible()
    await expect(lines(chat)).to_have_count(0)
    await expect(chat.page.locator("#notice")).to_contain_text("assistant")


async def test_a_typed_stop_names_the_sub_agents_that_it_ended_after_a_reload_too(browser_user):
    chat = await with_work(browser_user)
    await chat.say("stop")
    await expect(lines(chat)).to_have_count(0)
    chip = chat.page.locator(".message-command")
    for _time in range(2):
        await expect(chip).to_contain_text("Cancelled in the background: assistant.")
        await chat.page.reload()


async def test_a_report_arrives_live_and_the_line_goes(browser_user):
    chat = await browser_user.start_conversation()
    await chat.say(f"spawn assistant\n  {UNTIL_TOLD}\n  then\n  say Found it.")
    await expect(lines(chat)).to_contain_text("assistant: Run a command")
    browser_user.site.let_go()
    await expect(chat.page.locator("article.message-report")).to_contain_text("Found it.")
    await expect(lines(chat)).to_have_count(0)
    await expect(chat.cards.first).not_to_contain_text("assistant: ")
    await chat.has_ended()
