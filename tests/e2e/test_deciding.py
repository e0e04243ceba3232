"""A person decides on a call in the page: what is shown, the buttons, the keys, two tabs, and what stands afterwards."""

import json

import pytest
from playwright.async_api import Locator, expect

from tests.e2e.chat import Chat, state

pytestmark = pytest.mark.asyncio(loop_scope="session")

PATH = "a <b>bold</b> path\u202e\u200b \u3164p\u0430th"
SHOWN = "a <b>bold</b> path\\u{202e}\\u{200b} \\u{3164}p\\u{0430}th"


def ask(path: str = ".") -> str:
    """A message that makes the agent call a tool which is asked about."""
    return f"call list_files {json.dumps({'path': path})}"


def button(card: Locator, name: str) -> Locator:
    return card.get_by_role("button", name=name, exact=True)


async def asked(chat: Chat, path: str = ".") -> Locator:
    """Let the agent call the tool, and return the card that asks."""
    await chat.say(ask(path))
    card = chat.cards.last
    await expect(card.locator(".approval")).to_be_visible()
    return card


async def test_the_card_shows_all_that_would_run_and_nothing_of_it_is_html(browser_user):
    chat = await browser_user.start_conversation()
    card = await asked(chat, PATH)
    await expect(state(card)).to_have_text("waiting for a decision")
    await expect(card.locator(".approval dd pre")).to_have_text(SHOWN)
    await expect(card.locator(".call-input")).to_have_text(SHOWN)
    await expect(card.locator(".approval b")).to_have_count(0)
    await expect(card).to_contain_text("list_files wants to run. Allow it?")
    await expect(card).to_contain_text("its clock and the turn’s stand still")
    await expect(card.locator(".approval-time")).to_contain_text("within 09:")
    await expect(chat.running_bar).to_contain_text("Waiting for your decision")
    await expect(chat.page.locator("#status")).to_be_empty()
    await expect(card.locator(".approval-description")).to_be_visible()
    await card.get_by_text("About this tool").click()
    await expect(card.locator(".approval-description")).to_be_hidden()
    assert (await chat.page.title()).startswith("(1) Waits for you · ")
    await expect(chat.page.locator("#alert")).to_have_text("list_files waits for your decision.")
    await button(card, "Deny list_files").click()
    await chat.has_ended()
    assert "Waits" not in await chat.page.title()


async def test_a_no_with_a_reason_is_shown_and_survives_a_reload(browser_user):
    chat = await browser_user.start_conversation()
    card = await asked(chat)
    await card.get_by_label("Or deny it (the agent reads your reason)").fill("not <i>now</i>")
    await button(card, "Deny list_files").click()
    await expect(state(card)).to_have_text("denied, did not run")
    await expect(card.locator(".call-verdict")).to_have_text("Denied by you: not <i>now</i>")
    await chat.has_ended()
    await chat.page.reload()
    await expect(chat.cards.last.locator(".call-verdict")).to_have_text(
        "Denied by you: not <i>now</i>"
    )


async def test_a_yes_for_the_conversation_is_asked_for_once(browser_user):
    chat = await browser_user.start_conversation()
    card = await asked(chat)
    await button(card, "Allow list_files for this conversation").click()
    await expect(card.locator(".call-verdict")).to_have_text("Allowed by you for this conversation")
    await chat.has_ended()
    await expect(card).to_have_attribute("data-status", "succeeded")
    await chat.say(ask("."))
    await expect(chat.cards).to_have_count(2)
    await chat.has_ended()
    await expect(chat.cards.last).to_have_attribute("data-status", "succeeded")


async def test_a_reload_and_a_second_tab_show_the_question_and_the_answer(browser_user):
    chat = await browser_user.start_conversation()
    await asked(chat)
    await chat.page.reload()
    card = chat.cards.last
    await expect(card.locator(".approval-time")).to_contain_text("within 09:")
    tab = Chat(await browser_user.context.new_page())
    await tab.page.goto(chat.page.url)
    other = tab.cards.last
    await button(other, "Allow list_files once").click()
    for seen in (card, other):
        await expect(seen.locator(".approval")).to_be_hidden()
        await expect(seen.locator(".call-verdict")).to_have_text("Allowed by you")
    await chat.has_ended()
    await tab.page.close()


async def test_it_can_be_decided_with_the_keyboard_and_the_focus_is_not_lost(browser_user):
    chat = await browser_user.start_conversation()
    card = await asked(chat)
    await chat.page.keyboard.press("Alt+ArrowUp")
    await expect(card).to_be_focused()
    once = button(card, "Allow list_files once")
    for _ in range(8):
        await chat.page.keyboard.press("Tab")
        if await once.evaluate("button => button === document.activeElement"):
            break
    await expect(once).to_be_focused()
    await chat.page.keyboard.press("Enter")
    await expect(card.locator(".call-verdict")).to_have_text("Allowed by you")
    await expect(card).to_be_focused()
    await chat.has_ended()


async def test_a_cancel_while_it_waits_is_no_denial(browser_user):
    chat = await browser_user.start_conversation()
    card = await asked(chat)
    await expect(card.get_by_role("button", name="Cancel list_files")).to_have_count(0)
    await card.focus()
    await chat.page.keyboard.press("c")
    await expect(state(card)).to_contain_text("cancelled by you")
    await expect(card.locator(".approval")).to_be_hidden()
    await chat.has_ended()
