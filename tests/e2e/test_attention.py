"""What waits for a person is found: on the page of the conversation above, in the lists, in the title."""

import asyncio
import re

import pytest
from playwright.async_api import expect

from tests.e2e.chat import KEY_OF_INPUT_METHOD, Chat
from tests.e2e.test_accessibility import check

pytestmark = pytest.mark.asyncio(loop_scope="session")

ASK = 'call list_files {"path": "%s"}'


def entry(page, chat):
    """Return the link that a list has for a conversation."""
    conversation_id = chat.page.url.rstrip("/").rpartition("/")[2]
    return page.locator(f'[data-conversation-id="{conversation_id}"]:not(#chat)')


def mark(page, chat):
    """Return the mark that a list shows beside a conversation."""
    return entry(page, chat).locator("> .mark")


async def test_what_a_sub_agent_asks_is_decided_where_it_was_set_to_work(browser_user):
    chat = await browser_user.start_conversation("ask assistant " + ASK % "one")
    await expect(chat.question).to_contain_text("assistant wants to run List files. Allow it?")
    await expect(chat.question.locator("dd pre")).to_have_text("one")
    await expect(chat.question.get_by_role("link", name="Open assistant")).to_be_visible()
    await expect(chat.page.locator("#alert")).to_have_text(
        "assistant is waiting for your decision on List files."
    )
    await check(chat.page)
    await chat.deny("not there")
    await expect(chat.question).to_be_hidden()
    await expect(chat.composer).to_be_focused()
    await expect(chat.page.locator("#alert")).to_be_empty()
    await expect(chat.answers.last).to_contain_text("not there")
    await chat.has_ended()


async def test_what_is_asked_is_counted_and_the_button_leads_from_one_to_the_next(browser_user):
    chat = await browser_user.start_conversation()
    await chat.say("\n".join(["ask assistant " + ASK % "three", ASK % "one", ASK % "two"]))
    await expect(chat.question).to_contain_text("of 3")
    await expect(chat.page).to_have_title(re.compile(r"^\(3\) "))
    seen = set()
    for _time in range(3):
        seen.add(await chat.question.locator("dd pre").inner_text())
        await chat.question.get_by_role("button", name="Next").click()
        await expect(chat.question).to_be_focused()
    assert seen == {"one", "two", "three"}
    await chat.page.keyboard.press("Escape")
    await expect(chat.question).to_be_hidden()
    await chat.has_ended()
    await expect(chat.page).not_to_have_title(re.compile(r"^\("))
    await expect(chat.page.locator("#alert")).to_be_empty()
    await expect(chat.page.locator("#status")).to_have_text("Task cancelled: by you")


async def test_the_lists_mark_what_waits_and_what_works_while_it_does(browser_user):
    chat = await browser_user.start_conversation()
    tab = await browser_user.start_conversation()
    listed = await browser_user.open("/")
    pages = (tab.page, listed, chat.page)
    for page in pages:
        await expect(mark(page, chat)).to_be_hidden()
    await chat.say("within 30min wait 600")
    for page in pages:
        await expect(mark(page, chat)).to_have_attribute("data-standing", "working")
        await expect(mark(page, chat)).to_be_visible()
    await chat.cancel_turn.click()
    await chat.say(ASK % ".")
    for page in pages:
        await expect(mark(page, chat)).to_have_attribute("data-standing", "asking")
        await expect(mark(page, chat)).to_contain_text("waiting for you")
        await expect(page).to_have_title(re.compile(r"^\(\d\) "))
    await expect(tab.page.locator("#status")).to_have_text(
        "Another conversation is waiting for your decision."
    )
    await tab.page.set_viewport_size({"width": 390, "height": 844})
    back = tab.page.get_by_role("link", name=re.compile("^All conversations: .+ for"))
    await expect(back).to_be_visible()
    await check(listed)
    await chat.deny()
    await chat.has_ended()
    for page in pages:
        await expect(mark(page, chat)).to_be_hidden()


async def test_a_conversation_that_begins_elsewhere_joins_the_lists_and_takes_no_focus(
    browser_user,
):
    here = await browser_user.start_conversation("say Here.")
    await here.has_ended()
    listed = await browser_user.open("/")
    lists = (
        (here.page, here.page.get_by_role("navigation", name="Conversations")),
        (listed, listed.get_by_role("main")),
    )
    for _page, entries in lists:
        own = entries.get_by_role("link", name="say Here.")
        await expect(own.first).to_be_visible()
        await own.first.focus()
    there = await browser_user.start_conversation()
    for page, _entries in lists:
        await expect(entry(page, there)).to_contain_text("New conversation")
    await there.ask("say There.")
    for page, entries in lists:
        await expect(entries.locator(".list-entry").first).to_contain_text("say There.")
        await expect(entry(page, there)).to_have_count(1)
        await expect(entry(page, here)).to_be_focused()
    await expect(entry(here.page, here)).to_have_attribute("aria-current", "page")
    await here.ask("say Again.")
    await check(here.page)


async def test_the_first_conversation_takes_the_place_of_the_empty_list(own_site, open_browser):
    browser_user = await open_browser(own_site)
    listed = await browser_user.open("/")
    begin = listed.get_by_role("button", name="New conversation", exact=True)
    await expect(listed.get_by_text("Nothing here yet")).to_be_visible()
    await begin.focus()
    there = await browser_user.start_conversation()
    await expect(entry(listed, there)).to_be_visible()
    await expect(listed.get_by_text("Nothing here yet")).to_have_count(0)
    await expect(begin).to_have_count(1)
    await expect(begin).to_be_focused()
    await check(listed)


@pytest.mark.parametrize("is_new", [False, True])
async def test_enter_before_the_page_is_ready_sends_when_it_is(browser_user, is_new):
    chat = await browser_user.start_conversation()
    page = await browser_user.context.new_page()
    scripts = []

    async def hold(route):
        scripts.append(route)

    await page.route("**/js/chat.js", hold)
    path = "/c/new/" if is_new else chat.page.url.removeprefix(browser_user.site.url)
    await page.goto(f"{browser_user.site.url}{path}", wait_until="commit")
    early = Chat(page)
    await early.composer.press("Enter")  # there is nothing to send yet
    await early.composer.fill("say Early.")
    assert await early.composer.evaluate(KEY_OF_INPUT_METHOD, "Enter")
    await expect(early.composer).to_be_editable()
    for _time in range(2):
        await early.composer.press("Enter")
    await expect(early.composer).to_have_value("say Early.")
    await scripts.pop().continue_()
    await expect(early.answers).to_contain_text("Early.")
    await expect(early.composer).to_be_empty()
    await expect(early.composer).to_be_editable()
    await expect(early.sent).to_have_count(1)


async def test_enter_before_the_connection_stands_sends_when_it_does(browser_user):
    chat = await browser_user.start_conversation()
    page = await browser_user.context.new_page()
    is_written = asyncio.Event()

    async def hold(socket):
        await is_written.wait()
        socket.connect_to_server()

    await page.route_web_socket("**/ws/**", hold)
    await page.goto(chat.page.url)
    early = Chat(page)
    await early.say("say Early.")
    await expect(early.unsent).to_have_count(1)
    await expect(early.composer).to_be_empty()
    is_written.set()
    await expect(early.answers).to_contain_text("Early.")
