"""The event log: numbers without a gap, whoever writes at once, and reads in order."""

import threading

import pytest
from django.db import connections, transaction

from tests.turns.rows import Planted
from turns.core.events import TurnError
from turns.events import log
from turns.models import Event

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def planted(ada) -> Planted:
    return Planted(ada)


def write(planted: Planted, turn, *codes: str) -> list[log.WireEvent]:
    events = [TurnError(code=code, message="") for code in codes]
    with transaction.atomic():
        return log.append(log.locked(planted.id), turn.pk, *events)


def test_events_are_numbered_from_one_without_a_gap(planted):
    turn = planted.turn()
    assert [e["seq"] for e in write(planted, turn, "a", "b")] == [1, 2]
    assert [e["seq"] for e in write(planted, turn, "c")] == [3]
    assert write(planted, turn) == []
    planted.conversation.refresh_from_db()
    assert planted.conversation.last_seq == 3


def test_what_was_rolled_back_leaves_no_gap(planted):
    turn = planted.turn()
    write(planted, turn, "a")
    with transaction.atomic():
        write(planted, turn, "lost")
        transaction.set_rollback(True)
    assert [e["seq"] for e in write(planted, turn, "b")] == [2]


def test_many_writers_at_once_leave_no_gap(planted):
    turn = planted.turn()
    ready = threading.Barrier(4)

    def write_ten(name: str) -> None:
        ready.wait()
        for number in range(10):
            write(planted, turn, f"{name}{number}")
        connections.close_all()

    threads = [threading.Thread(target=write_ten, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rows = Event.objects.filter(conversation=planted.id).order_by("seq")
    assert [row.seq for row in rows] == list(range(1, 41))
    for name in "abcd":
        own = [row.payload["code"] for row in rows if row.payload["code"].startswith(name)]
        assert own == [f"{name}{number}" for number in range(10)]


def test_conversations_are_numbered_apart(planted, ada):
    other = Planted(ada)
    write(planted, planted.turn(), "a", "b")
    assert [e["seq"] for e in write(other, other.turn(), "c")] == [1]


def test_what_is_read_is_what_was_written(planted):
    turn, later = planted.turn(), planted.turn()
    written = [*write(planted, turn, "a", "b"), *write(planted, later, "c")]
    assert log.read(planted.id, after=0) == written
    assert log.read(planted.id, after=1) == written[1:]
    assert log.read(planted.id, after=0, limit=2) == written[:2]
    assert log.read(planted.id, after=3) == []
    assert log.read_turn(turn.pk, after=0) == written[:2]
    assert log.read_turn(turn.pk, after=1, limit=5) == written[1:2]


def test_what_no_database_takes_is_replaced(planted):
    (event,) = write(planted, planted.turn(), "nul \x00, half \ud800")
    assert event["code"] == "nul \ufffd, half ?"
    assert log.read(planted.id, after=0) == [event]


def test_the_conversation_of_a_turn_that_is_gone_is_none(planted):
    turn_id = planted.turn().pk
    with transaction.atomic():
        assert log.locked_of(turn_id) == planted.conversation
        planted.conversation.delete()
        assert log.locked_of(turn_id) is None
