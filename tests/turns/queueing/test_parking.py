"""A conversation whose owners keep dying is parked until a person lets it go on; what was interrupted can be continued."""

from datetime import timedelta

import pytest
from django.test import Client
from django.urls import reverse

from tests.turns.rows import Planted, said
from tests.turns.support import Stage, in_database, row
from turns import services
from turns.endings import recovery
from turns.exceptions import CannotContinue, ConversationNotFound, ConversationParked, TurnNotFound
from turns.models import Conversation, Event, Turn
from turns.processes import process_registry
from turns.queueing import queue, scheduling
from turns.running import runtime
from turns.testing import text

pytestmark = pytest.mark.django_db(transaction=True)


def lose(planted: Planted, *, ago: float | None = None) -> Turn:
    """Let an owner die under a turn, which is found at once."""
    turn = planted.turn("running", owner=None)
    planted.message(turn, "user", said("deadly"))
    recovery.recover()
    turn.refresh_from_db()
    if ago is not None:
        Turn.objects.filter(pk=turn.pk).update(ended_at=turn.ended_at - timedelta(seconds=ago))
    planted.conversation.refresh_from_db()
    return turn


def types(planted: Planted) -> list[str]:
    return list(
        Event.objects.filter(conversation=planted.id).order_by("seq").values_list("type", flat=True)
    )


@pytest.fixture
def planted(ada) -> Planted:
    return Planted(ada)


def test_the_third_death_in_ten_minutes_parks_the_conversation(planted):
    for _ in range(2):
        lose(planted)
        assert planted.conversation.parked_at is None
    third = lose(planted)
    assert planted.conversation.parked_at == third.ended_at
    assert planted.conversation.parked_reason == "owner_deaths"
    assert types(planted) == ["turn_end", "turn_end", "conversation_parked", "turn_end"]


@pytest.mark.parametrize("how", ["long ago", "for a reason", "never"])
def test_deaths_that_do_not_count(planted, settings, how):
    if how == "never":
        settings.TURNS_PARK_AFTER = None
    for _ in range(3):
        turn = lose(planted, ago=601 if how == "long ago" else None)
        if how == "for a reason":
            Turn.objects.filter(pk=turn.pk).update(ended_by_reason="shutdown")
    assert planted.conversation.parked_at is None


def test_a_parked_conversation_begins_nothing_and_takes_nothing(planted, settings):
    settings.TURNS_PARK_AFTER = 1
    waiting = planted.turn("queued")
    lose(planted)
    assert scheduling.waiting_conversations() == []
    assert scheduling.dispatch_again() == 0
    assert queue.claim(planted.id, process=process_registry.register()) is None
    with pytest.raises(ConversationParked):
        queue.enqueue(planted.id, text="more", source="typed", client_id=None)
    waiting.refresh_from_db()
    assert waiting.status == "queued"


async def parked(stage: Stage) -> Conversation:
    conversation = await row(Conversation, pk=stage.id)

    def park() -> None:
        Planted(conversation=conversation).turn("queued", user_message="waited")
        Conversation.objects.filter(pk=stage.id).update(
            parked_at=conversation.created_at, parked_reason="owner_deaths"
        )

    await in_database(park)
    return conversation


async def test_a_person_lets_it_go_on_and_what_waited_begins(stage: Stage, eve):
    stage.play([text("Here I am.")])
    await parked(stage)
    await runtime.ensure_started()
    with pytest.raises(ConversationParked):
        await stage.say("more")
    with pytest.raises(ConversationNotFound):
        await services.resume_conversation(conversation_id=stage.id, user=eve)
    assert await services.resume_conversation(conversation_id=stage.id, user=stage.user)
    resumed = stage.listener.find("conversation_resumed")
    assert resumed["by"] == "ada"
    waited = await row(Turn, user_message="waited")
    await stage.listener.until_ended(waited.pk)
    assert (await row(Turn, pk=waited.pk)).status == "completed"
    assert not await services.resume_conversation(conversation_id=stage.id, user=stage.user)
    events = await in_database(lambda: Event.objects.filter(type="conversation_resumed").count())
    assert events == 1


async def test_an_administrator_lets_it_go_on(stage: Stage, operator):
    await parked(stage)
    assert await services.resume_conversation(conversation_id=stage.id, user=operator)
    assert stage.listener.find("conversation_resumed")["by"] == "olga"


def test_the_admin_has_an_action_for_it(planted, admin_user):
    Conversation.objects.filter(pk=planted.id).update(parked_at=planted.conversation.created_at)
    quiet = Planted(admin_user)
    browser = Client()
    browser.force_login(admin_user)
    page = browser.get(reverse("admin:turns_conversation_changelist"), {"parked": "yes"})
    assert [found.pk for found in page.context["cl"].result_list] == [planted.id]
    answer = browser.post(
        reverse("admin:turns_conversation_changelist"),
        {"action": "resume_conversations", "_selected_action": [planted.id, quiet.id]},
        follow=True,
    )
    assert "1 conversation goes on." in answer.content.decode()
    planted.conversation.refresh_from_db()
    assert planted.conversation.parked_at is None


async def interrupted(stage: Stage, **fields) -> Turn:
    """Return the last turn of the conversation, which its owner has lost."""
    conversation = await row(Conversation, pk=stage.id)

    def plant() -> Turn:
        planted = Planted(conversation=conversation)
        turn = planted.turn("interrupted", **fields)
        planted.message(turn, "user", said("do much"))
        return turn

    return await in_database(plant)


async def test_an_interrupted_turn_is_continued_once_however_often_it_is_asked_for(stage: Stage):
    turn = await interrupted(stage)
    model = stage.play([text("Where was I?")], [text("never")])
    first = await services.continue_turn(turn_id=turn.pk, user=stage.user)
    again = await services.continue_turn(turn_id=turn.pk, user=stage.user)
    assert (first.is_new, again.is_new) == (True, False)
    assert again.turn_id == first.turn_id
    await stage.listener.until_ended(first.turn_id)
    late = await services.continue_turn(turn_id=turn.pk, user=stage.user)
    assert late.turn_id == first.turn_id
    continued = await row(Turn, pk=first.turn_id)
    assert (continued.status, continued.source) == ("completed", "continue")
    assert continued.user_message == "Please continue where you were interrupted."
    assert len(model.requests) == 1
    assert "did not reach its end" in model.requests[0].messages[-1].texts[0].text
    queued = stage.listener.find("turn_queued", turn_id=str(first.turn_id))
    assert queued["source"] == "continue"


async def test_a_turn_that_a_restart_has_ended_is_continued_too(stage: Stage):
    turn = await interrupted(stage, ended_by_reason="shutdown")
    stage.play([text("Go on.")])
    received = await services.continue_turn(turn_id=turn.pk, user=stage.user)
    await stage.listener.until_ended(received.turn_id)


async def test_only_the_last_turn_can_be_continued_and_only_by_its_owner(
    stage: Stage, eve, operator
):
    first = await interrupted(stage)
    last = await interrupted(stage)
    stage.play([text("Done.")])
    with pytest.raises(CannotContinue):
        await services.continue_turn(turn_id=first.pk, user=stage.user)
    for other in (eve, operator):
        with pytest.raises(TurnNotFound):
            await services.continue_turn(turn_id=last.pk, user=other)
    done = await stage.say("something else")
    await stage.listener.until_ended(done)
    for turn_id in (last.pk, done):
        with pytest.raises(CannotContinue):
            await services.continue_turn(turn_id=turn_id, user=stage.user)
