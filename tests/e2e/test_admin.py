"""An administrator beside a running chat: limits that running calls obey, a turn that is cancelled, the records."""

import re
from contextlib import asynccontextmanager

import pytest
from playwright.async_api import Page, expect

from tests.e2e.chat import clock, has_started, state

pytestmark = pytest.mark.asyncio(loop_scope="session")

LISTS = [
    "governance/toolpolicy",
    "governance/toolcall",
    "governance/policychange",
    "turns/agent",
    "turns/agentchange",
    "turns/process",
    "turns/runningturn",
    "turns/turn",
    "turns/turn/overview",
    "turns/conversation",
    "turns/cancelrequest",
    "turns/repair",
    "webchat/apitoken",
    "webchat/apitokenchange",
]

FITS = """
    [...document.querySelectorAll(".results, .governance-wide")].every((box) => box.scrollWidth <= box.clientWidth)
"""


async def set_limit(page: Page, total: str) -> None:
    """Fill in the form that the tab shows, and save it."""
    await page.get_by_label("Total limit").fill(total)
    await save(page, "Save and continue editing")


async def save(page: Page, button: str) -> None:
    """Press a button that saves; once more where a warning asks for that, since other tests have made calls too."""
    async with page.expect_navigation():
        await page.get_by_role("button", name=button, exact=True).click()
    if await page.get_by_text("Save again to confirm").count():
        await page.get_by_role("button", name=button, exact=True).click()


@asynccontextmanager
async def limits_of(admin, tool: str):
    """Open the form of a new override; delete the override at the end."""
    page = await admin.open("/admin/governance/toolpolicy/add/")
    await page.get_by_label("Tool:").select_option(tool)
    yield page
    await page.goto(f"{admin.site.url}/admin/governance/toolpolicy/")
    await page.get_by_role("link", name=tool, exact=True).click()
    await page.get_by_role("link", name="All limits of this tool").click()
    await page.locator(".deletelink").click()
    await page.get_by_role("button", name="Delete the limits").click()
    await expect(page.get_by_text("deleted successfully")).to_be_visible()


async def test_a_running_call_obeys_the_limit_that_an_admin_sets(open_browser, browser_user, site):
    admin = await open_browser(site, user="admin")
    chat = await browser_user.start_conversation()
    await chat.say("wait 600")
    card = chat.card("seconds: 600")
    await expect(clock(card)).to_contain_text("/ 2 min")
    async with limits_of(admin, "wait") as page:
        await set_limit(page, "20 min")
        await expect(
            page.get_by_text("The new limits now apply to running calls of this process")
        ).to_be_visible()
        await expect(clock(card)).to_contain_text("/ 20 min")
        await card.get_by_role("button", expanded=False).click()
        await expect(card).to_contain_text("20 min (admin limit for this tool)")
        await expect(card).to_contain_text("limit changed to 20 min")
        await set_limit(page, "1 s")
        await expect(state(card)).to_have_text("timed out after 1 s")
    await expect(chat.answers.last).to_contain_text("did not respond within 1s")
    await chat.has_ended()


async def test_an_admin_cancels_a_running_turn(open_browser, browser_user, site):
    admin = await open_browser(site, user="admin")
    chat = await browser_user.start_conversation()
    await chat.say("run sleep 66")
    await has_started(chat.card("sleep 66"))
    page = await admin.open("/admin/turns/turn/?happened=active")
    await expect(page.locator("#result_list tbody tr")).to_have_count(1)
    await expect(page.locator("#changelist-form > .results + .actions")).to_be_visible()
    await page.locator("#result_list tbody input[type=checkbox]").check()
    await page.get_by_label("Action:").select_option(label="Cancel the selected running turns")
    await page.locator("button[name=index]").click()
    await expect(page.locator(".messagelist .error")).to_be_visible()
    await expect(page.locator("#result_list tbody input[type=checkbox]")).to_be_checked()
    await expect(page.get_by_label("Reason")).to_be_focused()
    await page.keyboard.type("runaway")
    await page.locator("button[name=index]").click()
    await expect(page.get_by_text("1 turn is being cancelled.")).to_be_visible()
    await expect(chat.ending("cancelled")).to_be_visible()
    await expect(chat.page.get_by_text("by an admin (admin)").last).to_be_visible()
    await chat.has_ended()


async def test_enter_in_the_reason_presses_no_button_of_running_now(
    open_browser, browser_user, site
):
    admin = await open_browser(site, user="admin")
    chat = await browser_user.start_conversation()
    await chat.say("run sleep 67")
    await has_started(chat.card("sleep 67"))
    page = await admin.open("/admin/turns/runningturn/")
    await page.get_by_label("Reason").fill("nearly done")
    await page.keyboard.press("Enter")
    call = page.locator("#running .governance-part").filter(has_text="sleep 67")
    await call.get_by_role("button", name=re.compile("30 seconds more")).click()
    await expect(page.get_by_role("status")).to_contain_text("now has 2 min 30 s")
    await chat.cancel_turn.click()
    await chat.has_ended()


MANY_TURNS = """
from datetime import timedelta
from django.utils import timezone
from turns.models import Conversation, Turn

made = Conversation.objects.create(owner_id=1, agent="assistant")
at = timezone.now()
Turn.objects.bulk_create(
    Turn(conversation=made, number=number, status="completed", agent="assistant", queued_at=at - timedelta(seconds=number))
    for number in range(1, 61)
)
"""


async def test_rows_of_all_pages_stay_chosen_when_the_action_is_refused(open_browser, site):
    site.carry_out(MANY_TURNS)
    admin = await open_browser(site, user="admin")
    page = await admin.open("/admin/turns/turn/")
    await page.get_by_label("Action:").select_option(label="Cancel the selected running turns")
    await page.locator("#action-toggle").check()
    await page.locator(".actions .question a").click()
    across = page.locator("input.select-across")
    await expect(across).to_have_value("1")
    await page.locator("button[name=index]").click()
    await expect(page.locator(".messagelist .error")).to_be_visible()
    await expect(across).to_have_value("1")
    await expect(page.locator(".actions .clear a")).to_be_visible()
    await expect(page.locator("#result_list tbody input:not(:checked)")).to_have_count(0)
    await page.get_by_label("Reason").fill("tidy up")
    await page.locator("button[name=index]").click()
    await expect(page.get_by_text("turns had already ended.")).to_be_visible()
    await expect(across).to_have_value("0")


async def test_every_list_and_record_of_the_admin_opens(open_browser, browser_user, site):
    chat = await browser_user.start_conversation()
    await chat.say("within 30min wait 600\nlist\nrun false")
    await has_started(chat.card("seconds: 600"))
    await chat.cancel_turn.click()
    await chat.has_ended()
    admin = await open_browser(site, user="admin")
    page = await admin.open("/admin/")
    for name in LISTS:
        answer = await page.goto(f"{site.url}/admin/{name}/")
        assert answer.ok, name
        assert await page.evaluate(FITS), name
        records = page.locator("#result_list tbody th a")
        if await records.count():
            await records.first.click()
            await expect(page).to_have_url(re.compile(rf"/admin/{name}/.+/change/"))
            await expect(page.get_by_role("heading", level=1)).to_be_visible()
    await page.goto(f"{site.url}/admin/governance/defaultpolicy/")
    await expect(page.get_by_label("Total limit")).to_be_visible()


# Names as long as their columns, of one word: the widest that the lists of turns and calls can show.
LONGEST_NAMES = """
from datetime import timedelta
from django.contrib.auth import get_user_model
from django.utils import timezone
from governance.models import Approval, ToolCall
from turns.models import CancelRequest, Conversation, Process, Repair, Turn

name, at = "w" * 60, timezone.now()
person = get_user_model().objects.create_user(name)
process = Process.objects.create(name=name[:50], host=name, pid=1, ended_at=at)
place = Conversation.objects.create(owner=person, agent=name, title=name)
by = {"ended_by_reason": "user", "ended_by_source": "button", "ended_by_name": name}
turn = Turn.objects.create(
    conversation=place, number=1, agent=name, owner=process, status="cancelled", queued_at=at, ended_at=at,
    duration_ms=3_725_500, **by,
)
call = {"call_id": name, "group": str(turn.pk), "scope": str(place.pk), "tool_name": name}
ToolCall.objects.create(
    status="abandoned", error_type="cancelled", disposition="indeterminate", requested_at=at, duration_ms=3_725_500,
    timeout_ms=3_725_500, timeout_source="override", **call, **by,
)
Approval.objects.create(requested_at=at, decided_at=at, decision="denied", by_name=name, reason=name, **call)
CancelRequest.objects.create(
    turn=turn, reason="user", source="button", by_name=name, note=name, requested_at=at, settled_at=at,
    settled_ms=3_725_500, outcome="cancelled", tool_id=name,
)
Repair.objects.create(conversation=place, turn=turn, kind="missing_result", cause="CRASH", at=at)
"""
WITH_NAMES = (
    "governance/toolcall",
    "governance/approval",
    "turns/turn",
    "turns/conversation",
    "turns/cancelrequest",
    "turns/repair",
)


async def test_lists_fit_beside_their_filters_however_long_names_are(open_browser, site):
    site.carry_out(LONGEST_NAMES)
    admin = await open_browser(site, user="admin")
    page = await admin.open("/admin/")
    wide = []
    for name in WITH_NAMES:
        await page.goto(f"{site.url}/admin/{name}/?when=24h")
        await expect(page.locator("#result_list tbody tr", has_text="w" * 60).first).to_be_visible()
        wide += [] if await page.evaluate(FITS) else [name]
    assert wide == []


async def test_a_token_is_made_and_its_lists_fit_the_screen(open_browser, site):
    admin = await open_browser(site, user="admin")
    page = await admin.open("/admin/webchat/apitoken/add/")
    await page.get_by_label("Name:").fill("nightly report of the whole company")
    await page.get_by_role("button", name="Save", exact=True).click()
    await expect(page.locator(".messagelist .warning")).to_contain_text("The token is tk_")
    for name in ("apitoken", "apitokenchange"):
        await page.goto(f"{site.url}/admin/webchat/{name}/")
        assert await page.evaluate(FITS), name
        await expect(page.locator("#result_list")).to_contain_text("nightly report")
