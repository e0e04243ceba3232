"""A conversation of 2,000 messages and 500 calls: few elements, and only what changes is painted."""

from itertools import pairwise

import pytest
import pytest_asyncio
from playwright.async_api import expect

from tests.e2e.chat import Chat
from tests.e2e.scripted_socket import LIVE, ScriptedSocket
from tests.e2e.test_editing import edit_button, editor
from tests.support import eventually

pytestmark = pytest.mark.asyncio(loop_scope="session")

TURNS = 750
CALLS = 500
MOST_TURNS = 70
MOST_ELEMENTS = 3_000
ELEMENTS = "log => log.querySelectorAll('*').length"
WATCH_TURNS = """log => {
  window.painted = new Set();
  new MutationObserver((changes) => {
    for (const { target } of changes) {
      const element = target instanceof Element ? target : target.parentElement;
      const turn = element?.closest(".turn");
      if (turn) window.painted.add(turn.dataset.turnId);
    }
  }).observe(log, { subtree: true, childList: true, characterData: true, attributes: true });
}"""


@pytest_asyncio.fixture(loop_scope="session")
async def long_chat(browser_user):
    """Return a tab with the conversation, and what stands behind its socket."""
    begun = await browser_user.start_conversation()
    page = await browser_user.context.new_page()
    socket = ScriptedSocket(turns=TURNS, calls=CALLS)
    await socket.stand_behind(page)
    await page.goto(begun.page.url)
    chat = Chat(page)
    await expect(chat.answers.last).to_contain_text(f"Answer {TURNS - 1}.")
    return chat, socket


async def is_bounded(chat: Chat) -> None:
    assert await chat.page.locator(".turn").count() <= MOST_TURNS
    assert await chat.transcript.evaluate(ELEMENTS) <= MOST_ELEMENTS


async def test_far_turns_have_no_elements_and_come_back_when_they_are_scrolled_to(long_chat):
    chat, _socket = long_chat
    await expect(chat.answers.last).to_be_in_viewport()
    await is_bounded(chat)
    await chat.transcript.evaluate("log => { log.scrollTop = 0; }")
    await expect(chat.turn("Question 0.")).to_be_in_viewport()
    await is_bounded(chat)
    await expect(chat.turn(f"Question {TURNS - 1}.")).to_have_count(0)
    await expect(chat.page.locator(".turn").last).to_have_css("content-visibility", "auto")
    await chat.transcript.evaluate("log => { log.scrollTop = log.scrollHeight / 2; }")
    await expect(chat.turn("Question 0.")).to_have_count(0)
    await is_bounded(chat)
    await chat.page.get_by_role("button", name="More: go to the newest message").click()
    await expect(chat.turn(f"Question {TURNS - 1}.")).to_be_in_viewport()
    await is_bounded(chat)


async def test_the_focus_is_where_writing_goes_on_once_there_is_no_more(long_chat):
    chat, _socket = long_chat
    await chat.transcript.evaluate("log => { log.scrollTop = 0; }")
    more = chat.page.get_by_role("button", name="More: go to the newest message")
    await more.press("Enter")
    await expect(more).to_be_hidden()
    await expect(chat.composer).to_be_focused()


async def test_what_is_read_stays_in_its_place_while_others_come_and_go(long_chat):
    chat, _socket = long_chat
    await chat.page.mouse.move(640, 300)
    seen = []
    for _ in range(30):
        read = chat.page.locator(".turn").filter(visible=True)
        before = await _first_in_sight(chat)
        await chat.page.mouse.wheel(0, -300)
        await eventually(lambda before=before: _has_moved(chat, before))
        seen.append(await _first_in_sight(chat))
        assert await read.count() > 0
    numbers = [int(turn_id[1:]) for turn_id, _top in seen]
    assert numbers == sorted(numbers, reverse=True)
    assert numbers[0] - numbers[-1] > 20
    assert all(one - other < 8 for one, other in pairwise(numbers)), numbers


async def test_message_that_is_edited_keeps_its_text_while_it_has_no_place_on_the_page(long_chat):
    chat, _socket = long_chat
    await chat.transcript.evaluate("log => { log.scrollTop = 0; }")
    await edit_button(chat, "Question 0.").click()
    await editor(chat).fill("Question nought.")
    await chat.page.get_by_role("button", name="More: go to the newest message").click()
    await expect(chat.turn(f"Question {TURNS - 1}.")).to_be_in_viewport()
    await expect(editor(chat)).to_have_count(0)
    await chat.transcript.evaluate("log => { log.scrollTop = 0; }")
    await expect(editor(chat)).to_have_value("Question nought.")
    await expect(editor(chat)).to_be_in_viewport()
    await is_bounded(chat)


async def test_only_the_turn_that_changes_is_painted_while_text_comes(long_chat):
    chat, socket = long_chat
    socket.begin_turn()
    await expect(chat.turn("Write.")).to_be_visible()
    socket.send(type="text_delta", turn_id=LIVE, text="First ", offset=0)
    await expect(chat.answers.last).to_contain_text("First")
    await chat.transcript.evaluate(WATCH_TURNS)
    await socket.write(pieces=200, per_second=200)
    await expect(chat.answers.last).to_contain_text("word, " * 200)
    assert await chat.page.evaluate("[...window.painted]") == [LIVE]
    await is_bounded(chat)


async def test_an_answer_without_a_word_says_so_and_is_asked_for_again(long_chat):
    chat, socket = long_chat
    socket.begin_turn()
    socket.go_on(type="error", code="answer_empty", message="Not a word.")
    socket.go_on(type="turn_end", status="completed", duration_ms=1_000, usage={})
    await expect(chat.transcript.get_by_text("Not a word.")).to_be_in_viewport()
    turn = chat.turn("Write.")
    await expect(turn.get_by_role("button", name="Copy the answer")).to_have_count(0)
    await expect(turn.get_by_role("button", name="Try again")).to_be_visible()


async def _first_in_sight(chat: Chat) -> tuple[str, float]:
    return await chat.transcript.evaluate(
        """log => {
          const top = log.getBoundingClientRect().top;
          const turn = [...log.querySelectorAll(".turn")].find((one) => one.getBoundingClientRect().bottom > top);
          return [turn?.dataset.turnId ?? "", turn?.getBoundingClientRect().top ?? 0];
        }"""
    )


async def _has_moved(chat: Chat, before: tuple[str, float]) -> bool:
    return await _first_in_sight(chat) != before
