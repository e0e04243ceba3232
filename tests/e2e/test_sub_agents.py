"""Agents that work for agents, as a person sees them: at work, on their own page, cancelled, reporting."""

import re

import pytest
from playwright.async_api import expect

from tests.e2e.chat import Chat, was_cancelled
from tests.e2e.test_accessibility import check

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_sub_agent_is_watched_and_cancelled_on_its_own_page(browser_user):
    chat = await browser_user.start_conversation("ask assistant within 30min wait 600")
    card = chat.cards.first
    await expect(card).to_contain_text("assistant: running wait")
    await card.get_by_role("link", name="Open assistant").click()
    below = Chat(chat.page)
    await expect(below.connection).to_have_attribute("data-status", "online")
    await expect(below.card("seconds: 600")).to_be_visible()
    await expect(below.composer).to_be_hidden()
    await expect(below.page.get_by_text("is working here for another agent")).to_be_visible()
    task = below.page.get_by_role("article", name=re.compile("^from the agent"))
    await expect(task).to_contain_text("within 30min wait 600")
    await expect(below.page.get_by_role("article", name=re.compile("^You"))).to_have_count(0)
    await check(below.page)
    await below.cancel_turn.click()
    await expect(below.ending("cancelled")).to_be_visible()
    await below.page.get_by_role("link", name="ask assistant within 30min wait 600").last.click()
    above = Chat(chat.page)
    await was_cancelled(above.cards.first)
    await above.has_ended()
    await expect(above.ending("cancelled")).to_be_hidden()


async def test_a_report_comes_by_itself_and_looks_like_one(browser_user):
    chat = await browser_user.start_conversation()
    await chat.say("spawn assistant\n  wait 1\n  then\n  say <b>Gold</b> **here**")
    report = chat.page.locator("article.message-report")
    await expect(report).to_contain_text("Report of assistant")
    await report.get_by_text("Its report").click()
    await expect(report).to_contain_text("<b>Gold</b>")
    await expect(report.locator("strong").last).to_have_text("here")
    await expect(chat.sent).to_have_count(1)
    await chat.has_ended()
    await chat.page.reload()
    await expect(report).to_contain_text("<b>Gold</b>")
    await expect(chat.sent).to_have_count(1)
