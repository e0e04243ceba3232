"""Calls are quiet: one line each, in one block for a step. They show more when opened, and fold when all is over."""

import asyncio
import re

import pytest
from playwright.async_api import Route, expect

from tests.e2e.chat import cancel_button, click_and_see, clock, has_started, state, was_cancelled
from tests.e2e.test_accessibility import PHONE, check

pytestmark = pytest.mark.asyncio(loop_scope="session")

LINE = 48  # px
SHARE = "bar => bar.getBoundingClientRect().width / bar.parentElement.clientWidth"


async def heights(chat):
    """How high the line of each call is."""
    return [
        round((await row.bounding_box())["height"])
        for row in await chat.page.locator(".call-row").all()
    ]


async def tops(chat):
    """Where the line of each call stands."""
    rows = await chat.page.locator(".call-row").all()
    return [round((await row.bounding_box())["y"]) for row in rows]


async def test_every_call_is_one_line_in_the_block_of_its_step_and_nothing_jumps(browser_user):
    chat = await browser_user.start_conversation()
    await chat.say(
        "within 30min wait 500\nwithin 30min wait 610\nwithin 200ms wait 62\nread nowhere.txt"
    )
    step = chat.page.locator("tool-step")
    await expect(step).to_contain_text(re.compile(r"4 tools · 2 running · \d+ s"))
    assert await heights(chat) == [LINE] * 4
    bar = chat.card("seconds: 500").locator(".call-bar")
    await expect(bar).to_be_visible()
    assert await bar.evaluate(SHARE) < 0.5
    await expect(chat.card("nowhere.txt")).to_contain_text("There is no 'nowhere.txt'")
    before = await tops(chat)
    for seconds in (500, 610):
        await cancel_button(chat.card(f"seconds: {seconds}")).click()
        await was_cancelled(chat.card(f"seconds: {seconds}"))
        assert await tops(chat) == before
    await chat.has_ended()
    assert await heights(chat) == [LINE] * 4  # none of them went well, so all stay
    await chat.page.set_viewport_size(PHONE)
    assert await heights(chat) == [LINE] * 4


async def test_a_call_has_a_bar_of_its_share_and_more_time_when_it_is_asked_for(browser_user):
    chat = await browser_user.start_conversation()
    await chat.say("within 5min wait 500\nask assistant within 30min wait 510")
    card, unlimited = chat.card("seconds: 500"), chat.cards.last
    for each in (card, unlimited):
        await has_started(each)
    bar = card.locator(".call-bar")
    assert (await bar.bounding_box())["height"] == 2
    await expect(unlimited.locator(".call-time")).to_contain_text("s")
    await expect(unlimited.locator(".call-bar")).to_be_hidden()  # a share of nothing
    await expect(clock(card)).to_contain_text("/ 5 min")
    await card.get_by_role("button", name="+30 s for Wait").click()
    await expect(clock(card)).to_contain_text("/ 05:30")
    assert await bar.evaluate(SHARE) < 0.5
    await card.get_by_role("button", expanded=False).click()
    await expect(card.locator(".call-facts")).to_contain_text("limit changed to 05:30 by you")
    await chat.cancel()


async def test_after_the_turn_what_went_well_is_folded_and_opens_again(browser_user):
    chat = await browser_user.start_conversation()
    await chat.ask("wait 0\nwait 0.1\nread nowhere.txt\nwithin 200ms wait 9")
    head = chat.page.get_by_role("button", name=re.compile("^Used 4 tools"))
    await expect(head).to_have_attribute("aria-expanded", "false")
    await expect(chat.card("seconds: 0")).to_be_hidden()
    await expect(chat.card("nowhere.txt").locator(".call-note")).to_contain_text("There is no")
    await expect(state(chat.card("seconds: 9"))).to_have_text("timed out after 0.2 s")
    await check(chat.page)
    shown = await chat.transcript.inner_text()
    await chat.page.reload()
    await expect(head).to_be_visible()
    await expect(chat.transcript).to_have_text(shown, use_inner_text=True)
    await head.click()
    await expect(chat.card("seconds: 0")).to_be_visible()
    await check(chat.page)
    await head.click()
    await expect(chat.card("seconds: 0")).to_be_hidden()


async def test_an_opened_card_has_the_whole_result_the_code_name_and_the_limit(browser_user):
    chat = await browser_user.start_conversation()
    await chat.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    await chat.ask("run seq 1 3000")
    card = chat.cards.last
    await expect(card).to_contain_text("Run a command")
    await card.get_by_role("button", expanded=False).click()
    await expect(card.locator(".call-facts")).to_contain_text("exec")
    await expect(card.locator(".call-facts")).to_contain_text("2 min (the tool’s own limit)")
    result = card.get_by_label("Result", exact=True)
    await expect(card).to_contain_text("The first 2,000 of 13,892 characters.")
    await check(chat.page)
    async with chat.page.expect_download() as saved:
        await card.get_by_role("link", name="Download").click()
    whole = await (await saved.value).path()
    assert whole.read_text().endswith("2999\n3000")
    await click_and_see(card.get_by_role("button", name="Copy"), "Copied")
    assert (await chat.page.evaluate("navigator.clipboard.readText()")).endswith("2999\n3000")
    await expect(result).to_contain_text("3000")
    await expect(card.get_by_role("button", name=re.compile("^Show all"))).to_be_hidden()


async def test_the_rest_of_a_result_is_shown_when_it_is_asked_for(browser_user):
    chat = await browser_user.start_conversation()
    await chat.say("run yes 😀 | head -n 1500")  # of two units each in the page, and one character
    await chat.has_ended()
    card = chat.cards.last
    await card.get_by_role("button", expanded=False).click()
    await expect(card).to_contain_text("The first 2,000 of 2,999 characters.")
    await card.get_by_role("button", name="Show all (2,999 characters)").click()
    await expect(card.get_by_label("Result", exact=True)).to_have_text("\n".join(["😀"] * 1500))
    await expect(card.get_by_label("Result", exact=True)).to_be_focused()


async def test_the_rest_of_a_result_takes_the_focus_from_nobody(browser_user):
    browser_user.expect_problem("503")
    chat = await browser_user.start_conversation("run seq 1 3000")
    await chat.has_ended()
    card = chat.cards.last
    await card.get_by_role("button", expanded=False).click()
    show_all = card.get_by_role("button", name=re.compile("^Show all"))
    path = re.compile("/tools/.+/result$")
    await chat.page.route(path, lambda route: route.fulfill(status=503))
    await show_all.press("Enter")
    await expect(card).to_contain_text("Could not load the rest.")
    await expect(show_all).to_be_focused()
    await chat.page.unroute(path)
    may_come = asyncio.Event()

    async def hold(route: Route) -> None:
        await may_come.wait()
        await route.continue_()

    await chat.page.route(path, hold)
    await show_all.press("Enter")
    await expect(show_all).to_have_attribute("aria-disabled", "true")
    await chat.composer.press("x")
    may_come.set()
    await expect(card.get_by_label("Result", exact=True)).to_contain_text("3000")
    await expect(chat.composer).to_be_focused()


async def test_a_running_command_shows_its_last_lines_also_after_a_reload(browser_user):
    chat = await browser_user.start_conversation("within 30min run seq 1 20; sleep 600")
    tail = chat.cards.last.locator(".call-tail")
    for _time in range(2):
        await chat.cards.last.get_by_role("button", expanded=False).click()
        await expect(tail).to_have_text("15\n16\n17\n18\n19\n20")
        await check(chat.page)
        await chat.page.reload()
        await has_started(chat.cards.last)
    await chat.cancel()
