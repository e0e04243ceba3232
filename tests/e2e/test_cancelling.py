"""Cancelling a turn: by button, by key, by word, from another tab; and what stands on the page afterwards."""

import asyncio
import json
from functools import partial

import pytest
from playwright.async_api import Route, expect

from tests.e2e.chat import cancel_button, has_started, was_cancelled
from tests.e2e.site import UNTIL_TOLD
from tests.e2e.test_accessibility import check
from tests.e2e.test_attachments import PHOTO, waiting
from tests.support import eventually

pytestmark = pytest.mark.asyncio(loop_scope="session")


def never_sent(chat, text):
    """Return the line under a message that the agent has not got."""
    return chat.turn(text).locator(".turn-end:has(.turn-send_again)")


@pytest.mark.parametrize("means", ["button", "Esc"])
async def test_a_cancelled_turn_is_over_for_good_and_the_next_message_works(browser_user, means):
    chat = await browser_user.start_conversation()
    await expect(chat.cancel_turn).to_be_hidden()
    await chat.say("within 30min wait 600\nwithin 30min wait 610")
    for seconds in (600, 610):
        await has_started(chat.card(f"seconds: {seconds}"))
    if means == "button":
        await chat.cancel_turn.click()
    else:
        await chat.page.keyboard.press("Escape")
    await expect(chat.ending("cancelled")).to_be_visible()
    await chat.has_ended()
    for seconds in (600, 610):
        await was_cancelled(chat.card(f"seconds: {seconds}"))
    await expect(chat.composer).to_be_focused()
    await chat.say("say Still here.")
    await expect(chat.answers.last).to_contain_text("Still here.")
    await chat.has_ended()


async def test_the_answer_to_a_cancel_word_is_shown_and_stands_in_no_history(browser_user):
    chat = await browser_user.start_conversation("slowly " + "word " * 300)
    await expect(chat.answers.last).to_contain_text("word")
    await chat.ask("Make it stop!")
    await chat.say("within 30min wait 600\nwithin 30min wait 610")
    for seconds in (600, 610):
        await has_started(chat.card(f"seconds: {seconds}"))
    await chat.ask("Kannst du das bitte abbrechen?")
    chips = ["Make it stop! · Cancelled.", "Kannst du das bitte abbrechen? · cancelled 2 tools"]
    shown = chat.page.locator(".message-command")
    for _time in range(2):
        await expect(shown).to_have_count(2)
        assert [
            " · ".join(await chip.locator("> *").all_inner_texts()) for chip in await shown.all()
        ] == chips
        await chat.page.reload()
    site, _, conversation_id = chat.page.url.rstrip("/").rpartition("/c/")
    for section in await chat.page.locator("section.turn").all():
        turn_id = await section.get_attribute("data-turn-id")
        turn = await (await chat.page.request.get(f"{site}/api/turns/{turn_id}")).json()
        assert [answer["text"] for answer in turn["acknowledgements"]] == ["Cancelled."]
    path = f"{site}/api/conversations/{conversation_id}/history"
    history = json.dumps(await (await chat.page.request.get(path)).json())
    assert "wait 600" in history
    for unreachable in ("Make it stop", "Kannst du", "Cancelled."):
        assert unreachable not in history


async def test_a_call_that_waits_says_for_what_also_after_a_reload(browser_user):
    chat = await browser_user.start_conversation("within 30min wait 600\nwrite notes.txt: hello")
    waiting = chat.card("notes.txt").locator(".call-note")
    said = "waiting for wait, because write_file must run alone"
    await expect(waiting).to_have_text(said)
    await chat.page.reload()
    await expect(waiting).to_have_text(said)
    await cancel_button(chat.card("seconds: 600")).click()
    await expect(waiting).not_to_contain_text("waits")
    await chat.has_ended()


async def test_both_tabs_show_everything_and_closing_one_cancels_nothing(browser_user):
    first = await browser_user.start_conversation()
    second = await browser_user.join(first)
    await first.say("within 30min wait 600\nwithin 30min wait 610")
    for tab in (first, second):
        await expect(tab.cards).to_have_count(2)
        await expect(tab.sent).to_have_count(1)
    third = await browser_user.join(first)
    await expect(third.cards).to_have_count(2)
    await third.page.close()
    await cancel_button(second.card("seconds: 610")).click()
    for tab in (first, second):
        await was_cancelled(tab.card("seconds: 610"))
        await has_started(tab.card("seconds: 600"))
    await first.cancel_turn.click()
    for tab in (first, second):
        await expect(tab.ending("cancelled")).to_be_visible()
        await tab.has_ended()


async def test_a_queued_message_is_seen_everywhere_and_never_sent_after_a_cancel(browser_user):
    first = await browser_user.start_conversation()
    second = await browser_user.join(first)
    await first.say("within 30min wait 600")
    await expect(first.cards).to_have_count(1)
    await expect(first.page.get_by_role("button", name="Queue")).to_be_visible()
    await first.say("say Too late.")
    for tab in (first, second):
        await expect(tab.queue).to_have_text("say Too late.")
        await expect(tab.cancel_turn).to_contain_text("Cancel task and 1 queued")
    await second.cancel_turn.click()
    for tab in (first, second):
        await expect(
            tab.turn("within 30min wait 600").locator(".turn-end[data-status=cancelled]")
        ).to_be_visible()
        await expect(never_sent(tab, "say Too late.")).to_contain_text("Not sent to the agent")
        await tab.has_ended()
        await expect(tab.ending("cancelled")).to_be_in_viewport()
        await expect(tab.turn("say Too late.")).to_be_in_viewport()
        again = tab.turn("within 30min wait 600").get_by_role("button", name="Try again")
        await expect(again).to_be_visible()
    await first.page.reload()
    await expect(never_sent(first, "say Too late.")).to_be_visible()
    await expect(first.answers).to_have_count(1)


async def test_a_queued_message_is_edited_removed_and_sent_again(browser_user):
    chat = await browser_user.start_conversation("within 30min wait 600")
    await expect(chat.cards).to_have_count(1)
    for text in ("say One.", "say Two.", "say Three."):
        await chat.say(text)
    await expect(chat.queue).to_have_text(["say One.", "say Two.", "say Three."])
    await expect(chat.cancel_turn).to_contain_text("Cancel task and 3 queued")
    await check(chat.page)
    await chat.composer.fill("written meanwhile")
    await chat.page.get_by_role("button", name="Edit “say One.”").click()
    await expect(chat.composer).to_have_value("say One.\nwritten meanwhile")
    await chat.page.get_by_role("button", name="Remove “say Two.” from the queue").click()
    await expect(chat.queue).to_have_text(["say Three."])
    await has_started(chat.card("seconds: 600"))
    await chat.composer.fill("")
    await chat.cancel()
    for _time in range(2):  # what was taken back is on the page no more, and after a reload neither
        await expect(never_sent(chat, "say Three.")).to_be_visible()
        await expect(chat.turn("say One.").or_(chat.turn("say Two."))).to_have_count(0)
        await chat.page.reload()
    await chat.turn("say Three.").get_by_role("button", name="Send again", exact=True).dblclick()
    await expect(chat.answers.filter(has_text="Three.")).to_have_count(1)
    await chat.has_ended()


PRESS = """button => button.dispatchEvent(
  new MouseEvent("mousedown", { bubbles: true, cancelable: true }))"""


@pytest.mark.parametrize("means", ["keyboard", "mouse"])
async def test_the_turn_ends_after_this_step_where_the_menu_is_asked_and_esc_closes_the_menu(
    browser_user, means
):
    chat = await browser_user.start_conversation()
    second = await browser_user.join(chat)
    await chat.say(UNTIL_TOLD)
    await has_started(chat.cards.last)
    more = chat.page.get_by_role("button", name="More ways to cancel")
    await more.click()
    later = chat.page.get_by_role("button", name="Cancel after this step")
    await expect(later).to_be_focused()
    await expect(later).to_be_in_viewport(ratio=1)
    await chat.page.keyboard.press("Escape")
    await expect(more).to_be_focused()
    await more.click()
    for button in (later, more):
        assert not await button.evaluate(PRESS)  # so that Safari takes no focus from the menu
    site, accepted = browser_user.site, "mode=after_step"
    asked_before = site.said.count(accepted)
    if means == "mouse":
        await later.click()
    else:
        await chat.page.keyboard.press("Enter")
    await expect(chat.running_bar).to_contain_text("ends after this step")
    # The page says so at the click. Only what the server has accepted counts.
    await eventually(lambda: site.said.count(accepted) > asked_before)
    await chat.page.reload()
    for tab in (chat, second):
        await expect(tab.running_bar).to_contain_text("ends after this step")
        await expect(tab.page.get_by_role("button", name="More ways to cancel")).to_be_hidden()
    site.let_go()
    await expect(chat.ending("cancelled")).to_be_visible()
    await expect(chat.cards.last).to_have_attribute("data-status", "succeeded")
    await chat.has_ended()


async def test_what_merely_begins_with_a_cancel_word_is_asked_about_before_it_is_sent(browser_user):
    chat = await browser_user.start_conversation()
    await chat.say("stop using so many words")  # nothing runs: an ordinary message
    await expect(chat.answers).to_have_count(1)
    await chat.has_ended()
    await chat.say("within 30min wait 600")  # the rules of axe take long on a slow machine
    await has_started(chat.cards.last)
    await chat.page.get_by_role("button", name="More ways to cancel").click()
    await check(chat.page)
    for answer in ("Escape", "Escape in the composer", "Send", "Stop"):
        await chat.say("Stop, don't do anything")
        stop = chat.page.get_by_role("button", name="Stop", exact=True)
        await expect(stop).to_be_focused()
        await check(chat.page)
        if answer.startswith("Escape"):
            if answer != "Escape":
                await chat.composer.click()
            await chat.page.keyboard.press("Escape")
            await expect(stop).to_be_hidden()
            await chat.is_painted()
            await expect(chat.cancel_turn).to_be_enabled()
            await has_started(chat.cards.last)
        elif answer == "Send":
            await chat.answer_stop_question(chat.page.locator("#stop-question-send").click)
            await expect(chat.queue).to_have_text("Stop, don't do anything")
            await expect(chat.composer).to_be_empty()
        else:
            await chat.answer_stop_question(partial(stop.press, "Enter"))
            await was_cancelled(chat.cards.last)
            await expect(chat.composer).to_have_value("Stop, don't do anything")
            await chat.composer.fill("")
    await chat.has_ended()


SEND_TWICE = """field => {
  const { now: real } = performance; // maybe that of an installed clock
  const now = performance.now();
  performance.now = () => now;
  field.form.requestSubmit();
  document.activeElement.click();
  performance.now = real;
  return document.activeElement.id;
}"""
HELD_ENTER = """button => button.dispatchEvent(
  new KeyboardEvent("keydown", { key: "Enter", repeat: true, bubbles: true, cancelable: true }))"""


async def test_second_or_held_enter_does_not_answer_whether_to_stop(browser_user):
    chat = await browser_user.start_conversation("within 30min wait 600")
    await has_started(chat.cards.last)
    await chat.composer.fill("Stop, don't do anything")
    assert await chat.composer.evaluate(SEND_TWICE) == "stop-question-stop"
    assert not await chat.page.locator("#stop-question-stop").evaluate(HELD_ENTER)
    await chat.is_painted()
    await expect(chat.cancel_turn).to_be_enabled()
    await has_started(chat.cards.last)
    await chat.cancel()


async def test_what_is_sent_all_the_same_is_checked_as_any_other_message(browser_user):
    chat = await browser_user.start_conversation("within 30min wait 600")
    await has_started(chat.cards.last)
    send = chat.page.locator("#stop-question-send").click
    await chat.say("Stop, don't do anything")
    await chat.composer.fill("")
    await chat.answer_stop_question(send)
    may_arrive = asyncio.Event()

    async def hold(route: Route) -> None:
        await may_arrive.wait()
        await route.continue_()

    await chat.page.route("**/api/attachments?*", hold)
    await chat.say("Stop, look at this")
    await chat.page.locator("#attach-input").set_input_files([PHOTO])
    await expect(waiting(chat).locator("progress")).to_be_visible()
    await chat.answer_stop_question(send)
    await expect(chat.composer).to_have_value("Stop, look at this")
    may_arrive.set()
    await expect(waiting(chat).locator("progress")).to_have_count(0)
    await expect(waiting(chat)).to_have_count(1)
    await chat.composer.press("Enter")
    await chat.answer_stop_question(send)
    await expect(waiting(chat)).to_have_count(0)
    await expect(chat.queue).to_have_text(["Stop, look at this · photo.png"])
    await chat.cancel()
