"""A server that fails at what a person asks for. The page asks again by itself, and says no more than is true."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest
from playwright.async_api import Locator, expect

from tests.e2e.chat import Chat, has_started
from tests.e2e.site import Site
from tests.e2e.test_accessibility import check

pytestmark = pytest.mark.asyncio(loop_scope="session")

TROUBLE = "The server has a problem. This page keeps trying."


@contextmanager
def refusing(site: Site, table: str) -> Iterator[None]:
    """Let the database take no new row of a table for as long as the block lasts."""
    with closing(sqlite3.connect(site.var / "db.sqlite3", timeout=20)) as database:
        database.execute(
            f"CREATE TRIGGER refuse BEFORE INSERT ON {table}"
            " BEGIN SELECT RAISE(ABORT, 'refused on purpose'); END"
        )
        database.commit()
        try:
            yield
        finally:
            database.execute("DROP TRIGGER refuse")
            database.commit()


def notice(chat: Chat) -> Locator:
    """Return the line above the transcript that says what is wrong."""
    return chat.page.locator("#notice").get_by_text(TROUBLE)


async def test_a_cancel_that_meets_a_server_error_is_asked_for_again_until_it_is_true(
    own_site, open_browser
):
    person = await open_browser(own_site)
    chat = await person.start_conversation()
    await chat.say("within 30min wait 600")
    await expect(chat.cards).to_have_count(1)
    again = chat.page.get_by_role("button", name="Cancel again")
    with refusing(own_site, "turns_operation"):
        await chat.cancel_turn.click()
        await expect(again).to_be_enabled()
        await check(chat.page)
        await again.click()
        await expect(chat.running_bar).to_be_visible()
    await expect(chat.ending("cancelled")).to_be_visible()
    await chat.has_ended()
    await expect(notice(chat)).to_be_hidden()


async def test_a_message_that_meets_a_server_error_is_sent_again_and_shown_once(
    own_site, open_browser
):
    person = await open_browser(own_site)
    chat = await person.start_conversation()
    with refusing(own_site, "turns_turn"):
        await chat.say("say Hello again.")
        await expect(notice(chat)).to_be_visible()
        await expect(chat.page.get_by_text("Sending…")).to_be_visible()
        await expect(chat.composer).to_have_value("")
    await expect(chat.answers.last).to_contain_text("Hello again.")
    await chat.has_ended()
    await expect(chat.sent).to_have_count(1)
    await chat.page.reload()
    await expect(chat.sent).to_have_count(1)
    await expect(chat.answers).to_have_count(1)


async def test_a_cancel_that_waits_for_a_locked_database_says_that_it_stops(own_site, open_browser):
    person = await open_browser(own_site)
    chat = await person.start_conversation()
    await chat.say("within 30min wait 600")
    await has_started(chat.card("seconds: 600"))
    with closing(sqlite3.connect(own_site.var / "db.sqlite3", timeout=20)) as database:
        database.execute("BEGIN IMMEDIATE")
        await chat.cancel_turn.click()
        await expect(chat.cancel_turn).to_contain_text("Stopping…")
        await expect(chat.ending("cancelled")).to_be_hidden()
        database.rollback()
    await expect(chat.ending("cancelled")).to_be_visible()
    await chat.has_ended()
