"""An administrator makes an agent; a person picks it for a conversation, with scripts or without."""

import re
from contextlib import asynccontextmanager

import pytest
from playwright.async_api import expect

from tests.e2e.chat import state

pytestmark = pytest.mark.asyncio(loop_scope="session")

PICKER = "Agent for the new conversation"


@asynccontextmanager
async def an_agent(admin, name: str, description: str):
    """Make an agent that may read files and nothing else; delete it at the end."""
    page = await admin.open("/admin/turns/agent/add/")
    await page.get_by_label("Name:").fill(name)
    await page.get_by_label("Description:").fill(description)
    await page.get_by_label("only these", exact=True).check()
    await page.get_by_label(re.compile(r"^\s*read_file ")).check()
    await page.get_by_label("Turn limit:").fill("2 min")
    await page.get_by_label("Sample messages:").fill("list\nread <b>notes</b>.txt")
    await page.get_by_label("Placeholder:").fill("Ask for a file…")
    await page.get_by_role("button", name="Save", exact=True).click()
    await expect(page.get_by_text("This applies to turns that start from now on")).to_be_visible()
    yield page
    await page.goto(f"{admin.site.url}/admin/turns/agent/")
    await page.get_by_role("link", name=name, exact=True).click()
    await page.locator(".deletelink").click()
    await page.get_by_role("button", name="Yes").click()
    await expect(page.get_by_text("deleted successfully")).to_be_visible()


async def test_a_person_picks_an_agent_that_may_do_less(open_browser, browser_user, site):
    admin = await open_browser(site, user="admin")
    async with an_agent(admin, "librarian", "Reads, and changes nothing."):
        page = await browser_user.open("/")
        picker = page.get_by_label(PICKER)
        await expect(picker).to_have_value("assistant")
        await picker.select_option(label="librarian: Reads, and changes nothing.")
        chat = await browser_user.begin(page)

        await expect(page.locator(".chat-agent")).to_have_text(re.compile("librarian"))
        await expect(page.locator(".sample")).to_have_text(["list", "read <b>notes</b>.txt"])
        await expect(page.get_by_placeholder("Ask for a file…")).to_be_visible()
        await chat.say("run date")
        await expect(state(chat.cards.first)).to_have_text("no such tool")
        await chat.has_ended()
        await page.goto(f"{site.url}/")
        await expect(page.locator(".conversation-agent").first).to_have_text(
            re.compile("librarian")
        )
    # It is gone now: there is nothing to pick, and its conversation says what to do.
    await page.get_by_role("link", name=re.compile("run date")).first.click()
    await expect(chat.connection).to_have_attribute("data-status", "online")
    await expect(page.get_by_label(PICKER)).to_have_count(0)
    await chat.say("list")
    await expect(page.locator("#notice-text")).to_contain_text("Start a new conversation")
    await expect(chat.composer).to_have_value("list")


async def test_an_agent_is_picked_without_scripts_too(open_browser, site):
    admin = await open_browser(site, user="admin")
    plain = await open_browser(site, java_script_enabled=False)
    async with an_agent(admin, "archivist", "Keeps what there is."):
        page = await plain.open("/")
        await page.get_by_label(PICKER).select_option("archivist")
        await page.get_by_role("button", name="New conversation").first.click()
        await expect(page.locator(".chat-agent")).to_have_text(re.compile("archivist"))
