"""The order of events: gapless numbers, one turn and its calls as the protocol has them (V1)."""

import asyncio

import pytest

from tests.support import PATIENCE
from tests.turns.support import ChatDriver, FakeTools, in_database, row
from turns import selectors
from turns.models import Message, Turn
from turns.testing import call, gate, text

pytestmark = pytest.mark.django_db(transaction=True)


async def test_a_turn_with_one_call_tells_every_step_in_order(chat: ChatDriver):
    chat.use_script([text("Let me see."), call("c1", "quick", text="42")], [text("It is 42.")])
    turn = await chat.run("what is it?")
    log = await selectors.conversation_events(conversation_id=chat.id, after=0)
    assert [event["type"] for event in log] == [
        "turn_queued",
        "turn_start",
        "message",
        "tool_start",
        "tool_result",
        "message",
        "turn_end",
    ]
    assert turn.status == "completed"
    assert {event["turn_id"] for event in log} == {str(turn.pk)}
    assert log[1]["user_message"] == "what is it?"
    assert (
        log[4].items()
        >= {
            "tool_id": "c1",
            "result": "42",
            "is_error": False,
            "error_type": None,
            "status": "succeeded",
            "ended_by": None,
        }.items()
    )
    assert log[-1]["status"] == "completed"


async def test_text_is_pushed_at_once_without_a_number_and_with_its_place(chat: ChatDriver):
    hold = gate()
    chat.use_script([text("Hello "), hold, text("world.")])
    turn_id = await chat.say()
    first = await chat.sink.until("text_delta")
    assert (first["text"], first["offset"]) == ("Hello ", 0)
    assert "seq" not in first
    hold.opening.set()
    await chat.ended(turn_id)
    deltas = [event for event in chat.sink.events if event["type"] == "text_delta"]
    said = ""
    for delta in deltas:
        assert delta["offset"] == len(said)
        said += delta["text"]
    assert said == "Hello world."
    stored = await in_database(lambda: list(Message.objects.filter(role="assistant")))
    assert [message.content for message in stored] == [[{"type": "text", "text": "Hello world."}]]


async def test_calls_of_a_step_overlap_and_each_result_is_told_as_it_lands(
    chat: ChatDriver, fake_tools: FakeTools
):
    turn_id = await chat.begin(
        [call("a", "held"), call("b", "held"), call("c", "held")],
        [text("Done.")],
        running=["a", "b", "c"],
    )
    for name in "cab":
        fake_tools.open(name)
        await chat.sink.until("tool_result", tool_id=name)
    await chat.ended(turn_id)
    messages = await chat.history()
    assert [block.tool_use_id for block in messages[2].tool_results] == ["a", "b", "c"]


async def test_an_exclusive_call_never_overlaps_another(chat: ChatDriver, fake_tools: FakeTools):
    turn_id = await chat.begin(
        [call("a", "alone"), call("b", "alone"), call("c", "quick")], [text("Done.")]
    )
    assert (await chat.calls(turn_id))["b"].status == "pending"
    fake_tools.open("a")
    await chat.running(turn_id, "b")
    assert chat.sink.find("tool_result", tool_id="a")
    fake_tools.open("b")
    turn = await chat.ended(turn_id)
    assert turn.status == "completed"
    assert turn.tool_call_count == 3


async def test_turns_of_one_conversation_run_one_after_the_other(chat: ChatDriver):
    hold = gate()
    model = chat.use_script([hold, text("One.")], [text("Two.")], [text("Three.")])
    ids = [await chat.say(f"message {number}") for number in (1, 2, 3)]
    await asyncio.wait_for(hold.reached.wait(), PATIENCE)
    statuses = await in_database(
        lambda: list(Turn.objects.order_by("number").values_list("status", flat=True))
    )
    assert statuses == ["running", "queued", "queued"]
    hold.opening.set()
    for turn_id in ids:
        await chat.ended(turn_id)
    log = await selectors.conversation_events(conversation_id=chat.id, after=0)
    edges = [e["turn_id"] for e in log if e["type"] in ("turn_start", "turn_end")]
    assert edges == [str(turn_id) for turn_id in ids for _ in range(2)]
    assert len(model.requests) == 3
    said = [message.texts[0].text for message in model.requests[-1].messages]
    assert said == ["message 1", "One.", "message 2", "Two.", "message 3"]


async def test_turns_of_two_conversations_run_at_once(chat: ChatDriver, fake_tools: FakeTools):
    from turns import services

    other = ChatDriver(
        user=chat.user,
        conversation_id=(await services.create_conversation(user=chat.user)).id,
        sink=chat.sink,
    )
    first = await chat.begin([call("a", "held")], [call("b", "held")], [text("x")], [text("y")])
    second = await other.say()
    await other.running(second, "b")
    await chat.cancel(first)
    assert (await chat.ended(first)).status == "cancelled"
    assert (await row(Turn, pk=second)).status == "running"
    fake_tools.open("b")
    assert (await other.ended(second)).status == "completed"
