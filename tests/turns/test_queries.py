"""How often the database is asked: bounded for each event, and the same however long the past is."""

from collections import Counter
from collections.abc import Callable
from dataclasses import asdict

import pytest
from asgiref.sync import async_to_sync
from django.db import connection
from django.test.utils import CaptureQueriesContext

from governance import ToolCall
from tests.turns.row_factory import RowFactory, said, use
from tests.turns.statements import Asked
from turns import selectors
from turns.core.chat_model import message_of
from turns.core.prompt_changes import PromptHead
from turns.core.turns import TurnEnding, TurnStatus
from turns.endings import recovery, turn_endings
from turns.history import histories
from turns.models import Conversation
from turns.processes import process_registry
from turns.queueing import queue
from turns.running import store
from turns.running.journal import DatabaseJournal, ProgressReport, store_progress

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


def queries_of_a_turn(factory: RowFactory, process, asked: Asked) -> Counter:
    """Each read and write of one turn with one call, by name, in whatever thread."""
    from governance import CancellationToken, LiveCall

    counted: Counter[str] = Counter()

    def measure(name, function):
        asked.reset()
        answer = function()
        counted[name] = len(asked.statements)
        return answer

    measure("enqueue", lambda: queue.enqueue(factory.id, text="go", source="typed", client_id="m1"))
    claimed, _events = measure("claim", lambda: queue.claim(factory.id, process=process))
    journal = DatabaseJournal(claimed, token=CancellationToken())
    call = ToolCall(id="new", tool_name="quick", scope=str(factory.id))
    message = message_of("hm", (call,), turn_id=str(claimed.id))

    async def live() -> LiveCall:
        return LiveCall(call, token=CancellationToken())

    async def save_reply() -> None:
        await journal.save_reply(1, message, [call])
        await journal.flush()

    started = async_to_sync(live)()
    head = PromptHead.of("local", "", ())
    Conversation.objects.filter(pk=factory.id).update(prompt_head=asdict(head))
    measure("prompt", lambda: async_to_sync(journal.prompt)(head))
    measure("first_text", lambda: async_to_sync(journal.save_text)(1, "h"))
    measure("save_text", lambda: async_to_sync(journal.save_text)(1, "hm"))
    measure("save_reply", lambda: async_to_sync(save_reply)())
    measure("call_started", lambda: async_to_sync(journal.call_started)(started))
    measure("progress", lambda: store_progress([ProgressReport.of(claimed, started)]))
    ending = TurnEnding(status=TurnStatus.COMPLETED)
    measure("end_turn", lambda: turn_endings.end_turn(claimed.id, ending, epoch=claimed.epoch))
    return counted


def test_a_turn_asks_as_often_with_a_long_past_as_with_none(ada, process, monkeypatch):
    asked = Asked(monkeypatch)
    (young,) = a_past(ada, turns=1)
    first = queries_of_a_turn(young, process, asked)
    (old,) = a_past(ada, turns=150)
    # Once in so many messages a turn stores how far its history is valid, beside everything else.
    histories.note_checked(old.id, histories.Checked(version=0, position=300))
    a_past(ada, turns=3, conversations=10)
    assert queries_of_a_turn(old, process, asked) == first
    assert max(first.values()) <= 11, first
    assert first["prompt"] > 0
    assert first["save_text"] == 1


def test_a_poll_asks_once_however_many_turns_are_live(ada, process):
    turns = [RowFactory(ada).turn("running", owner=process).pk for _ in range(5)]
    assert count(lambda: store.pending(turns, ())) == 2
    assert count(lambda: store.pending(turns, ("1", "2"))) == 3
    assert count(queue.waiting_conversations) == 1


def test_reads_ask_as_often_however_much_there_is(ada, monkeypatch):
    asked = Asked(monkeypatch)  # some read in threads of their own

    def count(read: Callable[[], object]) -> int:
        asked.reset()
        read()
        return len(asked.statements)

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
    assert 0 < min(few.values()) <= max(few.values()) <= 12, few


def test_recovery_with_nothing_to_do_does_not_look_at_the_past(ada):
    few = count(recovery.recover)
    a_past(ada, turns=20)
    assert count(recovery.recover) == few <= 7
