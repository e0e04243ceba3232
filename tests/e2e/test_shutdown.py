"""Ctrl-C on the server in the middle of a turn: first it waits, then it cancels; nothing stays behind."""

import pytest
from playwright.async_api import expect

from tests.e2e.chat import has_started, state
from tests.e2e.site import UNTIL_TOLD
from tests.support import eventually

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_ctrl_c_lets_a_turn_end_and_a_second_one_cancels_it(own_site, open_browser):
    person = await open_browser(own_site)
    person.expect_connection_loss()
    chat = await person.start_conversation()
    await chat.say(UNTIL_TOLD)
    await has_started(chat.cards.last)
    own_site.interrupt()
    await eventually(lambda: "Waiting up to 15 s for 1 running turn" in own_site.said)
    own_site.let_go()
    assert own_site.wait() == 0
    await eventually(lambda: not own_site.processes())
    own_site.start()
    await expect(chat.connection).to_have_attribute("data-status", "online")
    await expect(chat.answers.last).to_contain_text("exec succeeded.")
    await chat.has_ended()

    await chat.say("run sleep 64")
    await eventually(lambda: own_site.processes("sleep 64"))
    own_site.interrupt()
    await eventually(lambda: own_site.said.count("Waiting up to") == 2)
    own_site.interrupt()
    assert own_site.wait() == 0
    assert "Cancelling what still runs." in own_site.said
    await eventually(lambda: not own_site.processes())
    own_site.start()
    await expect(chat.ending("interrupted")).to_be_visible()
    await expect(state(chat.card("sleep 64"))).to_contain_text("because the server restarted")
    await chat.has_ended()
    own_site.interrupt()
    assert own_site.wait() == 0
