"""Cancelling a turn: by button, by key, by word, from another tab; and what stands on the page afterwards."""

import pytest
from playwright.async_api import expect

from tests.e2e.chat import cancel_button, state

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.mark.parametrize("means", ["button", "Esc"])
async def test_a_cancelled_turn_is_over_for_good_and_the_next_message_works(browser_user, means):
    chat = await browser_user.start_conversation()
    await expect(chat.cancel_turn).to_be_hidden()
    await chat.say("wait 60\nwait 61")
    for seconds in (60, 61):
        await expect(state(chat.card(f"seconds: {seconds}"))).to_have_text("running")
    if means == "button":
        await chat.cancel_turn.click()
    else:
        await chat.page.keyboard.press("Escape")
    await expect(chat.ending("Turn cancelled")).to_be_visible()
    await chat.has_ended()
    for seconds in (60, 61):
        await expect(state(chat.card(f"seconds: {seconds}"))).to_contain_text("cancelled by you")
    await expect(chat.composer).to_be_focused()
    await chat.say("say Still here.")
    await expect(chat.answers.last).to_contain_text("Still here.")
    await chat.has_ended()


async def test_a_cancel_word_cancels_what_runs(browser_user):
    chat = await browser_user.start_conversation()
    for seconds, word in enumerate(("stop", "OK, nvm!", "please cancel"), start=60):
        await chat.say(f"wait {seconds}")
        card = chat.card(f"seconds: {seconds}")
        await expect(state(card)).to_have_text("running")
        await chat.say(word)
        await expect(chat.turn(f"wait {seconds}")).to_contain_text("Turn cancelled")
        await expect(state(card)).to_contain_text("cancelled by you")
        await chat.has_ended()
    await expect(chat.page.locator("section.turn")).to_have_count(3)
    await expect(chat.answers.filter(has_text="Cancelled.")).to_have_count(3)
    await chat.page.reload()
    await expect(chat.answers.filter(has_text="Cancelled.")).to_have_count(3)
    await expect(chat.sent).to_contain_text(
        ["wait 60", "stop", "wait 61", "OK, nvm!", "wait 62", "please cancel"]
    )


async def test_a_call_that_waits_says_for_what_also_after_a_reload(browser_user):
    chat = await browser_user.start_conversation()
    await chat.say("wait 60\nwrite notes.txt: hello")
    waiting = state(chat.card("notes.txt"))
    said = "waits until wait has ended, because it runs alone"
    await expect(waiting).to_have_text(said)
    await chat.page.reload()
    await expect(waiting).to_have_text(said)
    await cancel_button(chat.card("seconds: 60")).click()
    await expect(waiting).not_to_contain_text("waits")
    await chat.has_ended()


async def test_a_cancel_word_with_nothing_running_is_an_ordinary_message(browser_user):
    chat = await browser_user.start_conversation()
    await chat.say("nvm")
    await expect(chat.sent).to_have_text("nvm")
    await expect(chat.answers).to_contain_text("only a few commands")
    await chat.has_ended()


async def test_both_tabs_show_everything_and_closing_one_cancels_nothing(browser_user):
    first = await browser_user.start_conversation()
    second = await browser_user.join(first)
    await first.say("wait 60\nwait 61")
    for tab in (first, second):
        await expect(tab.cards).to_have_count(2)
        await expect(tab.sent).to_have_count(1)
    third = await browser_user.join(first)
    await expect(third.cards).to_have_count(2)
    await third.page.close()
    await cancel_button(second.card("seconds: 61")).click()
    for tab in (first, second):
        await expect(state(tab.card("seconds: 61"))).to_contain_text("cancelled by you")
        await expect(state(tab.card("seconds: 60"))).to_have_text("running")
    await first.cancel_turn.click()
    for tab in (first, second):
        await expect(tab.ending("Turn cancelled")).to_be_visible()
        await tab.has_ended()


async def test_a_queued_message_is_seen_everywhere_and_never_sent_after_a_cancel(browser_user):
    first = await browser_user.start_conversation()
    second = await browser_user.join(first)
    await first.say("wait 60")
    await expect(first.cards).to_have_count(1)
    await expect(first.page.get_by_role("button", name="Queue")).to_be_visible()
    await first.say("say Too late.")
    for tab in (first, second):
        await expect(tab.running_bar).to_contain_text("1 message queued")
        await expect(tab.sent).to_have_count(2)
    await second.cancel_turn.click()
    for tab in (first, second):
        await expect(tab.turn("wait 60").get_by_text("Turn cancelled", exact=True)).to_be_visible()
        await expect(tab.turn("say Too late.")).to_contain_text("Not sent to the agent")
        await tab.has_ended()
    await first.page.reload()
    await expect(first.turn("say Too late.")).to_contain_text("Not sent to the agent")
    await expect(first.answers).to_have_count(1)
