"""Text that runs from right to left: each line in its own direction, on a page of the other."""

import pytest
from playwright.async_api import expect

from tests.e2e.test_streaming import growing, slowly

pytestmark = pytest.mark.asyncio(loop_scope="session")

HEBREW = "מה שלומך היום"
# Both scripts measure one character, because a text that goes on for more than a line fills the whole width.
BEGINS_AT_THE_RIGHT = """
    (line) => {
        const range = document.createRange();
        const first = document.createTreeWalker(line, NodeFilter.SHOW_TEXT).nextNode();
        range.setStart(first, 0);
        range.setEnd(first, 1);
        return Math.abs(range.getBoundingClientRect().right - line.getBoundingClientRect().right) < 2;
    }
"""
GAP_AFTER_CODE = """
    (line) => {
        const range = document.createRange();
        const code = line.querySelector("code");
        range.setStart(code.nextSibling, 0);
        range.setEnd(code.nextSibling, 1);
        return Math.abs(range.getBoundingClientRect().left - code.getBoundingClientRect().right);
    }
"""


async def test_code_that_turns_the_direction_around_leaves_what_follows_as_it_is(browser_user):
    chat = await browser_user.start_conversation(slowly("`a\u202eb` and so on ", words=2_000))
    growing_line = growing(chat).locator("p")
    await expect(growing_line).to_contain_text("a\u202eb and so on word")
    assert await growing_line.evaluate(GAP_AFTER_CODE) < 2
    await chat.cancel()
    stored_line = chat.answers.last.locator(".prose > p")
    await expect(stored_line).to_contain_text("a\u202eb and so on word")
    assert await stored_line.evaluate(GAP_AFTER_CODE) < 2


async def test_a_title_is_not_turned_around_by_what_stands_in_its_message(browser_user):
    chat = await browser_user.start_conversation()
    await chat.say("say \u202eelpmaxe \u2067one\u2069 \u05d0\n\u202bmore")
    await chat.has_ended()
    title = "say elpmaxe one \u05d0 more"
    for _look in range(2):
        await expect(chat.page.locator("#title")).to_have_text(title)
        await expect(chat.page).to_have_title(f"{title} · Turnkeeper")
        listed = chat.page.locator(".list-entry").filter(has_text="elpmaxe")
        assert await listed.get_attribute("data-title") == title
        await chat.page.reload()


@pytest.mark.parametrize(("text", "from_the_right"), [(HEBREW, True), ("Straight on.", False)])
async def test_a_line_from_right_to_left_begins_at_the_right(browser_user, text, from_the_right):
    chat = await browser_user.start_conversation(slowly(f"{text} ", words=2_000))
    growing_line = growing(chat).locator("p")
    await expect(growing_line).to_contain_text(f"{text} word")
    assert await growing_line.evaluate(BEGINS_AT_THE_RIGHT) == from_the_right
    await chat.cancel()
    stored_line = chat.answers.last.locator(".prose > p")
    await expect(stored_line).to_contain_text(f"{text} word")
    assert await stored_line.evaluate(BEGINS_AT_THE_RIGHT) == from_the_right
