"""What a lost connection, a reload and a crash of the server leave: no gap, no duplicate, no spinning card."""

import re

import pytest
from playwright.async_api import Error, Page, expect

from tests.e2e.browser_user import BrowserUser
from tests.e2e.chat import Chat, cancel_button, state, was_cancelled
from tests.e2e.site import UNTIL_TOLD
from tests.support import eventually

pytestmark = pytest.mark.asyncio(loop_scope="session")

WORDS = " ".join(f"w{number}" for number in range(40))


async def test_a_reload_in_mid_turn_shows_the_same_cards_which_can_still_be_cancelled(browser_user):
    chat = await browser_user.start_conversation()
    await chat.say("wait 5\nwithin 30min wait 600\nwithin 30min wait 610")
    await expect(chat.cards).to_have_count(3)
    for _time in range(2):
        await chat.page.reload()
        await expect(chat.connection).to_have_attribute("data-status", "online")
        await expect(chat.cards).to_have_count(3)
        await expect(chat.sent).to_have_count(1)
        await expect(chat.cancel_turn).to_be_visible()
    for seconds in (600, 610):
        await cancel_button(chat.card(f"seconds: {seconds}")).click()
        await was_cancelled(chat.card(f"seconds: {seconds}"))
    await expect(chat.answers.last).to_contain_text("1 of 3")
    await chat.has_ended()
    shown = await chat.transcript.inner_text()
    await chat.page.reload()
    await expect(chat.cards).to_have_count(3)
    await expect(chat.answers.last).to_contain_text("1 of 3")
    await expect(chat.transcript).to_have_text(shown, use_inner_text=True)
    await chat.has_ended()


async def test_a_network_loss_in_mid_turn_leaves_no_gap_and_no_duplicate(browser_user):
    browser_user.expect_connection_loss()
    chat = await browser_user.start_conversation()
    await chat.say(f"wait 1\nslowly {WORDS}\nthen\n{UNTIL_TOLD}")
    await expect(chat.answers.first).to_contain_text("w5 ")
    await browser_user.context.set_offline(True)
    await expect(chat.connection).to_have_attribute("data-status", "offline")
    await expect(chat.page.locator("#banner-text")).to_contain_text(
        "When you are back online, this page shows what you missed."
    )
    await browser_user.context.set_offline(False)
    await expect(chat.connection).to_have_attribute("data-status", "online")
    browser_user.site.let_go()
    await expect(chat.answers.last).to_contain_text("2 of 2")
    await chat.has_ended()
    await expect(chat.cards).to_have_count(2)
    text = await chat.transcript.inner_text()
    assert [text.count(f"{word} ") for word in WORDS.split()[:-1]] == [2] * 39
    await chat.page.reload()
    await expect(chat.cards).to_have_count(2)
    await expect(chat.transcript).to_have_text(text, use_inner_text=True)


async def test_a_crash_of_the_server_interrupts_the_turn_and_the_page_comes_back_by_itself(
    own_site, open_browser
):
    person = await open_browser(own_site)
    person.expect_connection_loss()
    chat = await person.start_conversation()
    await chat.say("run sleep 63\nwithin 30min wait 600")
    await eventually(lambda: own_site.processes("sleep 63"))
    own_site.kill()
    await expect(chat.page.locator("#banner-text")).to_contain_text(
        "Reconnecting… This page will then show what you missed"
    )
    await expect(chat.running_bar).to_contain_text("Not connected: working when last seen")
    own_site.start()
    await expect(chat.connection).to_have_attribute("data-status", "online")
    await expect(chat.ending("interrupted")).to_be_visible()
    await chat.has_ended()
    await expect(chat.cards).to_have_count(2)
    await expect(state(chat.card("sleep 63"))).to_contain_text("it may or may not have run")
    await expect(state(chat.card("seconds: 600"))).to_contain_text("not started")
    await eventually(lambda: not own_site.processes("sleep 63"))
    await chat.page.get_by_role("button", name="Continue").dblclick()
    await expect(chat.sent).to_have_count(2)
    await expect(chat.sent.last).to_contain_text("Please continue where you were interrupted.")
    await expect(chat.sent.last).to_contain_text("sent with “Continue”")
    await chat.has_ended()
    await expect(chat.page.get_by_role("button", name="Continue")).to_be_hidden()
    await chat.say("say Back again.")
    await expect(chat.answers.last).to_contain_text("Back again.")
    await chat.has_ended()
    await expect(chat.sent).to_have_count(3)
    admin = await open_browser(own_site, user="admin")
    page = await admin.open("/admin/turns/repair/")
    await expect(page.locator("#result_list tbody tr")).to_have_count(2)
    await page.locator("#result_list tbody th a").first.click()
    await expect(page.get_by_text(re.compile(r"^\[(INTERRUPTED|CANCELLED)\]"))).to_be_visible()


async def sign_out(page: Page) -> None:
    """Press the button, and wait for the page that says it is done: the form asks for a token first."""
    await page.get_by_role("button", name="Sign out").click()
    await expect(page.get_by_role("heading", name="You are signed out")).to_be_visible()


async def written_signed_out(person: BrowserUser, text: str) -> tuple[Chat, Chat]:
    """Sign out in one tab, and write in the other one; return this one and that one."""
    person.expect_problem("status of 401")  # of a list that is read again at that moment
    page = await person.open("/")
    await person.sign_in(page)
    chat = await person.start_conversation(page=page)
    other = await person.join(chat)
    await sign_out(other.page)
    await expect(chat.connection).to_have_attribute("data-status", "signed_out")
    await chat.say(text)
    await expect(chat.unsent).to_have_count(1)
    return chat, other


async def test_what_is_written_signed_out_is_sent_after_a_reload_and_a_sign_in(open_browser, site):
    person = await open_browser(site, user=None)
    chat, _other = await written_signed_out(person, "say Kept.")
    await chat.page.reload()
    await person.sign_in(chat.page)
    await expect(chat.answers.last).to_contain_text("Kept.")
    await expect(chat.sent).to_have_count(1)
    await chat.has_ended()


async def sign_in_elsewhere(person: BrowserUser, chat: Chat, other: Chat, name: str) -> None:
    """Sign in in another tab, and come back to the first one."""
    await other.page.goto(f"{person.site.url}/login/")
    await person.sign_in(other.page, name)
    await expect(other.page.get_by_role("heading", name="Conversations")).to_be_visible()
    await chat.page.bring_to_front()
    await chat.page.evaluate("window.dispatchEvent(new Event('focus'))")


async def test_what_is_written_signed_out_is_sent_after_a_sign_in_in_another_tab(
    open_browser, site
):
    person = await open_browser(site, user=None)
    chat, other = await written_signed_out(person, "say Kept here.")
    await sign_in_elsewhere(person, chat, other, "demo")
    await expect(chat.answers.last).to_contain_text("Kept here.")
    await expect(chat.sent).to_have_count(1)
    await chat.has_ended()


async def test_what_is_written_signed_out_is_never_sent_under_another_user(open_browser, site):
    person = await open_browser(site, user=None)
    chat, other = await written_signed_out(person, "say Mine alone.")
    await sign_in_elsewhere(person, chat, other, "admin")  # who may see the conversation
    await expect(chat.connection).to_have_attribute("data-status", "other_user")
    await chat.page.reload()
    await expect(chat.connection).to_have_attribute("data-status", "online")
    await expect(chat.sent).to_have_count(0)
    await sign_out(chat.page)
    await sign_in_elsewhere(person, chat, other, "demo")
    await chat.page.go_back()
    await expect(chat.answers.last).to_contain_text("Mine alone.")
    await expect(chat.sent).to_have_count(1)
    await expect(chat.sent).to_have_accessible_name(re.compile("^You"))
    await chat.has_ended()


async def test_what_is_written_while_the_server_is_down_outlives_a_reload_and_is_sent_once(
    own_site, open_browser
):
    person = await open_browser(own_site)
    person.expect_connection_loss()
    chat = await person.start_conversation()
    own_site.kill()
    await expect(chat.page.locator("#banner")).to_be_visible()
    await chat.say("say Kept.")
    await expect(chat.sent).to_contain_text("Will be sent when connected")
    address = chat.page.url
    with pytest.raises(Error, match="ERR_CONNECTION_REFUSED"):
        await chat.page.goto(address)
    own_site.start()
    await chat.page.goto(address)
    await expect(chat.answers.last).to_contain_text("Kept.")
    await expect(chat.sent).to_have_count(1)
    await chat.has_ended()


async def test_a_plain_address_of_a_local_network_has_the_whole_chat(browser_user):
    # What browsers offer on trusted addresses alone: https, and the machine itself.
    await browser_user.add_script(
        "delete Crypto.prototype.randomUUID; delete Navigator.prototype.clipboard;"
    )
    chat = await browser_user.start_conversation()
    await chat.say("say Hello.")
    await expect(chat.answers.last).to_contain_text("Hello.")
    await chat.has_ended()
    copy = chat.page.get_by_role("button", name="Copy the answer")
    await copy.click()
    await chat.composer.press("Control+V")
    await expect(chat.composer).to_have_value("Hello.")
    await chat.say("within 30min wait 600")
    await cancel_button(chat.cards.last).click()
    await was_cancelled(chat.cards.last)
    await chat.has_ended()
