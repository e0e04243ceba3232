"""A browser that keeps nothing, or no more: the page works as long as it is open."""

import pytest
from playwright.async_api import expect

from tests.e2e.browser_user import BrowserUser

pytestmark = pytest.mark.asyncio(loop_scope="session")

FILL = """() => {
  for (let size = 2 ** 23, number = 0; size >= 1; size /= 2) {
    try {
      for (;;) sessionStorage.setItem(`filler ${number++}`, "x".repeat(size));
    } catch {}
  }
}"""
FORBID = """
for (const name of ["localStorage", "sessionStorage"]) {
  Object.defineProperty(window, name, { get() { throw new DOMException("Forbidden.", "SecurityError"); } });
}"""


async def test_full_storage_keeps_no_message_back(browser_user: BrowserUser):
    chat = await browser_user.start_conversation()
    await chat.page.evaluate(FILL)
    for number, text in enumerate(("say one", "say two"), 1):
        await chat.say(text)
        await expect(chat.composer).to_be_empty()
        await expect(chat.answers).to_have_count(number)
        await chat.has_ended()
    await expect(chat.sent).to_have_count(2)


async def test_page_without_any_storage_works(browser_user: BrowserUser):
    await browser_user.add_script(FORBID)
    chat = await browser_user.begin(await browser_user.open("/"))
    await chat.say("say one")
    await expect(chat.answers).to_contain_text("one")
    await chat.has_ended()
    await expect(chat.composer).to_be_empty()
