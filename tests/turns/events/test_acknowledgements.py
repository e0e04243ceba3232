"""The answer to a cancel word: after the proof, once, live and later, never read by a model (C6, C8)."""

import asyncio
import json
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db.models import F

from governance import has_cancel_word
from tests.support import PATIENCE
from tests.turns.support import ChatDriver, FakeTools, RecordingSink, in_database, row
from turns import selectors, services
from turns.events import acknowledgements
from turns.models import Acknowledgement, CancelRequest, Message, Turn
from turns.testing import call, failure, gate, text

pytestmark = pytest.mark.django_db(transaction=True)

FIXED_ALOUD = "Okay, it has ended."


async def begun(chat: ChatDriver, *answers: Any, tool: str = "held") -> UUID:
    """Let a turn run whose call waits; what the model says next follows."""
    chat.use_script([call("c1", tool)], *answers)
    turn_id = await chat.say("the question")
    await chat.running(turn_id, "c1")
    return turn_id


async def answered(chat: ChatDriver, turn_id: UUID) -> dict[str, Any]:
    """Wait for the answer to a word, and check its place: behind the end of its turn."""
    event = await chat.sink.until("cancel_acknowledged", turn_id=str(turn_id))
    await chat.check()
    log = await selectors.conversation_events(conversation_id=chat.id, after=0)
    types = [event["type"] for event in log if event["turn_id"] == str(turn_id)]
    assert types.index("cancel_acknowledged") > types.index("turn_end")
    assert types.count("cancel_acknowledged") == 1
    return event


async def shown(chat: ChatDriver, turn_id: UUID) -> Any:
    """What a page that is opened now shows under a turn."""
    snapshot = await selectors.snapshot(conversation_id=chat.id, user=chat.user)
    (turn,) = (turn for turn in snapshot["turns"] if turn["turn_id"] == str(turn_id))
    return turn["acknowledgements"]


async def test_a_typed_word_is_answered_with_fixed_words_live_and_later(chat: ChatDriver):
    turn_id = await begun(chat)
    await chat.say("Stop it, please!")
    event = await answered(chat, turn_id)
    told = {"text": "Cancelled.", "said": "Stop it, please!", "source": "typed"}
    assert told.items() <= event.items()
    assert await shown(chat, turn_id) == [told]
    turn = await selectors.get_turn(turn_id=turn_id, user=chat.user)
    assert turn["acknowledgements"] == [told]


@pytest.mark.parametrize("source", ["typed", "voice"])
async def test_neither_the_word_nor_its_answer_is_part_of_the_history(
    chat: ChatDriver, source: str
):
    turn_id = await begun(chat, [text("Alright.")], [text("Next.")])
    await chat.say("never mind", source=source)
    await answered(chat, turn_id)
    model = chat.use_script([text("Next.")])
    await chat.run("the next question")
    read = json.dumps([str(message) for message in model.requests[0].messages])
    assert "the question" in read
    for unreachable in ("never mind", "Cancelled.", "Alright.", FIXED_ALOUD):
        assert unreachable not in read
        assert unreachable not in str(await chat.history())
    assert await in_database(Message.objects.filter(turn=turn_id).count) == 2  # said and called


async def test_a_button_has_no_answer_but_the_end_of_the_turn(chat: ChatDriver):
    turn_id = await begun(chat)
    await chat.cancel(turn_id)
    await chat.ended(turn_id)
    assert await in_database(Acknowledgement.objects.count) == 0


async def test_two_words_have_one_answer(chat: ChatDriver):
    turn_id = await begun(chat)
    await asyncio.gather(*(chat.say("stop", client_id=f"m{n}") for n in range(3)))
    await answered(chat, turn_id)
    await chat.say("stop", client_id="m9")
    assert len(await shown(chat, turn_id)) == 1


async def test_what_may_still_run_is_said(chat: ChatDriver, fake_tools: FakeTools):
    turn_id = await begun(chat, tool="blocked")
    await chat.say("stop")
    event = await answered(chat, turn_id)
    assert event["text"] == "Cancelled. May still be running: blocked."
    fake_tools.open("c1")


async def test_a_turn_that_had_not_begun_is_answered_too(chat: ChatDriver, settings):
    settings.TURNS_MAX_LIVE = 1
    other = await services.create_conversation(user=chat.user)
    chat.use_script([call("c1", "held")])
    busy = await services.receive_message(conversation_id=other.id, user=chat.user, text="go")
    await chat.running(busy.turn_id, "c1")
    turn_id = await chat.say("wait for a place")
    await chat.say("stop")
    assert (await answered(chat, turn_id))["text"] == "Cancelled."
    await chat.cancel(busy.turn_id)
    await chat.sink.until_ended(busy.turn_id)


async def test_a_spoken_word_is_answered_in_the_agents_own_words(chat: ChatDriver, monkeypatch):
    monkeypatch.setattr(acknowledgements, "TIME_LIMIT", PATIENCE)
    model = chat.use_script([call("c1", "held")], [text("Alright, "), text("I let it be.")])
    turn_id = await chat.say(source="voice")
    await chat.running(turn_id, "c1")
    await chat.say("stop it", source="voice")
    event = await answered(chat, turn_id)
    assert (event["text"], event["said"], event["source"]) == (
        "Alright, I let it be.",
        "stop it",
        "voice",
    )
    turn = await row(Turn, pk=turn_id)
    assert (turn.status, turn.steps) == ("cancelled", 1), "it is no step of the turn"
    asked = model.requests[1]
    assert (asked.tools, asked.max_tokens, asked.may_think) == ((), 40, False)
    assert len(asked.messages) == 1, "it knows nothing of the conversation"


@pytest.mark.parametrize(
    "answer",
    [
        [text("Okay, I stop now.")],
        [text("D'accord, j'arrête.")],
        [text("word " * 60)],
        [text("")],
        [call("c2", "quick")],
        [failure(RuntimeError("no provider"))],
    ],
)
async def test_what_cannot_be_said_aloud_is_replaced_by_fixed_words(chat: ChatDriver, answer):
    turn_id = await begun(chat, answer)
    await chat.say("stop", source="voice")
    assert (await answered(chat, turn_id))["text"] == FIXED_ALOUD
    assert not has_cancel_word(FIXED_ALOUD)


async def test_a_word_of_the_site_is_not_said_aloud_either(chat: ChatDriver, settings):
    settings.TURNS_CANCEL_WORDS = ["laat maar"]
    turn_id = await begun(chat, [text("Goed, ik laat maar los.")])
    await chat.say("laat maar", source="voice")
    assert (await answered(chat, turn_id))["text"] == FIXED_ALOUD


async def test_a_model_that_takes_too_long_is_not_waited_for(chat: ChatDriver, monkeypatch):
    assert acknowledgements.TIME_LIMIT <= 2.0
    monkeypatch.setattr(acknowledgements, "TIME_LIMIT", 0.05)
    slow = gate(ignores_cancel=True)
    turn_id = await begun(chat, [slow, text("Too late.")])
    await chat.say("stop", source="voice")
    assert (await answered(chat, turn_id))["text"] == FIXED_ALOUD
    slow.opening.set()


async def test_what_may_still_run_is_said_aloud_by_no_model(
    chat: ChatDriver, fake_tools: FakeTools
):
    turn_id = await begun(chat, [text("All done.")], tool="blocked")
    await chat.say("stop", source="voice")
    said = (await answered(chat, turn_id))["text"]
    assert "may still be running" in said
    assert not has_cancel_word(said)
    fake_tools.open("c1")


async def test_an_answer_that_its_process_has_not_given_is_given_by_another(
    chat: ChatDriver, monkeypatch
):
    monkeypatch.setattr(acknowledgements, "begin", lambda answers: None)
    turn_id = await begun(chat)
    await chat.say("stop")
    await chat.ended(turn_id)
    assert await shown(chat, turn_id) == []
    monkeypatch.undo()
    request = CancelRequest.objects.filter(turn=turn_id)
    await in_database(lambda: request.update(settled_at=F("settled_at") - timedelta(minutes=1)))
    assert (await answered(chat, turn_id))["text"] == "Cancelled."


async def test_nothing_is_answered_before_the_turn_has_ended(chat: ChatDriver, sink: RecordingSink):
    turn_id = await begun(chat)
    pending = await in_database(lambda: list(Acknowledgement.objects.values_list("pk", flat=True)))
    assert pending == []
    await chat.say("stop")
    (pk,) = await in_database(lambda: list(Acknowledgement.objects.values_list("pk", flat=True)))
    await answered(chat, turn_id)
    await in_database(lambda: CancelRequest.objects.update(settled_at=None))
    await in_database(lambda: Acknowledgement.objects.update(at=None))
    acknowledgements.begin([pk])
    await asyncio.sleep(0)
    await acknowledgements.background.join()
    assert (await row(Acknowledgement, pk=pk)).at is None
