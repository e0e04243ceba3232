"""What a call waits for before it starts, as clients and operators are told (P2, P4)."""

import pytest

from governance import make_tool, registry
from tests.support import eventually
from tests.turns.support import ChatDriver, FakeTools
from turns import selectors
from turns.testing import call, text

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def solitary(fake_tools: FakeTools):
    """A tool whose calls run alone in their conversation."""

    registry.register(make_tool(fake_tools.held, name="solitary", concurrency="exclusive"))
    yield
    registry.unregister("solitary")


async def test_a_call_that_waits_for_another_one_names_it_live_and_later(
    chat: ChatDriver, fake_tools: FakeTools, solitary
):
    chat.use_script([call("a", "held"), call("b", "solitary"), call("c", "quick")], [text("Fine.")])
    turn_id = await chat.say()
    told = await chat.sink.until("tool_queued", tool_id="b")
    waits_for = {"kind": "call", "tool_id": "a", "tool_name": "held"}
    assert told["waits_for"] == waits_for
    assert (told["tool_name"], told["concurrency"]) == ("solitary", "exclusive")
    behind = await chat.sink.until("tool_queued", tool_id="c")
    assert behind["waits_for"] == {"kind": "call", "tool_id": "b", "tool_name": "solitary"}
    snapshot = await selectors.snapshot(conversation_id=chat.id, user=chat.user)
    (turn,) = snapshot["active_turns"]
    shown = {made["tool_id"]: made["waits_for"] for made in turn["calls"]}
    assert shown == {"a": None, "b": waits_for, "c": behind["waits_for"]}
    (active,) = await selectors.active_turns(user=chat.user)
    assert {made["tool_id"]: made["waits_for"] for made in active["current_tools"]} == shown
    fake_tools.open("a")
    fake_tools.open("b")
    assert (await chat.ended(turn_id)).status == "completed"
    (after,) = [
        made
        for made in (await selectors.get_turn(turn_id=turn_id, user=chat.user))["calls"]
        if made["tool_id"] == "b"
    ]
    assert after["waits_for"] is None


async def test_a_call_that_waits_for_a_place_says_so_and_can_be_cancelled(
    chat: ChatDriver, fake_tools: FakeTools, operator
):
    registry.register(make_tool(fake_tools.held, name="single", max_running=1))
    try:
        chat.use_script([call("a", "single"), call("b", "single")], [text("Fine.")])
        turn_id = await chat.say()
        told = await chat.sink.until("tool_queued")
        assert told["waits_for"] == {"kind": "slot", "tool_id": "", "tool_name": ""}
        waiting = told["tool_id"]
        await chat.cancel_call(turn_id, waiting)
        await eventually(lambda: chat.sink.find("tool_result", tool_id=waiting))
        fake_tools.open_all()
        assert (await chat.ended(turn_id)).status == "completed"
    finally:
        registry.unregister("single")


def test_tools_that_only_read_a_repository_run_side_by_side():
    names = ("git_status", "git_diff", "git_log", "git_commit")
    assert [registry.get(name).concurrency for name in names] == [
        *("parallel", "parallel", "parallel"),
        "exclusive",
    ]
