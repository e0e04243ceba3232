"""How many messages a user may send in a minute, over all processes: counted where they are taken (P4)."""

from functools import partial
from typing import Any

import pytest

from tests.turns.row_factory import RowFactory
from tests.turns.support import ChatDriver, in_database
from tests.turns.threads import at_once
from turns import services
from turns.exceptions import MessageRejected, TooManyMessages
from turns.models import MessageTally, Turn
from turns.queueing import queue
from turns.testing import gate, text

pytestmark = pytest.mark.django_db(transaction=True)


def send(factory: RowFactory, writer: Any, **how: Any) -> Turn:
    how = {"client_id": None, "text": "x", "source": "typed", "writer": writer, **how}
    return queue.enqueue(factory.id, **how).turn


def pass_time(seconds: int) -> None:
    for tally in MessageTally.objects.all():
        tally.times = [(at - seconds, count) for at, count in tally.times]
        tally.save()


def counted(user: Any) -> list[int]:
    return [count for _at, count in MessageTally.objects.get(user=user).times]


def test_all_conversations_of_a_user_count_together_and_waiting_helps(ada, eve, settings):
    settings.TURNS_MAX_MESSAGES_PER_MINUTE = 2
    for _ in range(2):
        send(RowFactory(ada), ada)
    with pytest.raises(TooManyMessages):
        send(RowFactory(ada), ada)
    send(RowFactory(eve), eve)
    pass_time(queue.WINDOW)
    send(RowFactory(ada), ada)
    assert counted(ada) == [1]  # what is over is forgotten


def test_a_message_that_comes_again_and_one_that_is_refused_do_not_count(ada, settings):
    settings.TURNS_MAX_MESSAGES_PER_MINUTE = 1
    factory = RowFactory(ada)
    turn = send(factory, ada, client_id="c")
    assert send(factory, ada, client_id="c") == turn
    for _ in range(2):
        with pytest.raises(TooManyMessages):
            send(factory, ada)
    assert counted(ada) == [1]


def test_what_no_person_has_written_does_not_count(ada, settings):
    settings.TURNS_MAX_MESSAGES_PER_MINUTE = 1
    factory = RowFactory(ada)
    for _ in range(3):
        queue.enqueue(factory.id, text="x", source="agent", client_id=None)
    assert not MessageTally.objects.exists()


def test_processes_that_take_messages_at_the_same_time_keep_the_limit(ada, settings):
    settings.TURNS_MAX_MESSAGES_PER_MINUTE = 3
    places = [RowFactory(ada) for _ in range(6)]

    def take(factory: RowFactory) -> str:
        try:
            send(factory, ada)
        except TooManyMessages:
            return "refused"
        return "taken"

    outcomes = at_once(partial(take, factory) for factory in places)
    assert sorted(outcomes) == ["refused"] * 3 + ["taken"] * 3


async def test_a_cancel_word_is_obeyed_however_much_was_said_before(chat: ChatDriver, settings):
    settings.TURNS_MAX_MESSAGES_PER_MINUTE = 1
    chat.use_script([gate()], [text("Done.")])
    turn_id = await chat.say()
    with pytest.raises(TooManyMessages):
        await chat.say("and more")
    received = await services.receive_message(conversation_id=chat.id, user=chat.user, text="stop")
    assert received.cancelled
    assert (await chat.ended(turn_id)).status == "cancelled"


async def test_a_message_that_is_rejected_does_not_count(chat: ChatDriver):
    with pytest.raises(MessageRejected):
        await chat.say("  ")
    assert not await in_database(MessageTally.objects.exists)
