"""A call of a plain function: nothing can stop it. A person can only stop waiting for it, and sees when it ends."""

import asyncio

import pytest
from playwright.async_api import expect

from tests.e2e.chat import has_started, state
from tests.e2e.site import Site
from tests.e2e.tools import LET_GO

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.fixture
def digging_site(own_site_of) -> Site:
    return own_site_of(
        DJANGO_SETTINGS_MODULE="tests.e2e.settings",
        GOVERNANCE_CANCEL_GRACE="0.6",
        TURNS_CANCEL_BOUND="0.85",
    )


async def test_the_page_stops_waiting_at_once_and_says_later_that_the_call_has_ended(
    digging_site, open_browser
):
    person = await open_browser(digging_site)
    chat = await person.start_conversation()
    await chat.say("call dig\nwait 0\nwithin 30min wait 600")
    card = chat.cards.filter(has_text="dig")
    await has_started(card)
    await card.get_by_role("button", name="Stop waiting for dig; it may keep running").click()

    await expect(state(card)).to_have_text("no longer waiting; it may still be running")
    await has_started(chat.card("seconds: 600"))
    await chat.cancel_turn.click()
    await expect(chat.ending("cancelled")).to_be_visible()
    await expect(chat.card("seconds: 0")).to_be_hidden()  # it went well, and is folded away
    await expect(state(card)).to_contain_text("may still be running")

    await asyncio.to_thread((digging_site.var / LET_GO).touch)
    await expect(state(card)).not_to_contain_text("may still be running")
    settled = await state(card).inner_text()
    await chat.page.reload()
    await expect(state(card)).to_have_text(settled)
