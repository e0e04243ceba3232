"""The lists of conversations: search, days, and the menu that renames, pins, exports and deletes."""

import json
import os
from pathlib import Path

import pytest
from playwright.async_api import Locator, Page, expect

from tests.e2e.browser_user import BrowserUser
from tests.e2e.chat import Chat
from tests.e2e.test_accessibility import PHONE, check

pytestmark = pytest.mark.asyncio(loop_scope="session")

PICTURES = os.environ.get("PICTURES")

IS_BELOW_ITS_BUTTON = """() => {
  const button = document.querySelector(".menu-open[aria-expanded=true]").getBoundingClientRect();
  const menu = document.querySelector("[role=menu]").getBoundingClientRect();
  return Math.abs(menu.top - button.bottom) < 8 && menu.right <= innerWidth;
}"""


async def picture(page: Page, name: str) -> None:
    """Keep a picture for whoever wants to look."""
    if PICTURES:
        await page.screenshot(path=Path(PICTURES) / f"{name}.png")


async def said(browser_user: BrowserUser, text: str) -> Chat:
    chat = await browser_user.start_conversation()
    await chat.say(text)
    await expect(chat.answers.last).to_be_visible()
    await chat.has_ended()
    await expect(chat.page.locator("#title")).to_have_text(text)
    return chat


def sidebar(page: Page) -> Locator:
    return page.get_by_role("navigation", name="Conversations")


def entry(page: Page, title: str) -> Locator:
    """Return what has this title, which no other test may give: all belong to one user."""
    return page.locator(".list-entry").filter(has=page.get_by_text(title, exact=True))


async def choose(page: Page, title: str, action: str) -> None:
    """Open the menu of an entry and choose from it."""
    opener = entry(page, title).get_by_role("button", name="Options for")
    await opener.focus()
    await opener.press("Enter")
    await expect(page.get_by_role("menu")).to_be_visible()
    await page.get_by_role("menuitem", name=action, exact=True).click()


async def test_a_conversation_is_renamed_pinned_and_deleted_and_every_tab_shows_it(
    browser_user: BrowserUser,
):
    chat = await said(browser_user, "say Tulips.")
    other = await said(browser_user, "say Roses.")
    await choose(chat.page, "say Tulips.", "Rename")
    dialog = chat.page.get_by_role("dialog", name="Rename conversation")
    await expect(dialog.get_by_label("Title")).to_have_value("say Tulips.")
    await dialog.get_by_label("Title").fill("All about tulips")
    await picture(chat.page, "rename")
    await dialog.get_by_label("Title").press("Enter")
    for page in (chat.page, other.page):
        await expect(entry(page, "All about tulips")).to_be_visible()
    await expect(chat.page.locator("#title")).to_have_text("All about tulips")
    await expect(chat.page).to_have_title("All about tulips · Turnkeeper")

    await choose(chat.page, "All about tulips", "Pin")
    for page in (chat.page, other.page):
        first = sidebar(page).get_by_role("listitem")
        await expect(first.nth(0)).to_have_text("Pinned")
        await expect(first.nth(1)).to_contain_text("All about tulips")
    await chat.page.reload()
    await expect(chat.page.locator("#title")).to_have_text("All about tulips")
    await choose(chat.page, "All about tulips", "Unpin")
    await expect(sidebar(chat.page).get_by_text("Pinned")).to_have_count(0)

    await choose(other.page, "All about tulips", "Delete…")
    dialog = other.page.get_by_role("dialog", name="Delete this conversation?")
    await expect(dialog.get_by_text("All about tulips")).to_be_visible()
    await check(other.page)
    await dialog.get_by_role("button", name="Keep it").click()
    await expect(entry(other.page, "All about tulips")).to_be_visible()
    await choose(other.page, "All about tulips", "Delete…")
    await dialog.get_by_role("button", name="Delete", exact=True).click()
    await expect(entry(other.page, "All about tulips")).to_have_count(0)
    await expect(chat.connection).to_have_attribute("data-status", "not_found")
    await expect(entry(chat.page, "All about tulips")).to_have_count(0)
    await chat.page.get_by_label("Search conversations").fill("roses")
    await expect(chat.page.locator(".list-entry")).to_have_count(1)
    await expect(entry(chat.page, "say Roses.")).to_be_visible()
    await choose(other.page, "say Roses.", "Delete…")
    await dialog.get_by_role("button", name="Delete", exact=True).click()
    await expect(other.page.get_by_role("heading", name="Conversations")).to_be_visible()


async def test_where_an_entry_is_deleted_the_focus_goes_on_to_the_next_one(
    browser_user: BrowserUser,
):
    await said(browser_user, "say Peonies.")
    await said(browser_user, "say Asters.")
    listed = await browser_user.open("/")
    await choose(listed, "say Asters.", "Delete…")
    await listed.get_by_role("button", name="Delete", exact=True).press("Enter")
    await expect(entry(listed, "say Asters.")).to_have_count(0)
    await expect(entry(listed, "say Peonies.").get_by_role("link")).to_be_focused()


async def test_a_running_conversation_is_deleted_with_what_runs_in_it(browser_user: BrowserUser):
    chat = await browser_user.start_conversation()
    await chat.say("wait 300.4")
    await expect(chat.running_bar).to_be_visible()
    listed = await browser_user.open("/")
    await choose(listed, "wait 300.4", "Delete…")
    await listed.get_by_role("button", name="Delete", exact=True).click()
    await expect(entry(listed, "wait 300.4")).to_have_count(0)
    await expect(chat.connection).to_have_attribute("data-status", "not_found")
    active = await browser_user.context.request.get(f"{browser_user.site.url}/api/turns/active")
    assert "wait 300.4" not in await active.text()


async def test_the_list_says_what_runs_and_marks_what_ended_out_of_sight_until_it_is_opened(
    browser_user: BrowserUser,
):
    other = await said(browser_user, "say Lilies.")
    chat = await browser_user.start_conversation()
    await chat.say("wait 300\nwait 301")
    mark = entry(other.page, "wait 300 wait 301").locator(".mark")
    await expect(mark).to_have_text("2 tools running")
    await picture(other.page, "states")
    address = chat.page.url
    await chat.page.goto("about:blank")
    active = await browser_user.context.request.get(f"{browser_user.site.url}/api/turns/active")
    [turn] = [each for each in (await active.json())["turns"] if each["conversation_id"] in address]
    first, second = (
        f"/api/turns/{turn['turn_id']}/abort-tool/{call['tool_id']}"
        for call in turn["current_tools"]
    )
    await browser_user.post(first)
    await expect(mark).to_have_text("1 tool running")
    await browser_user.post(second)
    await expect(mark).to_have_text("new")
    await picture(other.page, "unread")
    await check(other.page)
    await other.page.reload()
    await expect(mark).to_have_text("new")
    await chat.page.go_back()
    await expect(chat.connection).to_have_attribute("data-status", "online")
    await expect(mark).to_be_hidden()


async def test_the_search_finds_a_part_of_a_title(browser_user: BrowserUser):
    chat = await said(browser_user, "say Narcissus.")
    listed = await browser_user.open("/")
    for page in (chat.page, listed):
        search = page.get_by_label("Search conversations")
        await search.fill("NARCISS")
        await expect(entry(page, "say Narcissus.")).to_be_visible()
        await expect(page.locator(".list-entry")).to_have_count(1)
        await search.fill("no such title")
        await expect(page.get_by_text("No conversation matches.")).to_be_visible()
        await expect(page.locator(".list-entry")).to_have_count(0)
        await check(page)
        await search.fill("")
        await expect(entry(page, "say Narcissus.")).to_be_visible()
    await picture(chat.page, "sidebar")
    await picture(listed, "list")


async def test_the_menu_and_the_search_close_by_keys_without_cancelling_anything(
    browser_user: BrowserUser,
):
    chat = await browser_user.start_conversation()
    await chat.say("within 30min wait 600.4")
    await expect(chat.running_bar).to_be_visible()
    page = chat.page
    opener = entry(page, "within 30min wait 600.4").get_by_role("button", name="Options for")
    await opener.focus()
    await opener.press("Enter")
    menu = page.get_by_role("menu")
    await expect(menu.get_by_role("menuitem", name="Rename")).to_be_focused()
    await page.keyboard.press("ArrowUp")
    await expect(menu.get_by_role("menuitem", name="Delete…")).to_be_focused()
    await picture(page, "menu")
    await page.keyboard.press("Escape")
    await expect(menu).to_be_hidden()
    await expect(opener).to_be_focused()
    await chat.is_painted()
    await expect(chat.cancel_turn).to_be_enabled()
    search = page.get_by_label("Search conversations")
    for text in ("no such title", ""):
        await search.fill(text)
        await search.press("Escape")
        await expect(search).to_have_value("")
        await expect(chat.composer).to_be_focused()
        await expect(opener).to_be_visible()
    await chat.is_painted()
    await expect(chat.cancel_turn).to_be_enabled()
    await opener.press("Enter")
    await check(page)
    await expect(menu).to_be_hidden()  # on a phone there is no list beside the chat
    await chat.cancel_turn.click()
    await chat.has_ended()


async def test_the_menu_stays_beside_its_button_when_the_window_changes(
    browser_user: BrowserUser,
):
    chat = await said(browser_user, "say Daffodils.")
    listed = await browser_user.open("/")
    for page in (listed, chat.page):
        opener = entry(page, "say Daffodils.").get_by_role("button", name="Options for")
        await opener.focus()
        await opener.press("Enter")
        await expect(page.get_by_role("menu")).to_be_visible()
        await page.set_viewport_size(PHONE)
    await expect(chat.page.get_by_role("menu")).to_be_hidden()  # as is the list
    menu = listed.get_by_role("menu")
    await expect(menu).to_be_in_viewport(ratio=1)
    await listed.wait_for_function(IS_BELOW_ITS_BUTTON)
    await listed.set_viewport_size({"width": 390, "height": 600})
    await listed.evaluate("document.body.style.minHeight = '200vh'; scrollTo(0, 40)")
    assert await listed.evaluate("scrollY") == 40
    await listed.wait_for_function(IS_BELOW_ITS_BUTTON)


async def test_a_dialog_stays_in_sight_where_the_list_beside_the_chat_goes(
    browser_user: BrowserUser,
):
    chat = await said(browser_user, "say A tablet that is turned.")
    await choose(chat.page, "say A tablet that is turned.", "Delete…")
    await chat.page.set_viewport_size({"width": 820, "height": 1180})
    dialog = chat.page.get_by_role("dialog", name="Delete this conversation?")
    await dialog.get_by_role("button", name="Keep it").click()
    await expect(dialog).to_be_hidden()


async def test_a_conversation_is_exported_with_its_calls(browser_user: BrowserUser):
    chat = await said(browser_user, "wait 0.4")
    kept = {}
    for action in ("Export as JSON", "Export as Markdown"):
        async with chat.page.expect_download() as download:
            await choose(chat.page, "wait 0.4", action)
        file = await download.value
        kept[file.suggested_filename] = Path(await file.path()).read_text("utf-8")
    assert set(kept) == {"wait_0.4.json", "wait_0.4.md"}
    (turn,) = json.loads(kept["wait_0.4.json"])["turns"]
    assert [call["tool_name"] for call in turn["calls"]] == ["wait"]
    assert kept["wait_0.4.md"].startswith("# wait 0.4\n")
