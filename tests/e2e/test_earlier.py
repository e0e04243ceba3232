"""A long conversation: the page shows its end, and what came before when it is asked to."""

import pytest
from playwright.async_api import expect

from tests.e2e.chat import Chat
from tests.e2e.site import Site
from tests.support import eventually

pytestmark = pytest.mark.asyncio(loop_scope="session")

WORDS = ".message-text, .step-words, .call-name, .turn-end"


@pytest.fixture
def small_site(own_site_of) -> Site:
    """Serve a site whose pages begin with six messages."""
    return own_site_of(DJANGO_SETTINGS_MODULE="tests.e2e.few_messages")


async def place_of(chat: Chat, text: str) -> float:
    """Return where a message stands on the screen."""
    box = await chat.sent.filter(has_text=text).bounding_box()
    assert box is not None
    return float(box["y"])


async def test_earlier_messages_come_above_and_what_is_read_stays_in_its_place(
    small_site, open_browser
):
    browser_user = await open_browser(small_site)
    first = await browser_user.start_conversation()
    await first.page.set_viewport_size({"width": 900, "height": 420})
    await first.say("wait 0\nwait 0")
    for number in range(1, 8):
        await expect(first.running_bar).to_be_hidden()
        await first.say(f"say number {number}")
        await expect(first.answers.filter(has_text=f"number {number}")).to_have_count(1)
    await first.has_ended()
    written = await first.page.locator(WORDS).all_text_contents()

    chat = await browser_user.join(first)
    await chat.page.set_viewport_size({"width": 900, "height": 420})
    show = chat.page.get_by_role("button", name="Show earlier messages")
    await expect(chat.sent).to_have_count(3)
    await expect(chat.sent.first).to_contain_text("say number 5")
    await show.focus()
    await chat.transcript.evaluate("log => { log.scrollTop = 0; }")
    before = await place_of(chat, "say number 5")
    await chat.page.keyboard.press("Enter")

    await expect(chat.sent).to_have_count(6)
    await expect(chat.page.locator("#status")).to_have_text("6 earlier messages shown.")
    assert abs(await place_of(chat, "say number 5") - before) < 2
    await expect(show).to_be_focused()
    while await show.is_visible():
        count = await chat.sent.count()
        await show.press("Enter")

        async def has_come(count: int = count) -> bool:
            return await chat.sent.count() > count

        await eventually(has_come)
    await expect(chat.transcript).to_be_focused()
    await expect(chat.cards).to_have_count(2)
    assert await chat.page.locator(WORDS).all_text_contents() == written
    await chat.say("say once more")
    await expect(chat.answers.filter(has_text="once more")).to_have_count(1)
