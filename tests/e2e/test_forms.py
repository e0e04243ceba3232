"""A running call of an MCP server asks its person in the page: the form, its keys, hostile texts, German."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.async_api import Locator, expect

from tests.e2e.chat import Chat
from tests.e2e.conftest import OpenBrowser
from tests.e2e.site import Site
from tests.e2e.test_accessibility import PHONE, check
from tests.e2e.test_call_images import begin
from tests.governance.mcp.support import HERE

pytestmark = pytest.mark.asyncio(loop_scope="session")

ADD_SERVER = f"""
from governance.models import McpServer
McpServer.objects.create(
    name="unruly", command={f"{sys.executable} {HERE / 'unruly_server.py'} curious"!r}, asks_people=True,
    trusts_read_only=False,
)
"""
HOSTILE = "<img src=x onerror='window.hit=1'>\u202e\u200b"
SHOWN = "<img src=x onerror='window.hit=1'>\\u{202e}\\u{200b}"
FIELDS = {
    "name": {"type": "string", "title": f"Name {HOSTILE}", "minLength": 2},
    "age": {"type": "integer", "title": "Age", "minimum": 0, "default": 30},
    "news": {"type": "boolean", "title": "Send me news"},
    "color": {
        "type": "string",
        "title": "Color",
        "oneOf": [{"const": "r", "title": f"Red {HOSTILE}"}],
    },
    "days": {"type": "array", "title": "Days", "items": {"type": "string", "enum": ["Mon", "Tue"]}},
}
QUESTION = {
    "message": f"Who are you? {HOSTILE}",
    "requestedSchema": {"type": "object", "properties": FIELDS, "required": ["name"]},
}


@pytest.fixture
def curious_site(tmp_path: Path) -> Iterator[Site]:
    """Serve a site whose agent has the tools of a server that asks people."""
    made = Site(tmp_path)
    try:
        made.carry_out(ADD_SERVER)
        made.start()
        yield made
    finally:
        made.leave()


async def asked(chat: Chat) -> Locator:
    """Let the agent call the tool that asks; return the form."""
    await chat.say(f"call unruly_inquire {json.dumps({'questions': [QUESTION]})}")
    form = chat.page.locator("#form-question")
    await expect(form).to_be_visible()
    return form


async def result(chat: Chat) -> list[dict[str, object]]:
    """Return what the server was answered."""
    await chat.has_ended()
    card = chat.cards.last
    await card.get_by_role("button", expanded=False).click()
    text = card.get_by_label("Result", exact=True)
    await expect(text).to_contain_text("action")
    told: list[dict[str, object]] = json.loads(await text.inner_text())
    return told


async def test_a_form_is_filled_in_with_the_keyboard_and_nothing_of_it_is_html(
    open_browser: OpenBrowser, curious_site: Site
) -> None:
    person = await open_browser(curious_site)
    chat = await begin(person)
    form = await asked(chat)
    page = chat.page
    await expect(form).to_contain_text(f"Who are you? {SHOWN}")
    await expect(form).to_contain_text("The MCP server unruly wrote this form")
    await expect(form).to_contain_text("Do not enter passwords")
    await expect(form.locator("img")).to_have_count(0)
    assert await page.evaluate("window.hit") is None
    assert (await page.title()).startswith("(1) ")
    await check(page)
    await page.set_viewport_size(PHONE)
    for name in ("Send answer", "Decline", "Dismiss"):
        await expect(form.get_by_role("button", name=name)).to_be_in_viewport(ratio=1)

    name_field = form.get_by_label(f"Name {SHOWN}")
    await name_field.focus()
    await expect(form.get_by_role("button", name="Send answer")).to_be_enabled()
    await page.keyboard.press("Control+Enter")  # refused by the browser, as the name is missing
    await expect(form).to_be_visible()
    await page.keyboard.type("Ada")
    await page.keyboard.press("Tab")
    await page.keyboard.type("36")
    await page.keyboard.press("Tab")
    await page.keyboard.press("Space")
    await form.get_by_label("Color").select_option("r")
    await form.get_by_label("Tue").check()
    await page.keyboard.press("Control+Enter")

    await expect(form).to_be_hidden()
    await expect(chat.composer).to_be_focused()
    content = {"name": "Ada", "age": 36, "news": True, "color": "r", "days": ["Tue"]}
    [told] = await result(chat)
    assert told == {"action": "accept", "content": content}


async def test_a_form_survives_a_reload_and_can_be_declined(
    open_browser: OpenBrowser, curious_site: Site
) -> None:
    person = await open_browser(curious_site)
    chat = await begin(person)
    form = await asked(chat)
    await chat.page.reload()
    await expect(form).to_contain_text("Who are you?")
    await form.get_by_role("button", name="Decline").click()
    await expect(form).to_be_hidden()
    assert await result(chat) == [{"action": "decline"}]


async def test_a_form_of_a_sub_agent_is_answered_on_the_page_that_it_works_for(
    open_browser: OpenBrowser, curious_site: Site
) -> None:
    person = await open_browser(curious_site)
    chat = await begin(person)
    arguments = json.dumps({"questions": [QUESTION]})
    await chat.say(f"ask assistant call unruly_inquire {arguments}")
    form = chat.page.locator("#form-question")
    await expect(form).to_contain_text(f"Who are you? {SHOWN}")
    await expect(form).to_contain_text("assistant")
    await expect(chat.cards.first).to_contain_text(
        "assistant: waiting for your answer to a form of unruly_inquire"
    )
    await form.get_by_label(f"Name {SHOWN}").fill("Ada")
    await form.get_by_role("button", name="Send answer").click()
    await expect(form).to_be_hidden()
    await chat.has_ended()
    await expect(chat.transcript).to_contain_text("Ada")


async def test_a_cancel_of_the_turn_takes_the_form_away(
    open_browser: OpenBrowser, curious_site: Site
) -> None:
    person = await open_browser(curious_site)
    chat = await begin(person)
    form = await asked(chat)
    await chat.page.locator("#cancel-turn").click()
    await expect(form).to_be_hidden()
    await chat.has_ended()
