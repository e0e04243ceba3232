"""The first minutes of a newcomer: sign in, run something, watch it, cancel one call, read the answer."""

import pytest
from playwright.async_api import expect

from tests.e2e.chat import cancel_button, clock, colour, has_started, state, was_cancelled
from tests.support import eventually

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_newcomer_signs_in_watches_a_command_and_cancels_it(open_browser, site):
    newcomer = await open_browser(site, user=None)
    page = await newcomer.open("/")
    await page.clock.install()
    await newcomer.sign_in(page)
    chat = await newcomer.begin(page)
    await chat.say("within 30min run sleep 600")
    card = chat.card("sleep 600")
    await has_started(card)
    colours = [await colour(card)]
    await expect(clock(card)).to_contain_text("/ 30 min")
    for seconds, word in ((12, "slow"), (20, "very slow")):
        await page.clock.fast_forward(seconds * 1000)
        await expect(state(card)).to_have_text(word)
        colours.append(await colour(card))
    assert len(set(colours)) == 3
    await eventually(lambda: site.processes("sleep 600"))
    await cancel_button(card).click()
    await expect(state(card)).to_contain_text("cancelled by you")
    await eventually(lambda: not site.processes("sleep 600"))
    await expect(chat.answers.last).to_contain_text("cancelled by the user")
    await chat.has_ended()
    await expect(chat.ending("cancelled")).to_be_hidden()


async def test_one_of_three_calls_is_cancelled_and_the_others_finish(browser_user):
    chat = await browser_user.start_conversation()
    await chat.say("wait 3\nwithin 30min wait 600\nwait 3.5")
    await expect(chat.cards).to_have_count(3)
    await cancel_button(chat.card("seconds: 600")).click()
    await was_cancelled(chat.card("seconds: 600"))
    for seconds in ("3", "3.5"):
        card = chat.card(f"seconds: {seconds}")
        await expect(card).to_have_attribute("data-status", "succeeded")
    await expect(chat.answers.last).to_contain_text("2 of 3 calls succeeded.")
    await chat.has_ended()
    await chat.page.get_by_role("button", name="Used 3 tools").click()
    for seconds in ("3", "3.5"):
        card = chat.card(f"seconds: {seconds}")
        await card.get_by_role("button", expanded=False).click()
        await expect(card.get_by_text(f"Waited {seconds} s.")).to_be_visible()
