"""What tools and models say is text: nothing of it runs, and nothing of it becomes part of the page."""

import pytest
from playwright.async_api import expect

pytestmark = pytest.mark.asyncio(loop_scope="session")

SCRIPT = "<script>window.hit = 1</script><img src=x onerror='window.hit = 1'>"


async def test_html_and_scripts_of_tools_and_models_stay_text(browser_user):
    chat = await browser_user.start_conversation()
    await chat.say(f'run echo "{SCRIPT}"')
    await expect(chat.answers.last).to_contain_text("succeeded")
    await chat.cards.get_by_role("button", expanded=False).click()
    await expect(chat.cards.get_by_label("Result", exact=True)).to_contain_text(SCRIPT)
    await chat.say(f"say **bold** {SCRIPT} <b>x</b> [l](javascript:alert(1)) ![p](//example.org/p)")
    await expect(chat.answers.last.locator("strong")).to_have_text("bold")
    await expect(chat.sent.last).to_contain_text("**bold** <script>")
    await chat.page.reload()
    await expect(chat.answers.last.locator("strong")).to_have_text("bold")
    assert await chat.transcript.locator("script, img, b, a[href^=javascript]").count() == 0
    assert await chat.page.evaluate("window.hit") is None
