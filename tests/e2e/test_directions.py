"""Text that runs from right to left: each line in its own direction, on a page of the other."""

import pytest
from playwright.async_api import expect

pytestmark = pytest.mark.asyncio(loop_scope="session")

HEBREW = "מה שלומך היום"
ENDS_AT_THE_RIGHT = """
    (line) => {
        const range = document.createRange();
        range.selectNodeContents(line);
        return Math.abs(range.getBoundingClientRect().right - line.getBoundingClientRect().right) < 2;
    }
"""


WHERE_IT_BEGINS = """
    (paragraph) => {
        const range = document.createRange();
        const code = paragraph.querySelector("code");
        range.selectNodeContents(code.nextSibling);  // of a growing text, the first of several
        return range.getBoundingClientRect().left - code.getBoundingClientRect().right;
    }
"""


async def test_code_that_turns_the_direction_around_leaves_what_follows_as_it_is(browser_user):
    chat = await browser_user.start_conversation()
    await chat.say("say `a\u202eb` and so on")
    paragraph = chat.answers.last.locator("p")
    await expect(paragraph).to_have_text("a\u202eb and so on")
    assert abs(await paragraph.evaluate(WHERE_IT_BEGINS)) < 2
    await chat.has_ended()
    assert abs(await paragraph.evaluate(WHERE_IT_BEGINS)) < 2


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


async def test_a_line_from_right_to_left_begins_at_the_right(browser_user):
    chat = await browser_user.start_conversation()
    await chat.say(f"say {HEBREW}")
    line = chat.answers.locator("p").last
    await expect(line).to_have_text(HEBREW)
    assert await line.evaluate(ENDS_AT_THE_RIGHT)
    await chat.has_ended()
    await chat.say("say Straight on.")
    await expect(chat.answers.last).to_have_text("Straight on.")
    assert not await chat.answers.last.locator("p").evaluate(ENDS_AT_THE_RIGHT)
    await chat.has_ended()
