"""`read_result` gives a result of this conversation again, part by part."""

from datetime import timedelta

import pytest

from governance import registry
from governance.models import ToolCall
from tests.turns.support import ChatDriver, in_database
from turns import services
from turns.core.window import result_id
from turns.models import Turn
from turns.storage import retention
from turns.testing import call, text

pytestmark = pytest.mark.django_db(transaction=True)

LONG = "".join(f"line {number}\n" for number in range(2_000))


@pytest.fixture
async def id(chat: ChatDriver):
    """Return the id of a long result."""
    chat.use_script([call("c1", "quick", text=LONG)], [text("Done.")])
    turn = await chat.run()
    return result_id(str(turn.pk), "c1")


async def read(chat: ChatDriver, **arguments):
    chat.use_script([call("r1", "read_result", **arguments)], [text("Done.")])
    turn = await chat.run()
    return (await chat.calls(turn.pk))["r1"]


async def test_it_is_read_in_parts(chat: ChatDriver, id):
    parts = []
    offset = 0
    while offset < len(LONG):
        row = await read(chat, id=id, offset=offset, limit=9_000)
        head, part = row.result.split("\n", 1)
        offset += len(part)
        parts.append(part)
        assert (f"Continue with offset {offset}." in head) == (offset < len(LONG))
    assert "".join(parts) == LONG
    assert len(parts) == -(-len(LONG) // 9_000)
    assert "nothing at" in (await read(chat, id=id, offset=len(LONG))).result


@pytest.mark.parametrize("wrong", ["", "c1", ".c1", "%.c1", "________.c1", "\x00", "0" * 200])
async def test_an_id_that_no_result_has_is_told(chat: ChatDriver, id, wrong):
    row = await read(chat, id=wrong)
    assert row.status == "failed"
    assert "no result with this id" in row.result


async def test_a_part_has_bounds(chat: ChatDriver, id):
    row = await read(chat, id=id, limit=10_001)
    assert row.status == "failed"
    assert "line" not in row.result


async def test_other_conversations_have_no_results_here(chat: ChatDriver, id, eve):
    for user in (chat.user, eve):
        there = await services.create_conversation(user=user)
        other = ChatDriver(user=user, conversation_id=there.id, sink=chat.sink)
        row = await read(other, id=id)
        assert row.status == "failed"
        assert "line" not in row.result


async def test_what_was_deleted_is_not_read(chat: ChatDriver, id):
    await in_database(lambda: retention.prune(timedelta(days=-1)))
    chat.use_script([call("r1", "read_result", id=id)], [text("Done.")])
    turn_id = await chat.say()
    await chat.sink.until_ended(turn_id)
    assert (await chat.calls(turn_id))["r1"].status == "failed"


async def test_what_an_edit_has_taken_out_is_not_read(chat: ChatDriver, id):
    first = await in_database(lambda: Turn.objects.get(conversation=chat.id))
    chat.use_script([call("r1", "read_result", id=id)], [text("Done.")])
    turn = await chat.run("Again", replaces=first.pk)
    assert (await chat.calls(turn.pk))["r1"].status == "failed"


async def test_a_call_that_runs_has_no_result_yet(chat: ChatDriver):
    chat.use_script([call("c1", "held"), call("r1", "quick")], [text("Done.")])
    turn_id = await chat.say()
    await chat.running(turn_id, "c1")
    rows = ToolCall.objects.filter(group=str(turn_id), call_id="c1")
    assert await in_database(lambda: rows.get().result) == ""
    await chat.cancel(turn_id)
    await chat.ended(turn_id)


def test_nobody_is_asked_about_it():
    tool = registry.get("read_result")
    assert not tool.side_effects
    assert not tool.approval
