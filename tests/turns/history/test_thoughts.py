"""What a model thinks is content like what it says: it streams, is stored, exported and deleted. No model reads it."""

import json
from datetime import timedelta

import pytest
from django.utils import timezone

from tests.turns.support import ChatDriver, in_database
from turns import selectors
from turns.core.chat_model import ThinkingDelta
from turns.models import Event, Message, Turn
from turns.storage import retention
from turns.testing import call, gate, text
from webchat.exports import as_markdown

pytestmark = pytest.mark.django_db(transaction=True)

SECRET = "the tulip\x00 mill"
SHOWN = "the tulip\ufffd mill"


@pytest.fixture
async def model(chat: ChatDriver, fake_tools):
    model = chat.use_script(
        [ThinkingDelta("Let me see: "), ThinkingDelta(SECRET), call("a", "quick")],
        [ThinkingDelta("So."), text("Done.")],
        [text("Again.")],
    )
    await chat.run()
    return model


def thoughts_in(messages):
    return [message["thoughts"]["text"] for message in messages if message.get("thoughts")]


async def test_they_stream_and_stand_in_the_event_and_the_snapshot_of_their_message(
    chat: ChatDriver, model
):
    pieces = [event for event in chat.sink.events if event["type"] == "thought_delta"]
    first = [piece for piece in pieces if piece["step"] == 1]
    assert "".join(piece["text"] for piece in first).startswith("Let me see")
    assert first[0]["offset"] == 0
    told = [event for event in chat.sink.events if event["type"] == "message"]
    assert thoughts_in(told) == [f"Let me see: {SHOWN}", "So."]
    assert all(event["thoughts"]["duration_ms"] >= 0 for event in told if "thoughts" in event)
    seen = await selectors.snapshot(conversation_id=chat.id, user=chat.user)
    assert thoughts_in(seen["messages"]) == thoughts_in(told)


async def test_an_export_has_them_in_both_forms(chat: ChatDriver, model):
    export = await selectors.export(conversation_id=chat.id, user=chat.user)

    assert thoughts_in(export["turns"][0]["messages"]) == [f"Let me see: {SHOWN}", "So."]
    assert f"### Thought for 1 s\n\n```text\nLet me see: {SHOWN}\n```" in as_markdown(export)


async def test_no_model_reads_them(chat: ChatDriver, model):
    await chat.run("Again")

    assert "tulip" not in str([request.messages for request in model.requests])
    assert "tulip" not in str(await chat.history())


async def test_they_are_deleted_with_what_was_said(chat: ChatDriver, model):
    def kept():
        rows = [*Message.objects.values_list("content", "thoughts")]
        return "tulip" in json.dumps([rows, *Event.objects.values_list("payload", flat=True)])

    assert await in_database(kept)
    long_ago = timezone.now() - timedelta(days=100)
    await in_database(lambda: Turn.objects.update(ended_at=long_ago))
    await in_database(lambda: retention.prune(timedelta(days=90)))
    assert not await in_database(kept)


async def test_those_before_a_cut_answer_stay_with_it(chat: ChatDriver, fake_tools):
    chat.use_script([ThinkingDelta("Hm."), text("Once upon"), gate()])
    turn_id = await chat.say()
    await chat.sink.until("text_delta", text="Once upon")
    await chat.cancel(turn_id)
    await chat.ended(turn_id)

    seen = await selectors.snapshot(conversation_id=chat.id, user=chat.user)
    assert thoughts_in(seen["messages"]) == ["Hm."]
