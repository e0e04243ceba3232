"""A message is edited and sent again. What it replaces is out of sight, in every tab and after a reload."""

import os
from pathlib import Path

import pytest
from playwright.async_api import Locator, Page, expect

from tests.e2e.browser_user import BrowserUser
from tests.e2e.chat import Chat
from tests.e2e.test_accessibility import check

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def picture(page: Page, name: str) -> None:
    """Keep a picture for whoever wants to look."""
    if directory := os.environ.get("PICTURES"):
        await page.screenshot(path=Path(directory) / f"{name}.png")


def edit_button(chat: Chat, said: str) -> Locator:
    return chat.turn(said).get_by_role("button", name="Edit and send again")


def editor(chat: Chat) -> Locator:
    return chat.page.get_by_label("Your edited message")


async def talk(browser_user: BrowserUser, *lines: str) -> Chat:
    chat = await browser_user.start_conversation()
    for line in lines:
        await chat.say(line)
        await chat.has_ended()
    await expect(chat.answers).to_have_count(len(lines))
    return chat


async def shows(chat: Chat, wanted: list[str]) -> None:
    """Wait until a person sees just these messages and answers."""
    await expect(chat.page.locator(".turn:not([hidden]) .message-text")).to_have_text(wanted)


async def test_an_edited_message_takes_the_place_of_all_behind_it_in_every_tab(
    browser_user: BrowserUser,
):
    chat = await talk(browser_user, "say one", "say two", "say three")
    other = await browser_user.join(chat)
    await expect(other.answers).to_have_count(3)
    await edit_button(chat, "say two").focus()
    await chat.page.keyboard.press("Enter")
    await expect(editor(chat)).to_be_focused()
    await expect(editor(chat)).to_have_value("say two")
    await expect(
        chat.page.get_by_text("What the tools did is not undone.", exact=False)
    ).to_be_visible()
    await check(chat.page)
    await picture(chat.page, "editing")
    await editor(chat).fill("say two, but better")
    await editor(chat).press("Enter")
    await chat.has_ended()
    wanted = ["say one", "one", "say two, but better", "two, but better"]
    for tab in (chat, other):
        await expect(tab.turn("say two, but better").locator(".message-agent")).to_have_count(1)
        await tab.has_ended()
        await shows(tab, wanted)
    await expect(editor(chat)).to_have_count(0)
    await chat.page.reload()
    versions = chat.page.get_by_role("button", name="1 earlier version")
    await expect(versions).to_have_attribute("aria-expanded", "false")
    await shows(chat, wanted)
    await versions.click()
    await expect(versions).to_have_attribute("aria-expanded", "true")
    await shows(chat, [*wanted[:2], "say two", "two", "say three", "three", *wanted[2:]])
    await expect(edit_button(chat, "say two")).to_have_count(0)
    await check(chat.page)
    await picture(chat.page, "versions")
    await versions.click()
    await shows(chat, wanted)


async def test_the_editor_is_closed_by_esc_and_keeps_its_text_while_something_runs(
    browser_user: BrowserUser,
):
    chat = await talk(browser_user, "say one")
    other = await browser_user.join(chat)
    await edit_button(chat, "say one").click()
    await editor(chat).press("Escape")
    await expect(editor(chat)).to_have_count(0)
    await expect(edit_button(chat, "say one")).to_be_focused()
    await edit_button(chat, "say one").click()
    await editor(chat).fill("say more")
    await other.say("within 30min wait 600")
    await expect(chat.cancel_turn).to_be_visible()
    await expect(edit_button(other, "say one")).to_be_hidden()
    await editor(chat).press("Enter")
    await expect(chat.page.locator("#notice-text")).to_contain_text(
        "Send your edit when it has finished."
    )
    await expect(editor(chat)).to_have_value("say more")
    await editor(chat).press("Escape")
    await expect(chat.cancel_turn).to_be_enabled()
    await chat.cancel_turn.click()
    await chat.has_ended()


async def test_what_was_edited_offline_is_kept_over_a_reload_and_replaces_once(
    browser_user: BrowserUser,
):
    browser_user.expect_connection_loss()
    chat = await talk(browser_user, "say one")
    other = await browser_user.join(chat)
    await expect(other.answers).to_have_count(1)
    await chat.page.evaluate("WebSocket.prototype.send = () => {}")
    await edit_button(chat, "say one").click()
    await editor(chat).fill("say more")
    await chat.page.get_by_role("button", name="Send", exact=True).first.dblclick()
    await expect(chat.page.locator(".outbox article")).to_have_count(1)
    await chat.page.reload()
    await chat.has_ended()
    await expect(chat.turn("say more").locator(".message-agent")).to_have_count(1)
    await shows(chat, ["say more", "more"])
    await expect(other.turn("say more").locator(".message-agent")).to_have_count(1)
    await shows(other, ["say more", "more"])


async def test_that_something_goes_on_is_not_said_after_its_end(browser_user: BrowserUser):
    chat = await talk(browser_user, "say one")
    other = await browser_user.join(chat)
    await edit_button(chat, "say one").focus()
    await chat.page.keyboard.press("Enter")
    await other.say("within 30min wait 600")
    await expect(chat.cancel_turn).to_be_visible()
    await editor(chat).press("Enter")
    busy = chat.page.get_by_text("The agent is still working here.").filter(visible=True)
    await expect(busy).to_have_count(2)  # the notice and the line under the composer
    await other.cancel_turn.click()
    await chat.has_ended()
    await expect(busy).to_have_count(0)
    await expect(editor(chat)).to_have_value("say one")
