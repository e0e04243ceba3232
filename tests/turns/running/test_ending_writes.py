"""Turns of a process that end together are stored together. What cannot be is stored alone, and keeps no other from its end."""

import asyncio
import threading
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import AbstractUser
from django.db import connection, transaction

from governance import Cancellation, CancellationToken, CancelReason
from tests.turns.row_factory import RowFactory
from tests.turns.statements import Asked
from tests.turns.support import in_database
from turns.core.chat_model import message_of
from turns.core.ports import Answer
from turns.core.turns import TurnEnding, TurnStatus, ending_of
from turns.events import log
from turns.models import CancelRequest, Event, Message, Turn
from turns.running.journal import DatabaseJournal
from turns.running.store import Ended, EndingWrite, EndingWrites, store_endings
from turns.running.write_queue import PriorityLock, Urgency

pytestmark = pytest.mark.django_db(transaction=True)

COMPLETED = TurnEnding(status=TurnStatus.COMPLETED)
CANCELLED = ending_of(Cancellation(reason=CancelReason.USER))


def a_write(
    owner: AbstractUser, *, ending: TurnEnding = COMPLETED, usage: Any = None, **fields: Any
) -> EndingWrite:
    factory = RowFactory(owner)
    claimed = factory.claimed(factory.turn("running", **fields))
    facts = {"steps": 1, "usage": usage or {}, "outcomes": {}}
    return EndingWrite(turn=claimed, ending=ending, facts=facts)


def statuses(*writes: EndingWrite) -> list[str]:
    return [Turn.objects.get(pk=write.turn.id).status for write in writes]


def is_told(result: Ended | Exception) -> bool:
    return isinstance(result, Ended) and result.told is not None


def test_those_that_end_together_are_one_transaction(
    ada: AbstractUser, monkeypatch: pytest.MonkeyPatch
):
    writes = [a_write(ada) for _ in range(3)]
    asked = Asked(monkeypatch)
    results = store_endings(writes)
    assert asked.transactions == 1
    assert all(map(is_told, results))
    assert statuses(*writes) == ["completed"] * 3
    assert Event.objects.filter(type="turn_end").count() == 3


def test_one_that_cannot_be_stored_keeps_no_other_from_its_end(ada: AbstractUser):
    unstorable = a_write(ada, usage={"tokens": object()})
    writes = [a_write(ada), unstorable, a_write(ada)]
    results = store_endings(writes)
    assert [is_told(result) for result in results] == [True, False, True]
    assert isinstance(results[1], TypeError)
    assert statuses(*writes) == ["completed", "running", "completed"]
    assert Event.objects.filter(type="turn_end").count() == 2


def test_one_that_is_not_ours_any_more_is_left_as_it_is(ada: AbstractUser):
    writes = [a_write(ada), a_write(ada)]
    Turn.objects.filter(pk=writes[0].turn.id).update(epoch=7)
    results = store_endings(writes)
    assert [is_told(result) for result in results] == [False, True]
    assert statuses(*writes) == ["running", "completed"]


@pytest.mark.parametrize("is_begun", [True, False])
def test_an_answer_that_a_runner_stores_just_before_its_turn_is_ended_without_it_is_there_once(
    ada: AbstractUser, *, is_begun: bool
):
    factory = RowFactory(ada)
    turn = factory.claimed(factory.turn("running"))
    journal = DatabaseJournal(turn, token=CancellationToken())

    async def say(step: int, said: str) -> Answer | None:
        await journal.save_reply(step, message_of(said, (), turn_id=str(turn.id)), ())
        return journal.answer

    if is_begun:
        async_to_sync(journal.save_text)(1, "half")
    answer = async_to_sync(say)(1, "half an answer")
    async_to_sync(say)(2, "a report")  # stores the answer before it
    facts = {"steps": 1, "usage": {}, "outcomes": {}, "answer": answer}
    store_endings([EndingWrite(turn=turn, ending=CANCELLED, facts=facts)])
    assert Turn.objects.get(pk=turn.id).status == "cancelled"
    said = Message.objects.filter(turn=turn.id, role="assistant")
    assert [message.step for message in said] == [1]


@pytest.mark.parametrize("is_whole", [True, False])
def test_a_message_that_was_begun_has_the_time_of_its_end(ada: AbstractUser, *, is_whole: bool):
    factory = RowFactory(ada)
    turn = factory.claimed(factory.turn("running"))
    journal = DatabaseJournal(turn, token=CancellationToken())
    async_to_sync(journal.save_text)(1, "half")
    rows = Message.objects.filter(turn=turn.id, role="assistant")
    an_hour_ago = rows.get().at - timedelta(hours=1)
    rows.update(at=an_hour_ago)
    message = message_of("half an answer", (), turn_id=str(turn.id))
    answer = Answer(step=1, message=message) if is_whole else None
    facts = {"steps": 1, "usage": {}, "outcomes": {}, "answer": answer}
    store_endings([EndingWrite(turn=turn, ending=CANCELLED, facts=facts)])
    assert rows.get().at > an_hour_ago + timedelta(minutes=59)


def test_one_whose_conversation_is_being_written_is_waited_for_alone(ada: AbstractUser):
    if connection.vendor == "sqlite":
        pytest.skip("a writer holds the whole file")
    writes = [a_write(ada), a_write(ada)]
    is_held, let_go = threading.Event(), threading.Event()

    def write() -> None:
        with transaction.atomic():
            log.locked(writes[0].turn.conversation_id)
            is_held.set()
            let_go.wait(20)
        connection.close()

    def end() -> None:
        store_endings(writes)
        connection.close()

    threads = [threading.Thread(target=write), threading.Thread(target=end)]
    threads[0].start()
    is_held.wait(20)
    threads[1].start()
    while statuses(writes[1]) != ["completed"]:
        assert statuses(writes[0]) == ["running"]
    let_go.set()
    for thread in threads:
        thread.join()
    assert statuses(*writes) == ["completed"] * 2


def test_a_family_ends_from_below_so_nobody_is_asked_to_stop_who_has(ada: AbstractUser):
    above = a_write(ada, ending=CANCELLED)
    below = [a_write(ada, ending=CANCELLED, parent_id=above.turn.id) for _ in range(2)]
    assert all(map(is_told, store_endings([above, *below])))
    assert statuses(above, *below) == ["cancelled"] * 3
    assert not CancelRequest.objects.exists()


async def test_what_waits_while_one_is_stored_becomes_the_next_transaction(ada: AbstractUser):
    writes = await in_database(lambda: [a_write(ada) for _ in range(12)])
    lock = PriorityLock()
    endings = EndingWrites(lock)
    async with lock.acquired(Urgency.WORK):
        storing = [asyncio.create_task(endings.store(write)) for write in writes]
        await asyncio.sleep(0)
        assert not any(task.done() for task in storing)
    assert all(map(is_told, await asyncio.gather(*storing)))
    unstorable = await in_database(lambda: a_write(ada, usage={"tokens": object()}))
    with pytest.raises(TypeError):
        await endings.store(unstorable)
