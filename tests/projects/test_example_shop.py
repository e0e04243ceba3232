"""The example project in examples/shop, as its README says that it can be tried."""

import os
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from tests.docs.pages import ROOT
from tests.e2e.chat import Chat, cancel_button, state
from tests.e2e.chromium import started_chromium
from tests.projects.hosts import HostProject
from tests.support import LONG_PATIENCE, PATIENCE, eventually

SCREENSHOTS = os.environ.get("SCREENSHOTS")
LOOP = pytest.mark.asyncio(loop_scope="session")


class Shop(HostProject):
    """A copy of the example."""

    def __init__(self, *, installed: Path, directory: Path) -> None:
        super().__init__("petals", path=(installed,), directory=directory)
        ignored = shutil.ignore_patterns("var", "__pycache__")
        shutil.copytree(ROOT / "examples" / "shop", directory, dirs_exist_ok=True, ignore=ignored)

    def password_of(self, name: str) -> str:
        """Return what the first start has written down."""
        lines = (self.directory / "var" / "credentials.txt").read_text("utf-8").splitlines()
        return dict(line.split(" ") for line in lines)[name]


@pytest.fixture(scope="module")
def shop(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Shop:
    return Shop(installed=installed, directory=tmp_path_factory.mktemp("shop"))


@pytest.fixture(scope="module")
def shop_url(shop: Shop) -> Iterator[str]:
    """Start it by its one command."""
    with shop.serving("django", "demo", "--port", "{port}") as url:
        yield url


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    async with started_chromium() as browser:
        yield browser


async def signed_in(browser: Browser, shop: Shop, url: str, name: str) -> Page:
    """Return the tab of somebody who came from the shop's own page."""
    context = await browser.new_context(viewport={"width": 1280, "height": 800})
    context.set_default_timeout(PATIENCE * 1000)
    page = await context.new_page()
    await page.goto(url)
    await page.get_by_role("link", name="Ask the assistant").click()
    await page.get_by_label("Username").fill(name)
    await page.get_by_label("Password").fill(shop.password_of(name))
    await page.get_by_role("button", name="Sign in").click()
    await page.get_by_role("button", name="New conversation").first.click()
    return page


async def carrier_answers(chat: Chat) -> bool:
    """Ask the MCP server. It is connected when the first turn begins, which waits for it for two seconds at most."""
    await chat.say('call delivery_track {"order": 1, "seconds": 0}')
    await chat.has_ended()
    return "The parcel of order 1 is on the van." in await chat.answers.last.inner_text()


def test_the_example_has_no_complaints_and_all_of_its_migrations(installed, tmp_path):
    shop = Shop(installed=installed, directory=tmp_path)
    assert shop.complaints() == []
    (tmp_path / "var").mkdir()
    shop.manage("makemigrations", "--check", "--dry-run")


@pytest.mark.browser
@LOOP
async def test_a_customer_sees_their_orders_may_not_refund_and_cancels_a_call_of_the_mcp_server(
    browser, shop, shop_url
):
    page = await signed_in(browser, shop, shop_url, "demo")
    await expect(page.get_by_text("Petal & Stem").first).to_be_visible()
    await expect(page.locator("img[src*='shop/logo']").first).to_be_visible()
    chat = Chat(page)
    await chat.say("call my_orders {}")
    await expect(chat.answers.last).to_contain_text("Order 2: 2 × Peonies, paid")
    await chat.say('call refund {"number": 1}')
    await expect(chat.answers.last).to_contain_text("shop.refund_order")
    await expect(chat.question).to_be_hidden()
    await chat.has_ended()
    await eventually(lambda: carrier_answers(chat), timeout=LONG_PATIENCE)
    await chat.say('call delivery_track {"order": 1, "seconds": 60}')
    card = chat.cards.last
    await expect(card).to_have_attribute("data-status", "running")
    await cancel_button(card).click()
    await expect(state(card)).to_have_text("no longer waiting; it may still be running")


@pytest.mark.browser
@LOOP
async def test_a_clerk_is_asked_before_an_order_is_refunded(browser, shop, shop_url):
    page = await signed_in(browser, shop, shop_url, "admin")
    chat = Chat(page)
    await chat.say('call find_products {"name": "tul"}')
    await expect(chat.answers.last).to_contain_text("Tulips, 9.00 €, 40 in stock")
    await chat.say('call refund {"number": 1}')
    await expect(chat.question).to_contain_text("Refund this order?")
    if SCREENSHOTS:
        await expect(chat.question.get_by_role("button", name="Allow once")).to_be_enabled()
        await page.screenshot(path=Path(SCREENSHOTS) / "shop.png", animations="disabled")
    await chat.allow_once("Refund an order")
    await expect(chat.answers.last).to_contain_text("Refunded 18.00 € for order 1.")
    script = "import django; django.setup(); from shop.models import Order; print(Order.objects.get(pk=1).status)"
    await eventually(lambda: shop.run("-c", script).strip() == "refunded")
