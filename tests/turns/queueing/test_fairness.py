"""Who is next when a place is free (P4): the user with the fewest turns at work, then the oldest."""

import asyncio
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from governance.models import ToolCall
from tests.turns.row_factory import RowFactory, make_process
from tests.turns.support import ChatDriver, in_database
from turns.models import Turn
from turns.processes import process_registry
from turns.queueing import queue
from turns.running import runtime
from turns.testing import gate, text

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def crowd(ada: Any, eve: Any) -> tuple[list[RowFactory], list[RowFactory]]:
    """Ada has queued many conversations before eve came with two."""
    mine = [RowFactory(ada) for _ in range(8)]
    hers = [RowFactory(eve) for _ in range(2)]
    start = timezone.now() - timedelta(minutes=10)
    for age, factory in enumerate([*mine, *hers]):
        factory.turn("queued", queued_at=start + timedelta(seconds=age))
    return mine, hers


def owners_of(conversations: list[Any]) -> list[str]:
    names = dict(
        Turn.objects.values_list("conversation", "conversation__owner__username").distinct()
    )
    return [names[pk] for pk in conversations]


def test_users_take_turns_and_each_one_s_oldest_comes_first(crowd):
    mine, _hers = crowd
    order = queue.waiting_conversations()
    assert owners_of(order) == ["ada", "eve", "ada", "eve", *["ada"] * 6]
    assert [pk for pk in order if pk in {one.id for one in mine}] == [one.id for one in mine]


def test_what_a_user_has_at_work_counts_wherever_it_runs(crowd, ada):
    for _ in range(2):
        RowFactory(ada).turn("running", owner=make_process())
    order = queue.waiting_conversations(limit=4)
    assert owners_of(order) == ["eve", "eve", "ada", "ada"]


def test_a_turn_that_waits_for_its_sub_agent_is_not_at_work(crowd, eve):
    factory = RowFactory(eve)
    parent = factory.turn("running", owner=make_process())
    assert owners_of(queue.waiting_conversations(limit=2)) == ["ada", "ada"]
    factory.call(parent, "a", "running", tool_name="sessions_ask")
    assert owners_of(queue.waiting_conversations(limit=2)) == ["ada", "eve"]
    factory.call(parent, "b", "running")  # and does something itself meanwhile
    assert owners_of(queue.waiting_conversations(limit=2)) == ["ada", "ada"]


def test_a_turn_that_waits_for_a_person_is_not_at_work(crowd, ada):
    factory = RowFactory(ada)
    asking = factory.turn("running", owner=make_process())
    question = factory.call(asking, "a", "awaiting_approval")
    assert owners_of(queue.waiting_conversations(limit=2)) == ["ada", "eve"]
    ToolCall.objects.filter(pk=question.pk).update(status="running")
    assert owners_of(queue.waiting_conversations(limit=2)) == ["eve", "ada"]


def test_several_messages_in_one_conversation_are_one_place_in_the_queue(crowd):
    mine, _hers = crowd
    for _ in range(3):
        mine[0].turn("queued")
    order = queue.waiting_conversations()
    assert len(order) == len(set(order)) == 10


def test_each_claim_of_several_runners_is_fair(crowd):
    runners = [process_registry.register(), process_registry.register()]
    claims = [queue.claim_next(process=runners[number % 2]) for number in range(5)]
    owners = owners_of([claimed.conversation_id for claimed, _events in claims])
    assert owners == ["ada", "eve", "ada", "eve", "ada"]
    assert Counter(Turn.objects.filter(status="running").values_list("owner", flat=True)) == {
        runners[0].pk: 3,
        runners[1].pk: 2,
    }


def test_a_conversation_that_cannot_be_claimed_keeps_nobody_else_waiting(crowd, ada, caplog):
    mine, _hers = crowd
    parent = mine[0].turn("completed")
    report = RowFactory(ada).turn("completed", parent=parent, is_detached=True)
    # Written by something else than us: a cancel that nothing has caused.
    Turn.objects.filter(pk=report.pk).update(status="cancelled", ended_by_reason="")
    assert queue.waiting_conversations(limit=1) == [mine[0].id]

    claims = [queue.claim_next(process=process_registry.register()) for _ in range(3)]

    owners = owners_of([claimed.conversation_id for claimed, _events in claims])
    assert owners == ["eve", "ada", "eve"]
    assert {record.conversation_id for record in caplog.records} == {str(mine[0].id)}


def test_nobody_waits_for_a_conversation_that_stands_still_in_a_write(crowd):
    if connection.vendor == "sqlite":
        pytest.skip("a writer holds the whole file")
    from django.db import connections, transaction

    mine, hers = crowd
    other = connections.create_connection("default")
    try:
        other.set_autocommit(False)
        with other.cursor() as cursor:
            cursor.execute(
                "SELECT 1 FROM turns_conversation WHERE id = %s FOR UPDATE", [mine[0].id]
            )
        with transaction.atomic():
            claimed, _events = queue.claim_next(process=process_registry.register())
        assert claimed.conversation_id == hers[0].id
        for one in (*mine[1:], hers[1]):
            Turn.objects.filter(conversation=one.id).update(status="cancelled")
        assert queue.claim_next(process=process_registry.register()) is None
    finally:
        other.rollback()
        other.close()
    assert queue.claim_next(process=process_registry.register()) is not None


def test_the_queue_asks_as_often_however_many_wait(crowd, ada):
    RowFactory(ada).turn("running")
    with CaptureQueriesContext(connection) as few:
        queue.waiting_conversations()
    for _ in range(20):
        RowFactory(ada).turn("queued")
        RowFactory(ada).turn("running")
    with CaptureQueriesContext(connection) as many:
        queue.waiting_conversations()
    assert len(few) == len(many) == 3


async def test_one_user_s_crowd_does_not_keep_another_user_waiting(chat: ChatDriver, eve, settings):
    settings.TURNS_MAX_LIVE = 1
    opening = asyncio.Event()
    holds = gate(opening)
    done = [text("Done.")]
    chat.use_script([holds, *done], *[done] * 6)
    first = await chat.say()
    await holds.reached.wait()

    def plant() -> list[Any]:
        long_ago = timezone.now() - timedelta(minutes=1)
        waiting = [RowFactory(chat.user) for _ in range(5)]
        factory = [one.turn("queued", queued_at=long_ago) for one in waiting]
        return [*factory, RowFactory(eve).turn("queued")]

    turns = await in_database(plant)
    for turn in turns:
        (await runtime.ensure_started()).supervisor.wake(turn.conversation_id)
    opening.set()
    await chat.sink.until_ended(first)
    for turn in turns:
        await chat.sink.until_ended(turn.pk)
    begun = [event["turn_id"] for event in chat.sink.events if event["type"] == "turn_start"]
    assert begun.index(str(turns[-1].pk)) <= 2  # of seven: behind ada's one, which was there first
