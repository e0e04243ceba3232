"""Chats in a page of a host project: in the host's own layout, under a strict policy, two on one page."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from urllib.parse import urljoin

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Locator, Page, Route, WebSocket, WebSocketRoute, expect

from tests.e2e.axe import UP_TO_AA, findings
from tests.e2e.chromium import started_chromium
from tests.e2e.scripted_socket import ScriptedSocket
from tests.e2e.test_voice import ASKED, AWAY, SPEECH
from tests.projects.hosts import PASSWORD, ROOT, HostProject
from tests.support import PATIENCE, eventually

pytestmark = pytest.mark.asyncio(loop_scope="session")

MAKE_PEOPLE = """
import django
django.setup()
from django.contrib.auth import get_user_model
from turns.models import Agent
for name in ("ada", "ben", "cleo", "dan", "eve", "fay", "gus", "hal", "ivy", "jan", "kai", "lea", "mia", "noa"):
    get_user_model().objects.create_user(name, password=%r)
Agent.objects.create(name="florist", samples=["say Tulips."])
"""
# An agent that is gone; a server that fails; what axe does.
EXPECTED = ("status of 422", "status of 503", "Applying inline style")
INSERT = """async () => {
  const page = await (await fetch(location.href)).text();
  const [chat] = page.match(/<turnkeeper-chat>[^]*?<\\/turnkeeper-chat>/);
  document.querySelector(".shop-columns").innerHTML = chat;
}"""
MAKE_ANOTHER = """async (url) => {
  const [chat] = [...document.querySelectorAll("turnkeeper-chat")].map((chat) => chat.shadowRoot);
  const token = chat.querySelector("[name=csrfmiddlewaretoken]").value;
  const headers = { "content-type": "application/json", "x-csrftoken": token };
  return (await fetch(url, { method: "POST", headers, body: '{"agent": "florist"}' })).status;
}"""
# What is drawn anew follows the event of the scroll by a frame.
SCROLL_AND_READ_MARKED = """async (chat) => {
  const log = chat.querySelector("[role=log]");
  const scrolled = new Promise((done) => log.addEventListener("scroll", done, { once: true }));
  log.scrollTop = log.scrollTop > 0 ? 0 : log.scrollHeight;
  await scrolled;
  for (let frame = 0; frame < 2; frame += 1) await new Promise(requestAnimationFrame);
  return chat.getRootNode().getSelection().toString().trim();
}"""
STYLE = "(node, name) => getComputedStyle(node)[name]"
OF_THE_HOST = [
    ("h1", "fontSize"),
    ("main > #status", "marginTop"),
    ("main > .composer", "display"),
    (".shop-header .button", "minHeight"),
    ("body", "backgroundColor"),
]
NAMES_BESIDE_THOSE_OF_AN_EMPTY_PAGE = """() => {
  const empty = document.createElement("iframe");
  document.body.append(empty);
  const known = new Set(Object.getOwnPropertyNames(empty.contentWindow));
  empty.remove();
  return Object.getOwnPropertyNames(window).filter((name) => !known.has(name) && !/^(__|[0-9])/.test(name));
}"""


@pytest.fixture(scope="module")
def host_url(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve the host project with its users."""
    host = HostProject(
        "everything",
        path=(installed, ROOT / "tests" / "projects"),
        directory=tmp_path_factory.mktemp("everything"),
    )
    host.migrate()
    host.run("-c", MAKE_PEOPLE % PASSWORD)
    with host.serving("django", "serve", "--port", "{port}") as url:
        yield url


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    async with started_chromium() as browser:
        yield browser


@pytest_asyncio.fixture(loop_scope="session")
async def page(browser: Browser) -> AsyncIterator[Page]:
    """Return a tab; whatever the browser complains about fails the test."""
    context = await browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(PATIENCE * 1000)
    page = await context.new_page()
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda said: said.type == "error" and complaints.append(said.text))
    yield page
    await context.close()
    assert [said for said in complaints if not any(map(said.__contains__, EXPECTED))] == []


async def sign_in(page: Page, host_url: str, name: str) -> None:
    await page.goto(f"{host_url}/support/")
    await page.get_by_role("link", name="Sign in").first.click()
    await page.get_by_label("Username").fill(name)
    await page.get_by_label("Password").fill(PASSWORD)
    await page.get_by_role("button", name="Sign in").click()
    await page.wait_for_url(f"{host_url}/support/")


def chat_called(page: Page, title: str) -> Locator:
    return page.get_by_role("region", name=title, exact=True)


async def say(chat: Locator, text: str) -> None:
    await chat.get_by_label("Message to the agent").fill(text)
    await chat.get_by_role("button", name="Send", exact=True).click()


async def test_who_is_not_signed_in_is_told_what_to_do_and_comes_back_to_the_page(page, host_url):
    await page.goto(f"{host_url}/support/")
    for title in ("Your orders", "Ask a florist"):
        await expect(chat_called(page, title)).to_contain_text("Sign in to talk to the assistant.")
    await sign_in(page, host_url, "ada")
    await expect(
        chat_called(page, "Your orders").get_by_label("Message to the agent")
    ).to_be_visible()


async def test_two_chats_of_one_page_talk_each_with_its_own_agent_and_go_on_after_a_reload(
    page, host_url
):
    await sign_in(page, host_url, "ben")
    orders, florist = chat_called(page, "Your orders"), chat_called(page, "Ask a florist")
    await florist.get_by_role("button", name="say Tulips.").click()
    await say(orders, "say Tomorrow.")
    await expect(orders.locator(".message-agent")).to_have_text(["Tomorrow."], use_inner_text=True)
    await expect(florist.locator(".message-agent .message-text")).to_have_text(["Tulips."])
    await page.reload()
    await expect(florist.locator(".message-agent .message-text")).to_have_text(["Tulips."])
    await expect(orders.locator(".message-agent .message-text")).to_have_text(["Tomorrow."])
    await florist.get_by_role("button", name="New conversation").click()
    await expect(florist.locator(".message-agent")).to_have_count(0)
    await say(florist, "say Roses.")
    await expect(florist.locator(".message-agent .message-text")).to_have_text(["Roses."])
    await expect(orders.locator(".message-agent .message-text")).to_have_text(["Tomorrow."])


async def test_neither_style_reaches_the_other(page, host_url):
    await page.goto(f"{host_url}/support/")
    before = [await page.locator(one).evaluate(STYLE, name) for one, name in OF_THE_HOST]
    await sign_in(page, host_url, "cleo")
    assert [await page.locator(one).evaluate(STYLE, name) for one, name in OF_THE_HOST] == before
    orders, florist = chat_called(page, "Your orders"), chat_called(page, "Ask a florist")
    await say(orders, "say Tomorrow.")
    answer = orders.locator(".message-agent .prose")
    await expect(answer).to_have_text("Tomorrow.")
    await expect(orders.locator(".turn")).to_have_attribute("data-status", "completed")
    assert "Georgia" not in await answer.evaluate(STYLE, "fontFamily")
    assert await answer.evaluate(STYLE, "fontSize") == "16px"
    assert await answer.evaluate(STYLE, "letterSpacing") == "normal"
    send = orders.get_by_role("button", name="Send", exact=True)
    assert await send.evaluate(STYLE, "textTransform") == "none"
    assert await send.evaluate(STYLE, "paddingTop") == "0px"
    # What the host may choose: variables for all chats, and a style sheet for one of them.
    await orders.get_by_label("Message to the agent").fill("x")
    await page.mouse.move(0, 0)
    await expect(send).to_have_css("background-color", "rgb(122, 46, 142)")
    header = florist.locator(".chat-header")
    assert await header.evaluate(STYLE, "backgroundColor") == "rgb(230, 244, 234)"
    assert await orders.locator(".chat-header").evaluate(STYLE, "backgroundColor") != (
        "rgb(230, 244, 234)"
    )


async def test_no_global_name_is_added_and_the_keys_of_the_page_stay_its_own(page, host_url):
    await sign_in(page, host_url, "dan")
    orders = chat_called(page, "Your orders")
    await expect(orders.locator("#connection")).to_have_attribute("data-status", "new")
    frame = await page.evaluate(NAMES_BESIDE_THOSE_OF_AN_EMPTY_PAGE)
    assert frame == []
    await say(orders, "within 30min wait 600")
    await expect(orders.locator("tool-call")).to_have_attribute("data-status", "running")
    await page.get_by_label("Newsletter").press("Escape")
    await page.get_by_label("Newsletter").fill("/?")
    await expect(page.get_by_label("Newsletter")).to_have_value("/?")
    await page.get_by_label("Newsletter").press("Control+k")
    await expect(page.get_by_label("Newsletter")).to_be_focused()
    await expect(orders.locator("#cancel-turn")).to_be_enabled()
    await orders.get_by_label("Message to the agent").press("Escape")
    await expect(orders.locator("tool-call")).to_have_attribute("data-status", "cancelled")


async def test_the_bar_of_a_very_narrow_chat_is_not_cut(page, host_url):
    await sign_in(page, host_url, "hal")
    orders = chat_called(page, "Your orders")
    await say(orders, "within 30min wait 600")
    await expect(orders.locator("tool-call")).to_have_attribute("data-status", "running")
    await page.locator("turnkeeper-chat").first.evaluate("chat => { chat.style.width = '160px'; }")
    bar = orders.locator("#running-bar")
    assert await bar.evaluate("bar => bar.scrollWidth <= bar.clientWidth")
    await orders.locator("#cancel-turn").click()
    await expect(orders.locator("tool-call")).to_have_attribute("data-status", "cancelled")


async def test_a_chat_that_a_script_puts_into_the_page_works_until_it_is_taken_out(page, host_url):
    await sign_in(page, host_url, "gus")
    sockets: list[WebSocket] = []
    page.on("websocket", lambda socket: sockets.append(socket))
    await page.evaluate(INSERT)
    orders = chat_called(page, "Your orders")
    await say(orders, "say Tomorrow.")
    await expect(orders.locator(".message-agent .message-text")).to_have_text(["Tomorrow."])
    [socket] = sockets
    assert not socket.is_closed()
    await page.evaluate("document.querySelector('turnkeeper-chat').remove()")
    await eventually(socket.is_closed)


async def test_what_is_sent_while_the_latest_conversation_is_looked_for_goes_there(page, host_url):
    await sign_in(page, host_url, "ivy")
    orders = chat_called(page, "Your orders")
    await say(orders, "say Tomorrow.")
    await expect(orders.locator(".message-agent .message-text")).to_have_text(["Tomorrow."])
    is_sent = asyncio.Event()
    await page.route("**/api/conversations?*", _held_until(is_sent))
    await page.reload()
    await say(orders, "say Before noon.")
    await expect(orders.locator(".message-user")).to_have_count(1)
    is_sent.set()
    await expect(orders.locator(".message-agent .message-text")).to_have_text(
        ["Tomorrow.", "Before noon."]
    )


async def test_what_was_written_for_a_new_conversation_goes_there_after_a_reload(page, host_url):
    await sign_in(page, host_url, "kai")
    florist = chat_called(page, "Ask a florist")
    answers = florist.locator(".message-agent .message-text")
    await say(florist, "say Tulips.")
    await expect(answers).to_have_text(["Tulips."])
    await florist.get_by_role("button", name="New conversation").click()
    await page.route("**/api/conversations", _answer_lost)
    await say(florist, "say Roses.")
    await expect(florist.locator("#connection")).to_have_attribute("data-status", "reconnecting")
    await page.reload()
    await expect(florist.locator("#connection")).to_have_attribute("data-status", "reconnecting")
    await page.unroute("**/api/conversations")
    await expect(answers).to_have_text(["Roses."])
    assert len(await conversations_of(florist)) == 2


async def test_what_is_unsent_goes_to_its_conversation_after_a_reload_though_another_is_newer(
    page, host_url
):
    await sign_in(page, host_url, "lea")
    florist = chat_called(page, "Ask a florist")
    answers = florist.locator(".message-agent .message-text")
    await say(florist, "say Tulips.")
    await expect(answers).to_have_text(["Tulips."])
    is_found, has_line = asyncio.Event(), asyncio.Event()

    def open_line(socket: WebSocketRoute) -> None:
        is_found.set()
        if has_line.is_set():
            socket.connect_to_server()

    await page.route_web_socket("**/ws/**", open_line)
    await page.reload()
    await asyncio.wait_for(is_found.wait(), PATIENCE)
    await say(florist, "say Lilies.")
    await expect(florist.locator(".message-user")).to_have_count(1)
    made = await page.evaluate(MAKE_ANOTHER, await florist.get_attribute("data-conversations-url"))
    assert made == 201
    has_line.set()
    await page.reload()
    await expect(answers).to_have_text(["Tulips.", "Lilies."])


async def test_what_is_typed_before_the_scripts_are_there_keeps_the_focus_and_is_sent_once(
    page, host_url
):
    await sign_in(page, host_url, "jan")
    may_load = asyncio.Event()
    await page.route("**/embed*.js", _held_until(may_load))
    await page.reload(wait_until="commit")
    orders = chat_called(page, "Your orders")
    composer = orders.get_by_label("Message to the agent")
    await composer.fill("say Tomorrow.")
    may_load.set()
    await expect(orders.locator("#connection")).to_have_attribute("data-status", "new")
    await expect(composer).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(orders.locator(".message-agent .message-text")).to_have_text(["Tomorrow."])
    await orders.get_by_role("button", name="New conversation").click()
    await expect(orders.locator(".message-agent")).to_have_count(0)
    await expect(composer).to_be_empty()


async def test_text_that_is_marked_in_a_long_conversation_stays_while_others_are_read(
    page, host_url
):
    await sign_in(page, host_url, "mia")
    orders = chat_called(page, "Your orders")
    await say(orders, "say Tomorrow.")
    await expect(orders.locator(".message-agent .message-text")).to_have_text(["Tomorrow."])
    await ScriptedSocket(turns=200, calls=0, user="mia").stand_behind(page)
    await page.reload()
    answer = orders.locator(".message-agent .message-text").get_by_text("Answer 199.", exact=True)
    await expect(answer).to_be_in_viewport()
    await answer.click(click_count=3)
    assert await orders.evaluate(SCROLL_AND_READ_MARKED) == "Answer 199."
    await orders.locator(".message-agent").first.click()
    assert await orders.evaluate(SCROLL_AND_READ_MARKED) == ""
    await expect(answer).to_have_count(0)


async def test_one_chat_of_a_page_listens_and_none_by_itself_after_a_reload(page, host_url):
    await page.context.grant_permissions(["microphone"], origin=host_url)
    await page.add_init_script(SPEECH + AWAY)
    await sign_in(page, host_url, "noa")
    orders, florist = chat_called(page, "Your orders"), chat_called(page, "Ask a florist")
    for chat, other in ((orders, florist), (florist, orders), (orders, florist)):
        await chat.locator("#voice").click()
        await expect(chat.locator("#voice")).to_have_attribute("aria-pressed", "true")
        await expect(other.locator("#voice")).to_have_attribute("aria-pressed", "false")
    for is_away in (True, False):
        await page.evaluate("away => go(away)", is_away)
        await expect(orders.locator("#voice")).to_have_attribute(
            "aria-pressed", str(not is_away).lower()
        )
    await expect(florist.locator("#voice")).to_have_attribute("aria-pressed", "false")
    await page.reload()
    for chat in (orders, florist):
        await expect(chat.locator("#connection")).to_have_attribute("data-status", "new")
    await page.evaluate(ASKED)
    assert await page.evaluate("window.starts ?? 0") == 0
    await florist.locator("#voice").click()
    await expect(florist.locator("#voice")).to_have_attribute("aria-pressed", "true")


async def test_axe_finds_nothing_in_the_chats(page, host_url):
    await sign_in(page, host_url, "eve")
    await say(chat_called(page, "Your orders"), "say Tomorrow.")
    await expect(chat_called(page, "Your orders").locator(".message-agent")).to_be_visible()
    assert await findings(page, UP_TO_AA, within={"include": [["turnkeeper-chat"]]}) == []


async def test_an_agent_that_is_not_there_is_said_and_what_was_written_comes_back(page, host_url):
    await sign_in(page, host_url, "fay")
    florist = chat_called(page, "Ask a florist")
    await page.route("**/api/conversations", _with_agent("nobody"))
    await florist.get_by_role("button", name="New conversation").click()
    await say(florist, "say Roses.")
    await expect(florist.locator("#notice")).to_be_visible()
    await expect(florist.get_by_label("Message to the agent")).to_have_value("say Roses.")


async def conversations_of(chat: Locator) -> list[str]:
    """Return the ids of the conversations that a chat may show."""
    url = await chat.get_attribute("data-conversations-url")
    agent = await chat.get_attribute("data-agent")
    answer = await chat.page.request.get(urljoin(chat.page.url, f"{url}?agent={agent}"))
    return [row["conversation_id"] for row in (await answer.json())["conversations"]]


async def _answer_lost(route: Route) -> None:
    await route.fetch()
    await route.fulfill(status=503, json={"error": "Later.", "code": "server_error"})


def _held_until(event: asyncio.Event) -> Callable[[Route], Awaitable[None]]:
    async def hold(route: Route) -> None:
        await event.wait()
        await route.continue_()

    return hold


def _with_agent(name: str) -> Callable[[Route], Awaitable[None]]:
    async def rewrite(route: Route) -> None:
        await route.continue_(post_data=json.dumps({"agent": name}))

    return rewrite
