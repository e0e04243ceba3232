"""A site with what an operator is asked about: a crash, a limit that is too short, a refund cut in the middle."""

from playwright.async_api import expect

from tests.e2e.chat import Chat, has_started
from tests.e2e.site import Site
from tests.support import eventually

# One call in ten is cut by the tool's own limit.
SHORT_LIMIT = """
from datetime import timedelta

from governance import db_clock
from governance.models import ToolCall, ToolPolicy
from turns.models import Turn

turn = Turn.objects.latest("queued_at")
now = db_clock.now()
ToolPolicy.objects.create(tool_name="web_search", timeout_ms=8_000)
for number in range(40):
    is_cut = number % 10 == 3
    at = now - timedelta(minutes=10 + number)
    ToolCall.objects.create(
        tool_name="web_search", call_id=f"planted-{number}", group=str(turn.pk),
        scope=str(turn.conversation_id),
        requested_at=at, started_at=at, ended_at=at, duration_ms=8_000 if is_cut else 700 + number, timeout_ms=8_000,
        timeout_source="override", status="timed_out" if is_cut else "succeeded",
        error_type="timeout" if is_cut else "", limit_reached="total" if is_cut else "",
    )
"""


async def plant(site: Site, open_browser) -> Chat:
    """Cut a refund, let calls run out of time, and crash; return the chat that has seen it, after the restart."""
    person = await open_browser(site)
    person.expect_connection_loss()
    chat = await person.start_conversation()
    await chat.say('call refund {"customer": "Ada"}\nwait 5')
    await has_started(chat.cards.filter(has_text="refund"))
    await chat.cancel_turn.click()
    await chat.has_ended()
    site.carry_out(SHORT_LIMIT)
    other = await person.start_conversation()
    await other.say("run sleep 63\nwithin 30min wait 600")
    await eventually(lambda: site.processes("sleep 63"))
    site.kill()
    site.start()
    await expect(other.ending("interrupted")).to_be_visible()
    return chat
