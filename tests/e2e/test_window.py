"""How full the model's context window is, and what the model no longer reads of a conversation that people still see."""

import pytest
from playwright.async_api import expect

from tests.e2e.browser_user import BrowserUser
from tests.e2e.scripted_socket import ScriptedSocket
from tests.e2e.test_accessibility import check
from tests.e2e.test_agents import PICKER

pytestmark = pytest.mark.asyncio(loop_scope="session")

# Its instructions take two thirds of the window.
NARROW = """
from turns.models import Agent

Agent.objects.create(name="narrow", tools=[], window=2_000, instructions="word " * 1_080)
"""
GONE = "from turns.models import Agent; Agent.objects.get(name='narrow').delete()"


async def test_a_conversation_goes_on_when_the_window_is_full(browser_user: BrowserUser, site):
    site.carry_out(NARROW)
    try:
        page = await browser_user.open("/")
        await page.get_by_label(PICKER).select_option(label="narrow")
        chat = await browser_user.begin(page)
        mark = page.get_by_text("the model no longer reads the oldest messages")
        await chat.say("help")
        await chat.has_ended()
        await expect(page.get_by_role("meter")).to_be_visible()
        await expect(mark).to_have_count(0)
        for _ in range(3):
            await chat.say(f"help {'me ' * 150}")
            await chat.has_ended()
        await expect(mark.first).to_be_visible()
        await page.reload()
        await expect(mark.first).to_be_visible()
        await expect(page.get_by_role("meter")).to_be_visible()
        await expect(page.locator(".message-user")).to_have_count(4)
    finally:
        site.carry_out(GONE)


async def test_a_full_window_is_told_and_what_the_model_reads_instead(browser_user: BrowserUser):
    page = await browser_user.context.new_page()
    socket = ScriptedSocket(turns=2, calls=0)
    await socket.stand_behind(page)
    chat = await browser_user.start_conversation(page=page)
    meter = chat.page.get_by_role("meter")
    fold = chat.page.locator(".turn").last.locator("details", has_text="Summary of the oldest")

    def end_turn(tokens: int):
        usage = {"context_tokens": tokens, "context_window": 10_000}
        ended = {"status": "completed", "duration_ms": 5, "error_code": None}
        socket.go_on(type="turn_end", usage=usage, **ended)

    socket.begin_turn()
    words = "<b>They</b> spoke of tulips."
    socket.go_on(type="prompt_changed", reason="summary", summary=words)
    await expect(chat.page.locator(".turn").last).to_contain_text(
        "the model reads a summary instead of the oldest messages"
    )
    await expect(meter).to_have_count(0)  # nothing is known yet
    await expect(fold.locator("div")).to_be_hidden()
    await fold.locator("summary").focus()
    await chat.page.keyboard.press("Enter")
    await expect(fold.locator("div")).to_have_text(words)
    end_turn(7_290)
    await expect(meter).to_have_accessible_name("72 % of the model's context window is used")
    await expect(meter).to_have_attribute("value", "72")
    await expect(chat.page.locator("#context-text")).to_be_visible()
    await check(chat.page)


async def test_the_meter_moves_with_each_step_of_a_turn(browser_user: BrowserUser):
    page = await browser_user.context.new_page()
    socket = ScriptedSocket(turns=2, calls=0)
    await socket.stand_behind(page)
    chat = await browser_user.start_conversation(page=page)
    meter = chat.page.get_by_role("meter")

    def take_step(step: int, **usage: int):
        said = [{"type": "text", "text": "Look."}]
        about = {"id": 1_000 + step, "role": "assistant", "interrupted": False, "html": "Look."}
        socket.go_on(type="message", step=step, content=said, usage=usage, **about)

    socket.begin_turn()
    take_step(1, context_tokens=6_100, context_window=10_000)
    await expect(meter).to_have_attribute("value", "61")
    take_step(2, context_tokens=8_200, context_window=10_000)
    await expect(meter).to_have_accessible_name("82 % of the model's context window is used")
    take_step(3, input_tokens=12)  # of a model whose window is not known
    await expect(meter).to_have_attribute("value", "82")


async def test_there_is_no_meter_while_there_is_room(browser_user: BrowserUser):
    page = await browser_user.context.new_page()
    socket = ScriptedSocket(turns=2, calls=0)
    await socket.stand_behind(page)
    chat = await browser_user.start_conversation(page=page)
    socket.begin_turn()
    usage = {"context_tokens": 5_999, "context_window": 10_000}
    ended = {"status": "completed", "duration_ms": 5, "error_code": None}
    socket.go_on(type="turn_end", usage=usage, **ended)
    await expect(chat.page.locator(".turn").last).to_have_attribute("data-status", "completed")
    await expect(chat.page.get_by_role("meter")).to_have_count(0)
