"""An administrator tunes limits on the pages for that, beside a running chat."""

from functools import partial

import pytest
from playwright.async_api import expect

from tests.e2e.chat import clock, state
from tests.e2e.test_accessibility import check
from tests.e2e.test_admin import FITS, save
from tests.support import eventually

pytestmark = pytest.mark.asyncio(loop_scope="session")

LIMITS = "/admin/governance/toolpolicy/"


async def says_that_it_is_over(page) -> bool:
    await page.reload()
    return "The temporary limit is over." in await page.locator("#changes").inner_text()


async def take_away(page, tool: str) -> None:
    """Let the next level count again, on the page of limits that the tab shows."""
    await page.get_by_label(f"Choose {tool}").check()
    await page.get_by_label("With the chosen tools").select_option("reset")
    await page.get_by_role("button", name="Go").click()
    await expect(page.get_by_label(f"Total limit: {tool}")).to_have_value("")


async def test_a_running_call_in_another_tab_obeys_what_is_tuned_in_place(
    open_browser, browser_user, site
):
    admin = await open_browser(site, user="admin")
    chat = await browser_user.start_conversation()
    await chat.say("wait 600")
    card = chat.card("seconds: 600")
    await expect(clock(card)).to_contain_text("/ 2 min")
    page = await admin.open(LIMITS)
    await page.get_by_label("Total limit: wait").fill("20 min")
    await page.get_by_label("Why (kept with the change)").fill("the site is slow")
    await save(page, "Save")
    await expect(page.get_by_text("total limit: not set → 20 min")).to_be_visible()
    await expect(clock(card)).to_contain_text("/ 20 min")
    await page.get_by_label("Total limit: wait").fill("1 s")
    await save(page, "Save")
    await expect(state(card)).to_have_text("timed out after 1 s")
    await chat.has_ended()
    await page.get_by_role("link", name="Last hour").click()
    row = page.get_by_role("row").filter(has=page.get_by_label("Total limit: wait"))
    await expect(row).to_contain_text("%)")
    await take_away(page, "wait")
    await page.goto(f"{site.url}/admin/governance/policychange/")
    await expect(page.locator("#result_list")).to_contain_text("the site is slow")


async def test_a_bad_value_in_place_is_refused_in_words(open_browser, site):
    admin = await open_browser(site, user="admin")
    page = await admin.open(LIMITS)
    await page.get_by_label("Total limit: exec").fill("90")
    await page.get_by_role("button", name="Save").click()
    await expect(page.locator(".errorlist").first).to_contain_text("it could mean 90 ms, 90 s")
    await expect(page.get_by_label("Total limit: exec")).to_have_value("90")


async def test_a_change_is_reverted_on_the_page_of_its_tool(open_browser, site):
    admin = await open_browser(site, user="admin")
    page = await admin.open(LIMITS)
    await page.get_by_role("link", name="list_files", exact=True).click()
    await expect(page.get_by_role("heading", name="list_files", level=1)).to_be_visible()
    await page.get_by_label("Total limit").fill("25 s")
    await save(page, "Save")
    await page.get_by_label("Total limit").fill("15 s")
    await save(page, "Save")
    await expect(page.get_by_text("In force: 15 s")).to_be_visible()
    await check(page)
    await page.locator("#changes button").first.click()
    await expect(page.get_by_text("In force: 25 s")).to_be_visible()
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
    await expect(page.locator(".errorlist").first).to_contain_text("under the present p95")
    await expect(limit).to_have_value("1 s")
    await limit.fill("30 min")
    await preview.click()
    await expect(told).to_contain_text("Would have cut 0 of")
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
    await expect(page.get_by_text("In force: 2 min (from: built in)")).to_be_visible()
    await chat.cancel_turn.click()
    await chat.has_ended()


async def test_the_page_of_limits_is_accessible_and_fits(open_browser, site):
    admin = await open_browser(site, user="admin")
    page = await admin.open(LIMITS)
    assert await page.evaluate(FITS)
    await check(page)
