"""What is asked of a running turn: the owner in this process gets it without a look (C12)."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from governance.db import run_in_poll_thread
from tests.turns.support import ChatDriver, FakeTools
from turns import services
from turns.testing import call, gate, text

pytestmark = pytest.mark.django_db(transaction=True)


@asynccontextmanager
async def without_polls() -> AsyncIterator[None]:
    """Nobody reads what is stored meanwhile."""
    is_over = threading.Event()
    reading = asyncio.ensure_future(run_in_poll_thread(is_over.wait)())
    try:
        yield
    finally:
        is_over.set()
        await reading


async def test_a_cancel_of_this_process_needs_no_look(chat: ChatDriver):
    chat.use_script([text("One"), gate()])
    turn_id = await chat.say()
    await chat.sink.until("text_delta")
    async with without_polls():
        await chat.cancel(turn_id)
        assert (await chat.ended(turn_id)).status == "cancelled"


async def test_a_decision_and_a_limit_of_this_process_need_no_look(
    chat: ChatDriver, fake_tools: FakeTools, settings
):
    settings.GOVERNANCE_APPROVAL = {}  # as the tools declare it
    chat.use_script([call("a", "asked"), call("b", "held")], [text("Done.")])
    turn_id = await chat.say()
    await chat.asked(turn_id, "a")
    await chat.running(turn_id, "b")
    async with without_polls():
        await chat.decide(turn_id, "a", decision="deny")
        await chat.sink.until("tool_result", tool_id="a", status="denied")
        await services.set_deadline(turn_id=turn_id, tool_id="b", user=chat.user, timeout_ms=50)
        assert (await chat.ended(turn_id)).status == "completed"
    assert (await chat.calls(turn_id))["b"].status == "timed_out"
