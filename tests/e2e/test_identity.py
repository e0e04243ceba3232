"""Whose conversation it is: strangers find nothing, and a sign-out is noticed everywhere."""

import pytest
from playwright.async_api import expect

from tests.e2e.test_accessibility import check

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_conversation_of_somebody_else_does_not_exist(open_browser, browser_user, site):
    admin = await open_browser(site, user="admin")
    foreign = await admin.start_conversation()
    browser_user.expect_problem("status of 404")
    page = await browser_user.context.new_page()
    answer = await page.goto(foreign.page.url)
    assert answer.status == 404
    await expect(page.get_by_role("heading", name="There is nothing here")).to_be_visible()
    await check(page)


async def test_who_is_not_signed_in_signs_in_and_gets_what_was_asked_for(
    open_browser, browser_user, site
):
    chat = await browser_user.start_conversation()
    nobody = await open_browser(site, user=None)
    page = await nobody.open(chat.page.url.removeprefix(site.url))
    await expect(page.get_by_role("heading", name="Sign in to Turnkeeper")).to_be_visible()
    await page.get_by_label("Username").fill("demo")
    await page.get_by_label("Password").fill("wrong")
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.get_by_role("alert")).to_contain_text("correct username and password")
    await check(page)
    await nobody.sign_in(page)
    await expect(page).to_have_url(chat.page.url)
    await expect(page.locator("#connection")).to_have_text("Connected")


async def test_a_sign_out_in_another_tab_is_noticed(open_browser, site):
    person = await open_browser(site, user=None)
    page = await person.open("/")
    await person.sign_in(page)
    chat = await person.start_conversation(page)
    other = await person.join(chat)
    await other.page.get_by_role("button", name="Sign out").click()
    await expect(other.page.get_by_role("heading", name="You are signed out")).to_be_visible()
    await check(other.page)
    await expect(chat.connection).to_have_text("Signed out")
    await expect(page.get_by_text("Your session ended.")).to_be_visible()
    await expect(page.get_by_role("link", name="Sign in")).to_be_visible()
    await check(page)
