"""The four questions of an operator in a real browser, each from the admin's first page, in few clicks."""

import re
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Locator, Page, expect

from tests.e2e.chat import has_started
from tests.e2e.test_admin import save

pytestmark = pytest.mark.asyncio(loop_scope="session")


class Operator:
    """A tab of the admin in which clicks are counted."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.clicks = 0

    async def begin(self, site) -> None:
        """Open the first page, and count from zero."""
        await self.page.goto(f"{site.url}/admin/")
        self.clicks = 0

    async def follow(self, name: str) -> None:
        """Click a link of the page's own content. Where an app and a list have one name, it is the list's."""
        links = self.page.locator("#content").get_by_role("link", name=name, exact=True)
        await self.click(links.last)

    async def click(self, place: Locator) -> None:
        await place.click()
        self.clicks += 1


@pytest_asyncio.fixture(loop_scope="session")
async def operator(open_browser, site) -> Operator:
    admin = await open_browser(site, user="admin")
    return Operator(await admin.open("/admin/"))


async def test_what_runs_is_stopped_and_why_it_stopped_is_found_and_exported(
    operator, browser_user, site
):
    chat = await browser_user.start_conversation()
    await chat.say("within 30min wait 830")
    await has_started(chat.card("seconds: 830"))
    page = operator.page
    await operator.follow("Running now")
    turn = page.locator("#running tbody").filter(has_text="830")
    await expect(turn).to_contain_text("demo")
    await page.get_by_label("Why").fill("meant for customer 83")
    await operator.click(turn.get_by_role("button", name=re.compile("Cancel this turn")))
    await expect(page.get_by_role("status")).to_contain_text(re.compile(r"stopped after \d"))
    assert operator.clicks == 2
    await chat.has_ended()

    await operator.begin(site)
    await operator.follow("Turns")
    await operator.click(page.locator("#result_list tbody th a").first)
    await expect(page.locator(".field-why")).to_contain_text("meant for customer 83")
    await expect(page.locator(".field-why")).to_contain_text("admin")
    await expect(page.locator(".field-told")).to_contain_text("[CANCELLED]")
    assert operator.clicks == 2

    await operator.begin(site)
    await operator.follow("Cancelled turns")
    async with page.expect_download() as download:
        await operator.follow("Export CSV")
    path = await (await download.value).path()
    assert "meant for customer 83" in Path(path).read_text()
    assert operator.clicks == 2


async def test_whether_a_limit_is_right_in_force_everywhere_and_by_whom(
    operator, browser_user, site
):
    chat = await browser_user.start_conversation()
    await chat.say("wait 0.2")
    await chat.has_ended()
    page = operator.page
    row = page.get_by_role("row").filter(has=page.get_by_label("Total limit: wait"))
    await operator.follow("Tool limits")
    await expect(row.locator("[data-label=p50]")).to_have_text(re.compile(r"\d\s(ms|s)$"))
    assert operator.clicks == 1
    await operator.follow("wait")
    await expect(page.get_by_role("img", name=re.compile("How long calls ran"))).to_be_visible()
    assert operator.clicks == 2
    await page.get_by_label("Total limit").fill("8 min")
    await page.get_by_label("Why").fill("the provider is slow")
    await save(page, "Save")
    await expect(page.get_by_text("In force: 8 min")).to_be_visible()

    await operator.begin(site)
    await operator.follow("Tool limits")
    await expect(page.locator("#limits-in-force")).to_contain_text("In force in 1 of 1 processes")
    await expect(row).to_contain_text(", admin")
    assert operator.clicks == 1
    await operator.follow("wait")
    newest = page.locator("#changes tbody tr").first
    for words in ("total limit: ", "→ 8 min", "admin", "the provider is slow"):
        await expect(newest).to_contain_text(words)
    assert operator.clicks == 2
    await operator.click(newest.get_by_role("button", name=re.compile("Revert version")))
    await expect(page.get_by_text("In force: 2 min")).to_be_visible()
    assert operator.clicks == 3
