"""Messages: what makes a turn, what is refused, and what is only the same one again."""

import asyncio
import uuid

import pytest

from tests.turns.support import ChatDriver, FakeTools, in_database, row
from turns import services
from turns.exceptions import ConversationNotFound, MessageRejected, NotAllowed, QueueIsFull
from turns.models import Conversation, Turn
from turns.testing import call, text

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize("said", ["", "   \n\t ", "x" * 51])
async def test_an_empty_or_too_long_message_is_refused(chat: ChatDriver, settings, said):
    settings.TURNS_MAX_MESSAGE_LENGTH = 50
    with pytest.raises(MessageRejected) as refused:
        await chat.say(said)
    assert refused.value.sentence
    assert await in_database(Turn.objects.count) == 0


@pytest.mark.parametrize("client_id", ["", "x" * 65])
async def test_a_client_id_has_a_sensible_length(chat: ChatDriver, client_id):
    with pytest.raises(MessageRejected):
        await chat.say(client_id=client_id)


async def test_the_same_client_id_is_the_same_turn(chat: ChatDriver):
    model = chat.use_script([text("Once.")])
    received = [
        await services.receive_message(
            conversation_id=chat.id, user=chat.user, text="hello", client_id="m1"
        )
        for _ in range(2)
    ]
    await chat.ended(received[0].turn_id)
    received.append(
        await services.receive_message(
            conversation_id=chat.id, user=chat.user, text="hello", client_id="m1"
        )
    )
    assert len({r.turn_id for r in received}) == 1
    assert [r.is_new for r in received] == [True, False, False]
    assert len(model.requests) == 1
    assert await in_database(Turn.objects.count) == 1


async def test_two_frames_with_one_client_id_at_once_are_one_turn(chat: ChatDriver):
    chat.use_script([text("Once.")])
    ids = await asyncio.gather(*(chat.say(client_id="m1") for _ in range(5)))
    assert len(set(ids)) == 1
    await chat.ended(ids[0])


async def test_one_client_id_in_two_conversations_is_two_turns(chat: ChatDriver):
    chat.use_script([text("One.")], [text("Two.")])
    other = await services.create_conversation(user=chat.user)
    first = await chat.run(client_id="m1")
    received = await services.receive_message(
        conversation_id=other.id, user=chat.user, text="hello", client_id="m1"
    )
    assert received.turn_id != first.pk
    await chat.sink.until_ended(received.turn_id)


async def test_beyond_the_limit_of_waiting_messages_one_more_is_refused(
    chat: ChatDriver, settings, fake_tools: FakeTools
):
    settings.TURNS_MAX_QUEUED = 2
    await chat.begin([call("a", "held")], [text("One.")], [text("Two.")], [text("Three.")])
    second, third = await chat.say("second"), await chat.say("third", client_id="m3")
    with pytest.raises(QueueIsFull):
        await chat.say("fourth")
    assert await chat.say("third", client_id="m3") == third
    fake_tools.open("a")
    for turn_id in (second, third):
        assert (await chat.ended(turn_id)).status == "completed"


async def test_in_somebody_elses_conversation_nothing_is_said(chat: ChatDriver, eve, operator):
    for user in (eve, operator):
        for said in ("hello", "stop"):
            with pytest.raises(ConversationNotFound):
                await services.receive_message(conversation_id=chat.id, user=user, text=said)
    with pytest.raises(ConversationNotFound):
        await services.receive_message(conversation_id=uuid.uuid4(), user=chat.user, text="hello")
    assert await in_database(Turn.objects.count) == 0


async def test_a_deactivated_user_may_do_nothing(chat: ChatDriver, fake_tools: FakeTools):
    turn_id = await chat.begin([call("a", "held")], [text("Fine.")])
    await in_database(lambda: type(chat.user).objects.update(is_active=False))
    with pytest.raises(NotAllowed):
        await chat.say("again")
    with pytest.raises(NotAllowed):
        await chat.cancel(turn_id)
    with pytest.raises(NotAllowed):
        await services.create_conversation(user=chat.user)
    fake_tools.open("a")
    await chat.sink.until_ended(turn_id)


async def test_what_no_database_takes_is_replaced(chat: ChatDriver):
    model = chat.use_script([text("odd \x00 \udc80 answer")])
    turn = await chat.run("odd \x00 \udc80 words")
    assert turn.user_message == "odd \ufffd ? words"
    assert model.requests[0].messages[0].texts[0].text == "odd \ufffd ? words"
    assert (await chat.history())[-1].texts[0].text == "odd \ufffd ? answer"


async def test_the_first_message_names_the_conversation(chat: ChatDriver):
    chat.use_script([text("Yes.")], [text("Yes.")])
    await chat.run("  What is\nthe   weather " + "like " * 30)
    await chat.run("another")
    title = (await row(Conversation, pk=chat.id)).title
    assert title.startswith("What is the weather like")
    assert len(title) <= 60
    assert title.endswith("…")


async def test_a_chat_model_that_fails_fails_the_turn_and_the_next_one_runs(chat: ChatDriver):
    from turns.core.exceptions import ChatModelError
    from turns.testing import failure

    first = await chat.play(
        [text("Well"), failure(ChatModelError("overloaded", "The model is busy. Try again."))],
        [failure(RuntimeError("the secret of the provider"))],
        [text("Better.")],
    )
    assert (first.status, first.error_code) == ("failed", "overloaded")
    told = chat.sink.find("error", turn_id=str(first.pk))
    assert (told["code"], told["message"]) == ("overloaded", "The model is busy. Try again.")
    second = await chat.run()
    assert (second.status, second.error_code) == ("failed", "internal_error")
    assert not any("secret" in str(event) for event in chat.sink.events)
    assert (await chat.run()).status == "completed"
    said = [m.texts[0].text for m in await chat.history() if m.role == "assistant"]
    assert said == ["Well", "Better."]


async def test_a_conversation_deleted_under_its_turn_leaves_nothing_behind(
    chat: ChatDriver, fake_tools: FakeTools, caplog
):
    await chat.begin([call("a", "held")], [text("Fine.")])
    await in_database(Conversation.objects.all().delete)
    fake_tools.open("a")
    from tests.support import eventually
    from turns.running import runtime

    async def is_idle() -> bool:
        return runtime.live_count() == 0

    await eventually(is_idle)
    assert not [r for r in caplog.records if r.levelname == "ERROR"]
