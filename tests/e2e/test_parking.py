"""A parked conversation: the page says so, takes no message, and has the button that lets it go on."""

import sqlite3
from uuid import UUID

import pytest
from playwright.async_api import expect

from tests.e2e.test_accessibility import check

pytestmark = pytest.mark.asyncio(loop_scope="session")


def park(site, address: str) -> None:
    """Do to a conversation what three deaths of its process do."""
    conversation_id = UUID(address.rstrip("/").rpartition("/")[2]).hex
    with sqlite3.connect(site.var / "db.sqlite3", timeout=20) as database:
        database.execute(
            "UPDATE turns_conversation SET parked_at = ?, parked_reason = ? WHERE id = ?",
            ("2026-01-01 00:00:00", "owner_deaths", conversation_id),
        )
    database.close()


async def test_a_parked_conversation_goes_on_by_its_button_and_gives_a_refused_message_back(
    browser_user,
):
    chat = await browser_user.start_conversation()
    await chat.say("say Hello.")
    await expect(chat.answers).to_contain_text("Hello.")
    await chat.has_ended()
    notice = chat.page.get_by_role("region", name="Paused conversation")
    await expect(notice).to_be_hidden()
    park(browser_user.site, chat.page.url)
    await chat.page.reload()
    await expect(notice).to_be_visible()
    await chat.say("say Anybody?")
    await expect(chat.page.locator("#notice-text")).to_contain_text("This conversation is paused")
    await expect(chat.composer).to_have_value("say Anybody?")
    await check(chat.page)
    other = await browser_user.join(chat)
    await notice.get_by_role("button", name="Resume").dblclick()
    await expect(notice).to_be_hidden()
    await expect(other.page.get_by_role("region", name="Paused conversation")).to_be_hidden()
    await chat.composer.press("Enter")
    await expect(chat.answers.last).to_contain_text("Anybody?")
    await chat.has_ended()
