"""An administrator tunes limits on the pages for that, beside a running chat."""

import re
from functools import partial

import pytest
from playwright.async_api import expect

from tests.e2e.chat import clock
from tests.e2e.test_accessibility import check
from tests.e2e.test_admin import FITS, save
from tests.support import eventually

pytestmark = pytest.mark.asyncio(loop_scope="session")

LIMITS = "/admin/governance/toolpolicy/"


async def open_row(page, tool: str) -> None:
    """Show the fields of a tool on the page of all limits."""
    await page.locator("summary").filter(has_text=re.compile(rf"\b{tool}$")).click()


async def says_that_it_is_over(page) -> bool:
    await page.reload()
    return "The temporary limit has expired." in await page.locator("#changes").inner_text()


async def take_away(page, tool: str) -> None:
    """Let the next level count again, on the page of limits that the tab shows."""
    await page.get_by_label(f"Select {tool}").check()
    await page.get_by_label("With the selected tools").select_option("reset")
    await page.get_by_role("button", name="Go").click()
    await expect(page.get_by_label(f"Total limit: {tool}")).to_have_value("")


async def test_a_change_is_reverted_on_the_page_of_its_tool(open_browser, site):
    admin = await open_browser(site, user="admin")
    page = await admin.open(LIMITS)
    await page.get_by_role("link", name="list_files", exact=True).click()
    await expect(page.get_by_role("heading", name="list_files", level=1)).to_be_visible()
    await page.get_by_label("Total limit").fill("25 s")
    await save(page, "Save")
    await page.get_by_label("Total limit").fill("15 s")
    await save(page, "Save")
    await expect(page.get_by_text("Current limits: 15 s")).to_be_visible()
    await check(page)
    await page.locator("#changes button").first.click()
    await expect(page.get_by_text("Current limits: 25 s")).to_be_visible()
    await expect(page.locator("#changes")).to_contain_text("Reverts version")
    await page.goto(f"{site.url}{LIMITS}")
    await take_away(page, "list_files")


async def test_what_a_limit_would_have_done_is_told_before_it_is_saved(
    open_browser, browser_user, site
):
    chat = await browser_user.start_conversation()
    await chat.say("wait 1.5")
    await chat.has_ended()
    admin = await open_browser(site, user="admin")
    page = await admin.open(LIMITS)
    limit = page.get_by_label("Total limit: wait")
    told = page.locator("[data-told=wait]")
    await open_row(page, "wait")
    await limit.fill("1 s")
    await expect(told).to_contain_text("had succeeded")  # nothing was pressed
    await limit.fill("1 ")
    await expect(told).to_have_text("")
    preview = page.get_by_role("button", name="Preview")
    await preview.hover()
    place = await preview.bounding_box()
    await limit.press_sequentially("s")
    await expect(told).to_contain_text("had succeeded")
    assert await preview.bounding_box() == place  # though the row has grown
    await preview.click()
    await expect(page.get_by_text("This is a preview")).to_be_visible()
    await expect(told).to_contain_text("Would have cut")
    await expect(told).to_contain_text("had succeeded")
    await page.get_by_role("button", name="Save").click()
    await expect(page.locator(".errorlist").first).to_contain_text("below the current p95")
    await expect(limit).to_have_value("1 s")
    await limit.fill("30 min")
    await preview.click()
    await expect(told).to_contain_text("Would have cut off 0 of")
    assert await page.evaluate(FITS)
    await check(page)


async def test_a_running_call_obeys_a_temporary_limit_and_its_end(open_browser, browser_user, site):
    admin = await open_browser(site, user="admin")
    chat = await browser_user.start_conversation()
    await chat.say("wait 600")
    card = chat.card("seconds: 600")
    await expect(clock(card)).to_contain_text("/ 2 min")
    page = await admin.open(f"{LIMITS}tool/wait/")
    await page.get_by_label("Total limit").fill("5 min")
    await page.get_by_label("Only until").fill("20 s")
    await page.get_by_role("button", name="Save").click()
    await expect(clock(card)).to_contain_text("/ 5 min")
    await expect(clock(card)).to_contain_text("/ 2 min")  # nobody has done anything
    await eventually(partial(says_that_it_is_over, page))
    await expect(page.get_by_text("Current limits: 2 min (from: built in)")).to_be_visible()
    await chat.cancel_turn.click()
    await chat.has_ended()


async def test_where_limits_are_in_force_follows_by_itself_in_two_processes(
    own_site_of, open_browser
):
    slow = {"TURNS_LEASE_RENEW_INTERVAL": "8"}  # when the other one reports
    site, _other = own_site_of(), own_site_of(**slow)
    admin = await open_browser(site, user="admin")
    for address, field, limit in (
        (LIMITS, "Total limit: wait", "3 min"),
        (f"{LIMITS}tool/wait/", "Total limit", "4 min"),
    ):
        page = await admin.open(address)
        if address == LIMITS:
            await open_row(page, "wait")
        await page.get_by_label(field).fill(limit)
        await save(page, "Save")
        await page.evaluate("window.isTheSame = true")
        await expect(page.locator("#limits-in-force")).to_contain_text(
            "Active in 2 of 2 processes."
        )
        assert await page.evaluate("window.isTheSame")  # nobody has loaded it again
