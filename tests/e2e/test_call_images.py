"""Images of an MCP server: on the card of the call, live and after a reload, for nobody else."""

import base64
import json
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from playwright.async_api import Locator, expect

from tests.e2e.browser_user import BrowserUser
from tests.e2e.chat import Chat
from tests.e2e.conftest import OpenBrowser
from tests.e2e.site import Site
from tests.e2e.test_accessibility import check
from tests.e2e.test_attachments import is_painted
from tests.files_to_attach import SVG, image
from tests.governance.mcp.support import HERE
from tests.support import LONG_PATIENCE, eventually

pytestmark = pytest.mark.asyncio(loop_scope="session")

PROGRAM = f"{sys.executable} {HERE / 'unruly_server.py'}"
ADD_SERVER = f"""
from governance.models import McpServer
McpServer.objects.create(name="unruly", command={PROGRAM!r})
"""


@pytest.fixture
def painting_site(tmp_path: Path) -> Iterator[Site]:
    """Serve a site whose agent has the tools of a server that shows what it is given."""
    made = Site(tmp_path)
    try:
        made.carry_out(ADD_SERVER)
        made.start()
        yield made
    finally:
        made.leave()


async def begin(person: BrowserUser) -> Chat:
    """Start a conversation whose turns have the server's tools: a turn begins without those of one that takes its time."""
    chat = await person.start_conversation()
    await chat.say("help")
    await chat.has_ended()
    await eventually(lambda: _has_connected(person.site))
    return chat


def _has_connected(site: Site) -> bool:
    with closing(sqlite3.connect(site.var / "db.sqlite3")) as database:
        [[moment]] = database.execute("SELECT last_ok_at FROM governance_mcpserver").fetchall()
    return moment is not None


async def paint(chat: Chat, content: bytes) -> Locator:
    """Let the tool show something; return the opened card of its call."""
    given = json.dumps({"data": base64.b64encode(content).decode()})
    await chat.say(f"call unruly_paint {given}")
    await chat.has_ended()
    return await opened(chat)


async def opened(chat: Chat) -> Locator:
    card = chat.cards.last
    await card.get_by_role("button", expanded=False).click()
    return card


async def test_image_of_a_server_is_on_the_card_live_and_after_a_reload(
    painting_site: Site, open_browser: OpenBrowser
):
    person = await open_browser(painting_site)
    chat = await begin(person)
    card = await paint(chat, image())
    for _look in range(2):
        picture = card.get_by_role("img", name="image.png")
        await is_painted(picture)
        await check(chat.page)
        address = await picture.get_attribute("src")
        await chat.page.reload()
        card = await opened(chat)
    answer = await person.context.request.get(f"{painting_site.url}{address}")
    assert answer.headers["content-type"] == "image/png"
    assert answer.headers["x-content-type-options"] == "nosniff"
    stranger = await open_browser(painting_site, user=None)
    refused = await stranger.context.request.get(f"{painting_site.url}{address}")
    assert refused.status == 401


async def test_what_is_no_image_is_a_sentence_on_the_card(
    painting_site: Site, open_browser: OpenBrowser
):
    person = await open_browser(painting_site)
    chat = await begin(person)
    card = await paint(chat, SVG)
    await expect(card.get_by_label("Result", exact=True)).to_contain_text(
        "not shown: It is none of these: PNG, JPEG, GIF, WEBP."
    )
    await expect(card.get_by_role("img")).to_have_count(0)


async def test_screenshot_of_the_browser_is_on_the_card_live_and_after_a_reload(
    own_site_of: Callable[..., Site], open_browser: OpenBrowser
):
    site = own_site_of(GOVERNANCE_WEB_ALLOW_PRIVATE="true")
    chat = await (await open_browser(site)).start_conversation()
    here = json.dumps({"action": "open", "url": f"{site.url}/login/"})
    await chat.say(f'call browser {here}\nthen\ncall browser {{"action": "screenshot"}}')
    await expect(chat.cards).to_have_count(2, timeout=LONG_PATIENCE * 1000)
    await chat.has_ended()
    for _look in range(2):
        card = await opened(chat)
        picture = card.get_by_role("img", name="screenshot.png")
        await expect(picture).to_have_js_property("complete", value=True)
        assert await picture.evaluate("node => node.decode().then(() => node.naturalWidth)") > 500
        await chat.page.reload()
