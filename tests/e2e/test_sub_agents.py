"""Agents that work for agents, as a person sees them: at work, on their own page, cancelled, reporting."""

import pytest
from playwright.async_api import expect

from tests.e2e.chat import Chat, state
from tests.e2e.test_accessibility import check

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_sub_agent_is_watched_and_cancelled_on_its_own_page(browser_user):
    chat = await browser_user.start_conversation()
    await chat.say("ask assistant within 30min wait 600")
    card = chat.cards.first
    await expect(card).to_contain_text("assistant: running wait")
    await card.get_by_role("link", name="Open assistant").click()
    below = Chat(chat.page)
    await expect(below.connection).to_have_text("Connected")
    await expect(below.card("seconds: 600")).to_be_visible()
    await expect(below.composer).to_be_hidden()
    await expect(below.page.get_by_text("works here for another agent")).to_be_visible()
    await check(below.page)
    await below.cancel_turn.click()
    await expect(below.ending("Turn cancelled")).to_be_visible()
    await below.page.get_by_role("link", name="ask assistant within 30min wait 600").last.click()
    above = Chat(chat.page)
    await expect(state(above.cards.first)).to_contain_text("cancelled by you")
    await above.has_ended()
    await expect(above.ending("Turn cancelled")).to_be_hidden()


async def test_a_report_comes_by_itself_and_looks_like_one(browser_user):
    chat = await browser_user.start_conversation()
    await chat.say("spawn assistant\n  wait 1\n  then\n  say <b>Gold</b>")
    report = chat.page.locator("article.message-report")
    await expect(report).to_contain_text("Report of assistant")
    await expect(report).to_contain_text("<b>Gold</b>")
    await expect(chat.sent).to_have_count(1)
    await chat.has_ended()
    await chat.page.reload()
    await expect(report).to_contain_text("<b>Gold</b>")
    await expect(chat.sent).to_have_count(1)
