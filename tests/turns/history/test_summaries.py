"""What prompts leave out is stored: the next turn begins with the same. A summary is content like what it is made of."""

from datetime import timedelta

import pytest
from django.utils import timezone

from tests.turns.support import ChatDriver, in_database
from turns import selectors
from turns.core.chat_model import ChatRequest, ToolCallDelta
from turns.core.texts import SUMMARY
from turns.models import Agent, Event, Turn
from turns.storage import retention
from turns.testing import FunctionChatModel
from webchat.exports import as_markdown

pytestmark = pytest.mark.django_db(transaction=True)

SECRET = "They spoke of tulips."
LONG = "lorem ipsum " * 250
_requests: list[ChatRequest] = []


async def _call():
    yield ToolCallDelta(index=0, id="c1", name="quick", arguments=f'{{"text": "{LONG}"}}')


def _answer(request):
    _requests.append(request)
    if not request.tools:
        return SECRET
    return "Done." if request.messages[-1].tool_results else _call()


def model():
    """Return a chat model that makes each turn long."""
    return FunctionChatModel(_answer)


@pytest.fixture
async def summarised(chat: ChatDriver, settings):
    """Talk until the oldest turns are summarised; return the turn that did it."""
    _requests.clear()
    settings.TURNS_CHAT_MODEL = f"{__name__}.model"
    await in_database(lambda: Agent.objects.update(window=12_000))
    for _ in range(12):
        turn = await chat.run()
        if turn.summary:
            return turn
    raise AssertionError("Nothing was summarised.")


def first_text():
    return _requests[-1].messages[0].texts[0].text


async def reasons(chat):
    rows = Event.objects.filter(conversation=chat.id, type="prompt_changed").order_by("seq")
    return await in_database(lambda: [row.payload["reason"] for row in rows])


async def test_the_next_turn_begins_with_the_summary(chat: ChatDriver, summarised):
    before = await reasons(chat)
    assert first_text() == f"{SUMMARY}\n{SECRET}"
    await chat.run()
    assert first_text() == f"{SUMMARY}\n{SECRET}"
    assert await reasons(chat) == before
    history = await chat.history()
    asked = [message for message in history if message.role == "user" and message.texts]
    assert len(asked) == summarised.number + 1  # rows keep everything


async def test_its_turn_shows_it(chat: ChatDriver, summarised):
    told = chat.sink.find("prompt_changed", reason="summary", turn_id=str(summarised.pk))
    assert told is not None
    assert told["summary"] == SECRET
    seen = await selectors.snapshot(conversation_id=chat.id, user=chat.user)
    assert [turn["summary"] for turn in seen["turns"]][-1] == SECRET
    export = await selectors.export(conversation_id=chat.id, user=chat.user)
    shown = as_markdown(export)
    assert f"## Summary of the oldest messages\n\n```text\n{SECRET}\n```" in shown


async def test_it_goes_with_the_oldest_turn_that_it_is_of(chat: ChatDriver, summarised):
    turns = Turn.objects.filter(conversation=chat.id)
    old = timezone.now() - timedelta(days=100)
    await in_database(lambda: turns.filter(number=1).update(ended_at=old))
    await in_database(lambda: retention.prune(timedelta(days=90)))

    assert await in_database(lambda: set(turns.values_list("summary", flat=True))) == {""}
    events = Event.objects.filter(conversation=chat.id)
    payloads = await in_database(lambda: str(list(events.values_list("payload", flat=True))))
    assert SECRET not in payloads
    turn_id = await chat.say()
    await chat.sink.until_ended(turn_id)
    assert not any(SECRET in str(request.messages) for request in _requests[-2:])


async def test_it_goes_with_the_conversation(chat: ChatDriver, summarised):
    await in_database(lambda: list(retention.empty_conversations([chat.id])))

    turns = Turn.objects.filter(conversation=chat.id)
    assert await in_database(lambda: set(turns.values_list("summary", flat=True))) == {""}


async def test_an_edit_of_what_was_summarised_brings_the_whole_history_back(
    chat: ChatDriver, summarised
):
    second = await in_database(lambda: Turn.objects.get(conversation=chat.id, number=2))
    await chat.run("Otherwise", replaces=second.pk)
    assert SECRET not in str(_requests[-1].messages)
    assert len({message.turn_id for message in _requests[-1].messages}) == 2
