"""A conversation begins with its first message: until then there is an empty page, and no row."""

import asyncio
import re

import pytest
from playwright.async_api import Page, Route, WebSocketRoute, expect

from tests.e2e.browser_user import BrowserUser
from tests.e2e.chat import Chat
from tests.e2e.test_accessibility import check

pytestmark = pytest.mark.asyncio(loop_scope="session")
AT_CONVERSATION = re.compile(r"/c/[0-9a-f-]{36}/$")


async def conversations(browser_user: BrowserUser) -> list[str]:
    """Return the titles of all conversations, as the API has them."""
    answer = await browser_user.context.request.get(f"{browser_user.site.url}/api/conversations")
    return [row["title"] for row in (await answer.json())["conversations"]]


async def empty_page(browser_user: BrowserUser) -> Chat:
    return await browser_user.begin(await browser_user.open("/"))


def entry(page: Page, title: str):
    return page.locator(".list-entry").filter(has=page.get_by_text(title, exact=True))


async def test_looking_makes_no_conversation_and_the_first_message_makes_one(
    browser_user: BrowserUser,
):
    before = await conversations(browser_user)
    chat = await empty_page(browser_user)
    await check(chat.page)
    await chat.page.reload()
    await expect(chat.connection).to_have_attribute("data-status", "new")
    assert await conversations(browser_user) == before
    await chat.say("say Tulips in May.")
    await expect(chat.answers).to_contain_text("Tulips in May.")
    await chat.has_ended()
    await expect(chat.connection).to_have_attribute("data-status", "online")
    await expect(chat.page).to_have_url(AT_CONVERSATION)
    await expect(entry(chat.page, "say Tulips in May.").locator("[aria-current]")).to_be_visible()
    await chat.say("say And roses.")
    await chat.has_ended()
    await chat.page.reload()
    await expect(chat.answers).to_have_count(2)
    assert (await conversations(browser_user)).count("say Tulips in May.") == 1
    await chat.page.go_back()
    await expect(chat.page.get_by_role("heading", name="Conversations")).to_be_visible()
    await chat.page.go_forward()
    await expect(chat.answers).to_have_count(2)


async def test_unsent_text_is_there_on_the_next_empty_page_and_gone_once_it_is_sent(
    browser_user: BrowserUser,
):
    chat = await empty_page(browser_user)
    await chat.composer.fill("say Later.")
    await chat.page.get_by_role("link", name="All conversations").last.click()
    chat = await browser_user.begin(chat.page)
    await expect(chat.composer).to_have_value("say Later.")
    await chat.composer.press("Enter")
    await chat.has_ended()
    await expect(chat.answers).to_contain_text("Later.")
    await chat.composer.press_sequentially("say Never.")
    async with chat.page.expect_event("dialog") as asked:
        await chat.page.close(run_before_unload=True)
    warning = await asked.value
    assert warning.type == "beforeunload"
    await warning.dismiss()
    await chat.composer.fill("")
    chat = await browser_user.begin(chat.page)
    await expect(chat.composer).to_have_value("")


async def test_what_is_typed_while_the_first_message_is_on_its_way_stays_with_its_conversation(
    browser_user: BrowserUser,
):
    chat = await empty_page(browser_user)
    may_go_on = asyncio.Event()

    async def hold(route: Route) -> None:
        await may_go_on.wait()
        await route.continue_()

    await chat.page.route("**/api/conversations", hold)
    await chat.say("say one")
    await chat.composer.fill("say two")
    may_go_on.set()
    await expect(chat.answers).to_contain_text("one")
    await chat.has_ended()
    await chat.page.reload()
    await expect(chat.composer).to_have_value("say two")
    await chat.page.get_by_role("link", name="All conversations").last.click()
    chat = await browser_user.begin(chat.page)
    await expect(chat.composer).to_have_value("")


async def test_a_first_message_written_offline_is_kept_over_a_reload_and_sent_once(
    browser_user: BrowserUser,
):
    browser_user.expect_connection_loss()
    browser_user.expect_problem("503")
    chat = await empty_page(browser_user)
    path = "**/api/conversations"

    async def fail(route):
        await route.fulfill(status=503, json={"error": "Later.", "code": "server_error"})

    await chat.page.route(path, fail)
    await chat.say("say Kept for later.")
    await expect(chat.unsent).to_have_count(1)
    await chat.page.reload()
    await expect(chat.unsent).to_have_count(1)
    await chat.page.unroute(path)
    await expect(chat.answers.last).to_contain_text("Kept for later.")
    await chat.has_ended()
    assert (await conversations(browser_user)).count("say Kept for later.") == 1


async def test_another_agent_answers_from_here_on_live_and_after_a_reload(
    browser_user: BrowserUser, open_browser, site
):
    from tests.e2e.test_agents import an_agent

    admin = await open_browser(site, user="admin")
    async with an_agent(admin, "gardener", "Knows flowers."):
        chat = await empty_page(browser_user)
        choice = chat.page.get_by_label("Answering agent")
        await expect(choice).to_have_value("assistant")
        await chat.say("say one")
        await chat.has_ended()
        other = await browser_user.join(chat)
        await choice.select_option("gardener")
        await expect(chat.page.locator("#status")).to_have_text(
            "gardener answers from your next message on."
        )
        await expect(other.page.get_by_label("Answering agent")).to_have_value("gardener")
        await check(chat.page)
        await chat.say("say two")
        await chat.has_ended()
        for tab in (chat, other):
            await expect(tab.turn("say two").locator(".turn-agent")).to_have_text(
                "gardener answers from here on."
            )
        await chat.page.reload()
        await expect(chat.page.locator(".turn-agent")).to_have_text(
            "gardener answers from here on."
        )
        await expect(choice).to_have_value("gardener")
        fresh = await empty_page(browser_user)
        await fresh.page.get_by_label("Answering agent").select_option("gardener")
        await expect(fresh.page.get_by_role("button", name="read <b>notes</b>.txt")).to_be_visible()
        await fresh.say("say three")
        await expect(fresh.page).to_have_url(AT_CONVERSATION)
        await fresh.has_ended()
        await fresh.page.reload()
        await expect(fresh.page.get_by_label("Answering agent")).to_have_value("gardener")
        await expect(fresh.page.locator(".turn-agent")).to_have_count(0)


async def test_what_was_chosen_before_a_tab_has_connected_is_shown_there(
    browser_user: BrowserUser, open_browser, site
):
    from tests.e2e.test_agents import an_agent

    admin = await open_browser(site, user="admin")
    async with an_agent(admin, "florist", "Knows flowers, too."):
        chat = await browser_user.start_conversation()
        late = await browser_user.context.new_page()
        may_connect = asyncio.Event()

        async def hold(socket: WebSocketRoute) -> None:
            await may_connect.wait()
            socket.connect_to_server()

        await late.route_web_socket(re.compile("/ws/"), hold)
        await late.goto(chat.page.url)
        await expect(late.get_by_label("Answering agent")).to_have_value("assistant")
        await chat.page.get_by_label("Answering agent").select_option("florist")
        await expect(chat.page.locator("#status")).to_contain_text("florist answers")
        may_connect.set()
        await expect(late.get_by_label("Answering agent")).to_have_value("florist")
