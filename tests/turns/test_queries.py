"""How often the database is asked: bounded for each event, and the same however long the past is."""

from collections import Counter
from collections.abc import Callable

import pytest
from asgiref.sync import async_to_sync
from django.db import connection
from django.test.utils import CaptureQueriesContext

from governance import ToolCall
from tests.turns.row_factory import RowFactory, said, use
from turns import selectors
from turns.cancelling import cancel_requests
from turns.core.chat_model import message_of
from turns.core.turns import TurnEnding, TurnStatus
from turns.endings import recovery, turn_endings
from turns.processes import process_registry
from turns.queueing import queue, scheduling
from turns.running import progress
from turns.running.journal import DatabaseJournal
from turns.running.progress import Report

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def process(transactional_db):
    return process_registry.register()


def count(function: Callable[[], object]) -> int:
    with CaptureQueriesContext(connection) as queries:
        function()
    return len(queries)


def a_past(owner, *, turns: int, conversations: int = 1) -> list[RowFactory]:
    made = [RowFactory(owner) for _ in range(conversations)]
    for factory in made:
        for number in range(turns):
            turn = factory.turn()
            factory.message(turn, "user", said("question"))
            factory.message(turn, "assistant", said("answer"), use(f"c{number}"))
            factory.call(turn, f"c{number}")
    return made


def queries_of_a_turn(factory: RowFactory, process) -> Counter:
    """Each write of one turn with one call, by name."""
    from governance import CancellationToken, LiveCall

    asked: Counter[str] = Counter()

    def measure(name, function):
        with CaptureQueriesContext(connection) as queries:
            answer = function()
        asked[name] = len(queries)
        return answer

    measure("enqueue", lambda: queue.enqueue(factory.id, text="go", source="typed", client_id="m1"))
    claimed, _events = measure("claim", lambda: queue.claim(factory.id, process=process))
    journal = DatabaseJournal(claimed, token=CancellationToken())
    call = ToolCall(id="new", tool_name="quick", scope=str(factory.id))
    message = message_of("hm", (call,), turn_id=str(claimed.id))

    async def live() -> LiveCall:
        return LiveCall(call, token=CancellationToken())

    started = async_to_sync(live)()
    measure("prompt", lambda: async_to_sync(journal.prompt)())
    measure("open_reply", lambda: async_to_sync(journal.open_reply)(1))
    measure("save_text", lambda: async_to_sync(journal.save_text)(1, "hm"))
    measure("save_reply", lambda: async_to_sync(journal.save_reply)(1, message, [call]))
    measure("call_started", lambda: async_to_sync(journal.call_started)(started))
    measure("progress", lambda: progress.store([Report.of(claimed, started)]))
    ending = TurnEnding(status=TurnStatus.COMPLETED)
    measure("end_turn", lambda: turn_endings.end_turn(claimed.id, ending, epoch=claimed.epoch))
    return asked


def test_a_turn_asks_as_often_with_a_long_past_as_with_none(ada, process):
    (young,) = a_past(ada, turns=1)
    first = queries_of_a_turn(young, process)
    (old,) = a_past(ada, turns=100)
    a_past(ada, turns=3, conversations=10)
    assert queries_of_a_turn(old, process) == first
    assert max(first.values()) <= 13, first
    assert first["save_text"] == 1


def test_a_poll_asks_once_however_many_turns_are_live(ada, process):
    turns = [RowFactory(ada).turn("running", owner=process).pk for _ in range(5)]
    assert count(lambda: cancel_requests.pending_cancels(turns)) == 1
    assert count(scheduling.waiting_conversations) == 1


def test_reads_ask_as_often_however_much_there_is(ada):
    reads = {
        "list": lambda _: async_to_sync(selectors.list_conversations)(user=ada),
        "active": lambda _: async_to_sync(selectors.active_turns)(user=ada),
        "snapshot": lambda p: async_to_sync(selectors.snapshot)(conversation_id=p.id, user=ada),
        "history": lambda p: async_to_sync(selectors.history)(conversation_id=p.id, user=ada),
    }
    (small,) = a_past(ada, turns=1)
    small.turn("queued")
    few = {name: count(lambda read=read: read(small)) for name, read in reads.items()}
    (large,) = a_past(ada, turns=60)
    for factory in a_past(ada, turns=1, conversations=10):
        factory.turn("queued")
    many = {name: count(lambda read=read: read(large)) for name, read in reads.items()}
    assert many == few
    assert max(few.values()) <= 11, few


def test_recovery_with_nothing_to_do_does_not_look_at_the_past(ada):
    few = count(recovery.recover)
    a_past(ada, turns=20)
    assert count(recovery.recover) == few <= 7
