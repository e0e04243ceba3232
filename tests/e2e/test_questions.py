"""The eleven questions of an operator in a real browser: each is answered from the admin's first page in two clicks."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Locator, Page, expect

from tests.e2e.chat import has_started
from tests.e2e.planted import plant
from tests.e2e.site import Site
from tests.e2e.test_admin import save

pytestmark = pytest.mark.asyncio(loop_scope="session")

MOST_CLICKS = 2


class Operator:
    """A tab of the admin in which clicks are counted."""

    def __init__(self, page: Page, first_page: str) -> None:
        self.page = page
        self._first_page = first_page
        self.clicks = 0

    async def begin(self) -> None:
        """Open the first page, and count from zero."""
        await self.page.goto(self._first_page)
        self.clicks = 0

    async def follow(self, name: str | re.Pattern[str]) -> None:
        """Click a link of the page or of its menu."""
        links = self.page.locator("#main").get_by_role("link", name=name, exact=True)
        await self.click(links.last)

    async def click(self, place: Locator) -> None:
        self.clicks += 1
        assert self.clicks <= MOST_CLICKS
        await place.click()

    async def click_first_row(self, words: str = "") -> None:
        """Open the first row of a list, of those with these words."""
        row = self.page.locator("#result_list tbody tr").filter(has_text=words).first
        await self.click(row.locator("th a"))

    @property
    def heading(self) -> Locator:
        return self.page.get_by_role("heading", level=1).last


@pytest.fixture(scope="module")
def damaged_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    made = Site(tmp_path_factory.mktemp("damaged"), DJANGO_SETTINGS_MODULE="tests.e2e.settings")
    try:
        made.start()
        yield made
    finally:
        made.leave()


@pytest_asyncio.fixture(loop_scope="session")
async def operator(damaged_site, open_browser) -> Operator:
    """Return the admin's tab; the first test that asks for it does the damage."""
    mark = damaged_site.var / "damaged"
    if not mark.exists():
        await plant(damaged_site, open_browser)
        mark.touch()
    admin = await open_browser(damaged_site, user="admin")
    return Operator(await admin.open("/admin/"), f"{damaged_site.url}/admin/")


async def test_what_runs_and_where_and_how_it_is_stopped(operator, open_browser, damaged_site):
    person = await open_browser(damaged_site)
    chat = await person.start_conversation()
    await chat.say("within 30min wait 830")
    await has_started(chat.card("seconds: 830"))
    page = operator.page
    await operator.follow("Running now")
    turn = page.locator("#running tbody").filter(has_text="830")
    for words in ("demo", "wait", "running", "left", "Cancel turn"):
        await expect(page.locator("#running")).to_contain_text(words, ignore_case=True)
    await expect(turn.get_by_role("link", name=re.compile(r":\d+$"))).to_be_visible()
    await page.get_by_label("Reason").fill("meant for customer 83")
    await operator.click(turn.get_by_role("button", name=re.compile("Cancel this turn")))
    await expect(page.get_by_role("status")).to_contain_text(re.compile(r"stopped after \d"))
    await expect(page).not_to_have_url(re.compile("did="))
    await chat.has_ended()

    await operator.begin()
    await operator.follow("Turns")
    await operator.click_first_row()
    await expect(page.locator(".field-why")).to_contain_text("meant for customer 83")
    await expect(page.locator(".field-why")).to_contain_text("admin")
    await expect(page.locator(".field-told")).to_contain_text("[CANCELLED]")

    await operator.begin()
    await operator.follow("Cancelled turns")
    async with page.expect_download() as download:
        await operator.follow("Export CSV")
    path = await (await download.value).path()
    assert "meant for customer 83" in Path(path).read_text()


async def test_why_a_turn_was_stopped_and_that_nothing_ran_after_its_cancel(operator):
    await operator.follow("Cancelled turns")
    await operator.click_first_row("refund")
    await expect(operator.heading).to_have_text(
        re.compile(
            r"demo’s turn was cancelled after .* \(by button\): refund and wait were interrupted"
        )
    )
    page = operator.page
    await expect(page.locator(".field-calls")).to_contain_text("it may have had an effect")
    await expect(page.locator(".field-told")).to_contain_text("check before you repeat it")
    await expect(page.locator(".field-afterwards")).to_contain_text("Nothing ran")


async def test_whether_a_limit_is_right(operator):
    page = operator.page
    await operator.click(page.locator("#overview").get_by_role("link", name="web_search").last)
    await expect(page.locator("[data-label=Timeouts]")).to_contain_text("4 of 40")
    await operator.click(page.get_by_role("button", name="Suggest"))
    suggestion = page.locator("[data-told=web_search]")
    for words in ("4 of 40 calls (10.0 %) were cut off", "Try 20 s for a day"):
        await expect(suggestion).to_contain_text(words)


async def test_whether_a_limit_obeys_everywhere_and_who_changed_it_when_and_why(
    operator, damaged_site
):
    page = operator.page
    await page.goto(f"{damaged_site.url}/admin/governance/toolpolicy/tool/wait/")
    await page.get_by_label("Total limit").fill("8 min")
    await page.get_by_label("Reason").fill("the provider is slow")
    await save(page, "Save")
    await expect(page.get_by_text("Current limits: 8 min")).to_be_visible()

    await operator.begin()
    await operator.follow("Tool limits")
    await expect(page.locator("#limits-in-force")).to_contain_text("Active in 1 of 1 processes")
    row = page.get_by_role("row").filter(has=page.get_by_label("Select wait"))
    await expect(row).to_contain_text(", admin")
    await operator.follow("wait")
    newest = page.locator("#changes tbody tr").first
    for words in ("total limit: ", "→ 8 min", "admin", "the provider is slow", "UTC"):
        await expect(newest).to_contain_text(words)


async def test_which_users_agents_and_tools_have_most_timeouts(operator):
    await operator.click(operator.page.locator("#figure-timeouts").get_by_role("link").last)
    for title, name in (("user", "demo"), ("agent", "assistant"), ("tool", "web_search")):
        table = operator.page.get_by_role("table", name=f"Timeouts by {title}")
        await expect(table.locator("tbody tr").first).to_contain_text(name)
        await expect(table.locator("tbody tr .number").first).to_have_text("4")


async def test_what_was_lost_in_a_crash(operator):
    died = operator.page.locator("#processes tr").filter(has_text="died")
    await operator.click(died.locator("td").last.get_by_role("link"))
    await expect(operator.page.locator("#result_list tbody tr")).to_have_count(1)
    await operator.click_first_row()
    await expect(operator.heading).to_contain_text("exec was lost, wait did not start")


async def test_which_calls_may_have_had_effects(operator):
    page = operator.page
    await operator.click(page.locator("#figure-unknown").get_by_role("link", name="side effects"))
    rows = page.locator("#result_list tbody tr")
    await expect(rows).to_have_count(2)
    await expect(rows.filter(has_text="refund")).to_have_count(1)
    await expect(rows.filter(has_text="exec")).to_have_count(1)


async def test_all_that_an_administrator_did_in_the_last_week(operator, damaged_site):
    page = operator.page
    await page.goto(f"{damaged_site.url}/admin/governance/toolpolicy/tool/dig/")
    await page.get_by_label("Total limit").fill("7 min")
    await page.get_by_label("Reason").fill("deep holes")
    await save(page, "Save")

    await operator.begin()
    await operator.follow("Activity")
    await page.locator("#searchbar").fill("admin")
    async with page.expect_navigation():
        await page.locator("#searchbar").press("Enter")
    await operator.follow("Last 7 days")
    rows = page.locator("#result_list tbody tr")
    change = rows.filter(has_text="dig")
    for words in ("admin", "→ 7 min", "deep holes"):
        await expect(change.first).to_contain_text(words)
    await expect(rows.filter(has_text="signed in").first).to_be_visible()
    assert await rows.count() == await rows.filter(has_text="admin").count()
