"""Where a person reads: the message at the top, its answer below it, the rest a press away."""

import pytest
from playwright.async_api import expect

from tests.e2e.browser_user import BrowserUser
from tests.e2e.chat import Chat
from tests.e2e.test_accessibility import check
from tests.support import eventually

pytestmark = pytest.mark.asyncio(loop_scope="session")

LOW = {"width": 900, "height": 460}
SLOWLY = "slowly " + " ".join(f"word{number}" for number in range(12))


async def top_of(chat: Chat, said: str) -> float:
    """Return how far below the upper edge of the conversation a message begins."""
    return float(
        await chat.turn(said)
        .locator(".message-user")
        .evaluate(
            "node => node.getBoundingClientRect().top - node.closest('#transcript').getBoundingClientRect().top"
        )
    )


async def is_at_top(chat: Chat) -> bool:
    """Return whether the conversation shows its beginning."""
    return bool(await chat.transcript.evaluate("log => log.scrollTop === 0"))


async def test_a_message_goes_to_the_top_and_its_long_answer_is_not_followed_beyond_a_screen(
    browser_user: BrowserUser,
):
    chat = await browser_user.start_conversation()
    await chat.page.set_viewport_size(LOW)
    more = chat.page.get_by_role("button", name="More: go to the newest message")
    for said in ("say first", "say second"):
        await chat.say(said)
        await chat.has_ended()
        await expect(chat.turn(said).locator(".message-agent")).to_have_count(1)
        assert 0 <= await top_of(chat, said) < 40
        await expect(more).to_be_hidden()
    await chat.say("help")
    await expect(more).to_be_visible()
    await chat.has_ended()
    assert 0 <= await top_of(chat, "help") < 40
    await expect(chat.answers.last).to_be_in_viewport()
    await check(chat.page)
    await more.click()
    await expect(more).to_be_hidden()
    await expect(chat.turn("help").locator(":scope > .message-actions")).to_be_in_viewport()
    await chat.say("say third")
    await chat.has_ended()
    assert 0 <= await top_of(chat, "say third") < 40
    await chat.page.reload()
    await expect(chat.answers).to_have_count(4)
    await expect(chat.turn("say third").locator(":scope > .message-actions")).to_be_in_viewport()


async def test_who_reads_elsewhere_stays_there_and_another_tab_sees_the_message_at_the_top(
    browser_user: BrowserUser,
):
    chat = await browser_user.start_conversation()
    await chat.page.set_viewport_size(LOW)
    for said in ("say first", "help"):
        await chat.say(said)
        await chat.has_ended()
    other = await browser_user.join(chat)
    await other.page.set_viewport_size(LOW)
    await expect(other.answers).to_have_count(2)
    await chat.transcript.hover()
    await chat.page.mouse.wheel(0, -5000)
    await eventually(lambda: is_at_top(chat))
    await other.say(SLOWLY)
    await expect(chat.answers.last).to_contain_text("word11")
    await chat.has_ended()
    assert await is_at_top(chat)
    assert 0 <= await top_of(other, SLOWLY) < 40


async def test_a_message_longer_than_the_screen_leaves_room_for_its_answer(
    browser_user: BrowserUser,
):
    chat = await browser_user.start_conversation()
    await chat.page.set_viewport_size(LOW)
    await chat.say("say first")
    await chat.has_ended()
    await chat.say("say " + "\n  ".join(f"line {number}" for number in range(60)))
    await chat.has_ended()
    await expect(chat.answers.last).to_be_in_viewport()
    assert await top_of(chat, "say first") < 0
