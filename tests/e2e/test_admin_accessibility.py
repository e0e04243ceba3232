"""Our own pages of the admin have no finding of axe, in both schemes at three widths. Running now has none without scripts, too."""

import re

import pytest
from playwright.async_api import Page, expect

from tests.e2e import axe
from tests.e2e.axe import COLOURS
from tests.e2e.chat import has_started, state
from tests.e2e.test_admin import FITS
from tests.support import eventually

pytestmark = pytest.mark.asyncio(loop_scope="session")

WIDE = {"width": 1440, "height": 900}
DESKTOP = {"width": 1280, "height": 850}
PHONE = {"width": 390, "height": 844}
# The admin's own header, menu, lists and forms are Django's, as is the search of a list: here is what we add.
OURS = {"include": [["#content"]], "exclude": [["#searchbar"]]}
# To read what a stylesheet imports, axe would add a style to the page, which its policy refuses.
ALL_RULES = {"preload": False}
RUNNING = "/admin/turns/runningturn/"
# Figures, and the default limits with their history. A list with our filters of time and text, and links to its exports.
OTHERS = (
    "turns/cancelledturn/latency/",
    "turns/repair/days/",
    "governance/defaultpolicy/1/change/",
    "governance/defaultpolicy/1/history/",
    "governance/approval/?when=any",
    "governance/mcpserver/",
    "governance/toolcall/?when=any",
    "governance/toolcall/top/",
    "governance/toolpolicy/",
    "governance/toolpolicy/tool/wait/",
    "governance/activity/",
    "governance/policychange/",
    "governance/export/",
    "turns/turn/?when=any",
    "turns/cancelledturn/?when=any",
    "turns/cancelrequest/?when=any",
    "turns/disconnectpolicy/1/change/",
    "turns/repair/",
    "turns/conversation/",
    "turns/agent/",
    "webchat/apitoken/",
)
CARDS = (
    "governance/activity",
    "governance/toolcall",
    "turns/agent",
    "turns/cancelledturn",
    "turns/cancelrequest",
    "turns/conversation",
    "turns/process",
    "turns/turn",
)
COMES_NEAR_ITS_LIMIT = """
from django.utils import timezone
from governance.models import ToolCall

times = {"requested_at": timezone.now(), "duration_ms": 119_000, "timeout_ms": 120_000}
outcome = {"status": "timed_out", "error_type": "timeout"}
ToolCall.objects.create(tool_name="session_status", call_id="late", group="late", scope="late", **times, **outcome)
"""
SIDEWAYS = """
    document.scrollingElement.scrollWidth <= document.scrollingElement.clientWidth + 1 ? [] :
        [...document.querySelectorAll("#content *")]
            .filter((element) => element.getBoundingClientRect().right > document.scrollingElement.clientWidth + 1)
            .map((element) => element.outerHTML.slice(0, 100))
"""

BESIDE = """
    [...document.querySelectorAll("#content .governance-wide :is(button, input:not([type=hidden]), select, textarea)")]
        .filter((control) => control.getBoundingClientRect().right > document.scrollingElement.clientWidth)
        .map((control) => control.outerHTML.slice(0, 100))
"""


async def findings(page: Page, name: str) -> list[object]:
    """Judge what the tab shows, on both grounds and at each width."""
    found: list[object] = []
    for size in (WIDE, DESKTOP, PHONE):
        await page.set_viewport_size(size)
        for scheme, rules in (("light", ALL_RULES), ("dark", COLOURS)):
            await page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            broken = await axe.findings(page, rules, within=OURS)
            found += [(name, scheme, size["width"], *one) for one in broken]
        wide = await page.evaluate(SIDEWAYS)
        found += [(name, size["width"], "scrolls sideways", element) for element in wide[:5]]
        hidden = await page.evaluate(BESIDE)
        found += [(name, size["width"], "lies beside the screen", one) for one in hidden[:5]]
    await page.set_viewport_size(DESKTOP)
    return found


@pytest.mark.timeout(1200)  # some fifty pages, each in six ways
async def test_our_pages_are_accessible(open_browser, browser_user, site):
    chat = await browser_user.start_conversation()
    await chat.say("within 30min wait 600\nlist")
    await has_started(chat.card("seconds: 600"))
    admin = await open_browser(site, user="admin")
    page = await admin.open(RUNNING)
    await expect(page.locator("#running")).to_contain_text("wait")
    found = await findings(page, "running now")
    async with page.expect_navigation():
        await page.get_by_role("button", name=re.compile("Cancel all turns")).click()
    found += await findings(page, "cancel all")
    await page.goto(f"{site.url}/admin/turns/turn/?happened=active")
    async with page.expect_navigation():
        await page.locator("#result_list tbody th a").first.click()
    found += await findings(page, "turn")
    await page.goto(f"{site.url}/admin/governance/toolcall/?tool=wait")
    async with page.expect_navigation():
        await page.locator("#result_list tbody th a").first.click()
    found += await findings(page, "call")
    site.carry_out(COMES_NEAR_ITS_LIMIT)
    await page.goto(f"{site.url}/admin/")
    await expect(page.locator("#overview dd a", has_text="session_status")).to_be_visible()
    found += await findings(page, "overview")
    await page.goto(f"{site.url}/admin/turns/process/")
    found += await findings(page, "turns/process")
    await chat.cancel_turn.click()
    await chat.has_ended()
    for name in OTHERS:
        await page.goto(f"{site.url}/admin/{name}")
        found += await findings(page, name)
    for name in ("turns/process", "turns/cancelledturn"):
        await page.goto(f"{site.url}/admin/{name}/")
        async with page.expect_navigation():
            await page.locator("#result_list tbody th a").first.click()
        found += await findings(page, f"one of {name}")
    await page.goto(f"{site.url}/admin/auth/user/?q=demo")
    await page.locator("#result_list .action-select").first.check()
    await page.get_by_label("Action:").select_option("forget")
    async with page.expect_navigation():
        await page.locator("#changelist-form button[name=index]").click()
    await expect(page.get_by_role("button", name="Yes, forget this person")).to_be_visible()
    found += await findings(page, "forget a person")
    assert found == []


LABELS = """
    [...document.querySelectorAll("#result_list thead th")].map((head) => head.innerText.trim()).filter(Boolean).slice(1)
"""
SHOWN_BEFORE = """
    [...document.querySelectorAll("#result_list tbody tr:first-child td")]
        .map((cell) => getComputedStyle(cell, "::before").content).filter((text) => text !== "none")
        .map((text) => JSON.parse(text))
"""


async def test_the_rows_of_lists_are_cards_on_a_phone(open_browser, browser_user, site):
    chat = await browser_user.start_conversation()
    await chat.say("within 30min wait 600")
    await has_started(chat.card("seconds: 600"))
    await chat.cancel_turn.click()
    await chat.has_ended()
    admin = await open_browser(site, user="admin")
    page = await admin.open("/admin/")
    for name in CARDS:
        await page.set_viewport_size(DESKTOP)
        await page.goto(f"{site.url}/admin/{name}/")
        labels = await page.evaluate(LABELS)
        await page.set_viewport_size(PHONE)
        shown = await page.evaluate(SHOWN_BEFORE)
        assert len(shown) > 1, name
        assert [text.lower() for text in labels][-len(shown) :] == [
            text.lower() for text in shown
        ], name
        assert await page.evaluate(SIDEWAYS) == [], name
        assert await page.evaluate(FITS), name
    await page.goto(f"{site.url}/admin/turns/process/")
    before = await page.locator("#result_list .field-lease_age").first.inner_text()
    await expect(page.locator("#result_list .field-lease_age").first).not_to_have_text(before)
    assert len(await page.evaluate(SHOWN_BEFORE)) > 1  # those that were read again, too


async def test_on_a_phone_a_chart_by_day_begins_with_its_last_day(open_browser, site):
    admin = await open_browser(site, user="admin", viewport=PHONE)
    page = await admin.open("/admin/governance/toolpolicy/tool/wait/")
    chart = page.get_by_role("group", name=re.compile("Timeouts by day"))
    box = await chart.bounding_box()
    assert box["x"] < 0  # it is wider than the screen
    assert 0 < box["x"] + box["width"] <= PHONE["width"]


async def test_a_call_is_extended_and_cancelled_with_a_reason_and_the_page_says_what_became_of_it(
    open_browser, browser_user, site
):
    chat = await browser_user.start_conversation()
    await chat.say("within 20min wait 770")
    card = chat.card("seconds: 770")
    await has_started(card)
    admin = await open_browser(site, user="admin")
    page = await admin.open(f"{RUNNING}?tool=wait")
    result = page.get_by_role("status")
    await page.get_by_role("button", name="Give this call of wait 30 seconds more").click()
    await expect(result).to_contain_text("now has 20 min 30 s; it had 20 min")
    await page.get_by_label("Reason").fill("wrong customer")
    await page.get_by_role("button", name="Cancel this call of wait").click()
    await expect(result).to_contain_text(re.compile(r"stopped after \d"))
    await expect(state(card)).to_contain_text("cancelled")
    await chat.has_ended()


async def test_the_page_follows_by_itself_until_it_is_paused(open_browser, browser_user, site):
    admin = await open_browser(site, user="admin")
    page = await admin.open(RUNNING)
    await page.get_by_label("Reason").fill("not yet")
    chat = await browser_user.start_conversation()
    await chat.say("within 30min wait 780")
    await has_started(chat.card("seconds: 780"))
    button = page.get_by_role("button", name="Cancel this call of wait")
    await expect(button).to_be_visible()
    await button.focus()
    heading = page.locator("#content h1")
    before = await heading.inner_text()
    await expect(heading).not_to_have_text(before)
    await expect(button).to_be_focused()
    await expect(page.get_by_label("Reason")).to_have_value("not yet")
    await page.get_by_role("button", name="Pause automatic refresh").click()
    await expect(page.get_by_role("button", name="Resume automatic refresh")).to_be_visible()
    await chat.cancel_turn.click()
    await chat.has_ended()
    await expect(button).to_be_visible()
    await page.get_by_role("button", name="Resume automatic refresh").click()
    await expect(button).to_be_hidden()


async def test_without_scripts_all_of_a_user_end_after_their_count(
    open_browser, browser_user, site
):
    chat = await browser_user.start_conversation()
    await chat.say("within 30min wait 790")
    await has_started(chat.card("seconds: 790"))
    admin = await open_browser(site, user="admin", java_script_enabled=False)
    page = await admin.open(f"{RUNNING}?user=demo")
    await page.get_by_role("button", name="Cancel all turns of this filter").click()
    await expect(page.locator("#content-main")).to_contain_text("1. All of these")
    await page.get_by_label("Reason").fill("runaway")
    await page.get_by_role("button", name="Yes, cancel 1").click()
    await expect(page.get_by_role("status")).to_contain_text("Requested 1 cancel")

    async def says_so() -> bool:
        """Read the page again: without scripts it stays as it was when the wait for its end was over."""
        await page.reload()
        return "Requested 1 cancel: 1 stopped" in await page.get_by_role("status").inner_text()

    await eventually(says_so)
    await expect(chat.ending("cancelled")).to_be_visible()
    await chat.has_ended()


async def test_the_overview_follows_by_itself_until_it_is_paused(open_browser, site):
    admin = await open_browser(site, user="admin")
    page = await admin.open("/admin/")
    at = page.locator("#overview-at")
    before = await at.inner_text()
    await expect(at).not_to_have_text(before)
    await page.get_by_role("button", name="Pause automatic refresh").click()
    await expect(page.get_by_role("button", name="Resume automatic refresh")).to_be_visible()
    await page.set_viewport_size(PHONE)
    menu = page.get_by_role("navigation", name="All pages")  # no menu is at the side there
    await menu.get_by_role("link", name="Tool limits").click()
    await expect(page.get_by_role("heading", level=1)).to_contain_text("Tool limits")
