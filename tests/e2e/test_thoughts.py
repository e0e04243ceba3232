"""What a model thinks: folded above what came of it, while it streams and for good."""

import pytest
from playwright.async_api import expect

from tests.e2e.browser_user import BrowserUser
from tests.e2e.scripted_socket import ScriptedSocket
from tests.e2e.test_accessibility import check

pytestmark = pytest.mark.asyncio(loop_scope="session")

LONG = f"think Let me see. {'Hm. ' * 60}\nslowly {'word ' * 20}end"


async def test_thoughts_are_folded_and_opened_by_click_or_key(browser_user: BrowserUser):
    chat = await browser_user.start_conversation(LONG)
    fold = chat.page.locator("details.thoughts")
    summary = fold.locator("summary")
    words = fold.locator(".thoughts-text")

    await expect(summary).to_have_text("Thinking…")
    await expect(words).to_be_hidden()
    await summary.click()
    await expect(words).to_contain_text("Let me see. Hm. ")
    await expect(summary).to_have_text("Thoughts")  # the answer has begun
    await chat.has_ended()

    await expect(summary).to_have_text(f"Thought for {await seconds_in(summary)} s")
    await expect(words).to_be_visible()  # what somebody reads does not close
    await check(chat.page)
    await chat.page.reload()
    await expect(summary).to_have_text(f"Thought for {await seconds_in(summary)} s")
    await expect(words).to_be_hidden()
    await summary.focus()
    await chat.page.keyboard.press("Enter")
    await expect(words).to_contain_text("Let me see. Hm. ")
    await expect(chat.answers.last).not_to_contain_text("Let me see.")


async def seconds_in(summary) -> int:
    """The seconds that a fold names: about twelve words are thought in each."""
    await expect(summary).to_contain_text("Thought for")
    seconds = int((await summary.inner_text()).split()[2])
    assert seconds >= 4
    return seconds


async def test_above_a_message_stands_why_the_model_reads_the_conversation_anew(
    browser_user: BrowserUser,
):
    page = await browser_user.context.new_page()
    socket = ScriptedSocket(turns=1, calls=0)
    await socket.stand_behind(page)
    chat = await browser_user.start_conversation(page=page)
    socket.begin_turn()
    socket.go_on(type="prompt_changed", reason="tools")
    turn = chat.page.locator(".turn").last

    await expect(turn.locator(":scope > :first-child")).to_have_text(
        "The agent's tools have changed, so the model reads the whole conversation again."
    )
