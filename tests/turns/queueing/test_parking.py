"""A conversation whose owners keep dying is parked until a person lets it go on. What was interrupted can be continued."""

from datetime import timedelta

import pytest
from django.test import Client
from django.urls import reverse

from tests.turns.row_factory import RowFactory, said
from tests.turns.support import ChatDriver, in_database, row
from turns import services
from turns.endings import recovery
from turns.exceptions import CannotContinue, ConversationNotFound, ConversationParked, TurnNotFound
from turns.models import Conversation, Event, Turn
from turns.processes import process_registry
from turns.queueing import queue
from turns.running import runtime
from turns.testing import text

pytestmark = pytest.mark.django_db(transaction=True)


def lose(factory: RowFactory, *, ago: float | None = None) -> Turn:
    """Let an owner die under a turn, which is found at once."""
    turn = factory.turn("running", owner=None)
    factory.message(turn, "user", said("deadly"))
    recovery.recover()
    turn.refresh_from_db()
    if ago is not None:
        Turn.objects.filter(pk=turn.pk).update(ended_at=turn.ended_at - timedelta(seconds=ago))
    factory.conversation.refresh_from_db()
    return turn


def types(factory: RowFactory) -> list[str]:
    return list(
        Event.objects.filter(conversation=factory.id).order_by("seq").values_list("type", flat=True)
    )


@pytest.fixture
def factory(ada) -> RowFactory:
    return RowFactory(ada)


def test_the_third_death_in_ten_minutes_parks_the_conversation(factory):
    for _ in range(2):
        lose(factory)
        assert factory.conversation.parked_at is None
    third = lose(factory)
    assert factory.conversation.parked_at == third.ended_at
    assert factory.conversation.parked_reason == "owner_deaths"
    assert types(factory) == ["turn_end", "turn_end", "conversation_parked", "turn_end"]


@pytest.mark.parametrize("how", ["long ago", "for a reason", "never"])
def test_deaths_that_do_not_count(factory, settings, how):
    if how == "never":
        settings.TURNS_PARK_AFTER = None
    for _ in range(3):
        turn = lose(factory, ago=601 if how == "long ago" else None)
        if how == "for a reason":
            Turn.objects.filter(pk=turn.pk).update(ended_by_reason="shutdown")
    assert factory.conversation.parked_at is None


def test_a_parked_conversation_begins_nothing_and_takes_nothing(factory, settings):
    settings.TURNS_PARK_AFTER = 1
    waiting = factory.turn("queued")
    lose(factory)
    assert queue.waiting_conversations() == []
    assert queue.claim(factory.id, process=process_registry.register()) is None
    with pytest.raises(ConversationParked):
        queue.enqueue(factory.id, text="more", source="typed", client_id=None)
    waiting.refresh_from_db()
    assert waiting.status == "queued"


async def parked(chat: ChatDriver) -> Conversation:
    conversation = await row(Conversation, pk=chat.id)

    def park() -> None:
        RowFactory(conversation=conversation).turn("queued", user_message="waited")
        Conversation.objects.filter(pk=chat.id).update(
            parked_at=conversation.created_at, parked_reason="owner_deaths"
        )

    await in_database(park)
    return conversation


async def test_a_person_lets_it_go_on_and_what_waited_begins(chat: ChatDriver, eve):
    chat.use_script([text("Here I am.")])
    await parked(chat)
    await runtime.ensure_started()
    with pytest.raises(ConversationParked):
        await chat.say("more")
    with pytest.raises(ConversationNotFound):
        await services.resume_conversation(conversation_id=chat.id, user=eve)
    assert await services.resume_conversation(conversation_id=chat.id, user=chat.user)
    resumed = chat.sink.find("conversation_resumed")
    assert resumed["by"] == "ada"
    waited = await row(Turn, user_message="waited")
    await chat.sink.until_ended(waited.pk)
    assert (await row(Turn, pk=waited.pk)).status == "completed"
    assert not await services.resume_conversation(conversation_id=chat.id, user=chat.user)
    events = await in_database(lambda: Event.objects.filter(type="conversation_resumed").count())
    assert events == 1


async def test_an_administrator_lets_it_go_on(chat: ChatDriver, operator):
    await parked(chat)
    assert await services.resume_conversation(conversation_id=chat.id, user=operator)
    assert chat.sink.find("conversation_resumed")["by"] == "olga"


def test_the_admin_has_an_action_for_it(factory, admin_user):
    Conversation.objects.filter(pk=factory.id).update(parked_at=factory.conversation.created_at)
    quiet = RowFactory(admin_user)
    admin_client = Client()
    admin_client.force_login(admin_user)
    page = admin_client.get(reverse("admin:turns_conversation_changelist"), {"parked": "yes"})
    assert [found.pk for found in page.context["cl"].result_list] == [factory.id]
    answer = admin_client.post(
        reverse("admin:turns_conversation_changelist"),
        {"action": "resume_conversations", "_selected_action": [factory.id, quiet.id]},
        follow=True,
    )
    assert "1 conversation was resumed." in answer.content.decode()
    factory.conversation.refresh_from_db()
    assert factory.conversation.parked_at is None


async def interrupted(chat: ChatDriver, **fields) -> Turn:
    """Return the last turn of the conversation, which its owner has lost."""
    conversation = await row(Conversation, pk=chat.id)

    def plant() -> Turn:
        factory = RowFactory(conversation=conversation)
        turn = factory.turn("interrupted", **fields)
        factory.message(turn, "user", said("do much"))
        return turn

    return await in_database(plant)


async def test_an_interrupted_turn_is_continued_once_however_often_it_is_asked_for(
    chat: ChatDriver,
):
    turn = await interrupted(chat)
    model = chat.use_script([text("Where was I?")], [text("never")])
    first = await services.continue_turn(turn_id=turn.pk, user=chat.user)
    again = await services.continue_turn(turn_id=turn.pk, user=chat.user)
    assert (first.is_new, again.is_new) == (True, False)
    assert again.turn_id == first.turn_id
    await chat.sink.until_ended(first.turn_id)
    late = await services.continue_turn(turn_id=turn.pk, user=chat.user)
    assert late.turn_id == first.turn_id
    continued = await row(Turn, pk=first.turn_id)
    assert (continued.status, continued.source) == ("completed", "continue")
    assert continued.user_message == "Please continue where you were interrupted."
    assert len(model.requests) == 1
    assert "did not reach its end" in model.requests[0].messages[-1].texts[0].text
    queued = chat.sink.find("turn_queued", turn_id=str(first.turn_id))
    assert queued["source"] == "continue"


async def test_a_turn_that_a_restart_has_ended_is_continued_too(chat: ChatDriver):
    turn = await interrupted(chat, ended_by_reason="shutdown")
    chat.use_script([text("Go on.")])
    received = await services.continue_turn(turn_id=turn.pk, user=chat.user)
    await chat.sink.until_ended(received.turn_id)


async def test_only_the_last_turn_can_be_continued_and_only_by_its_owner(
    chat: ChatDriver, eve, operator
):
    first = await interrupted(chat)
    last = await interrupted(chat)
    chat.use_script([text("Done.")])
    with pytest.raises(CannotContinue):
        await services.continue_turn(turn_id=first.pk, user=chat.user)
    for other in (eve, operator):
        with pytest.raises(TurnNotFound):
            await services.continue_turn(turn_id=last.pk, user=other)
    done = await chat.say("something else")
    await chat.sink.until_ended(done)
    for turn_id in (last.pk, done):
        with pytest.raises(CannotContinue):
            await services.continue_turn(turn_id=turn_id, user=chat.user)
