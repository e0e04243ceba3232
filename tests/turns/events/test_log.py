"""The event log: numbers without a gap, whoever writes at once, and reads in order."""

from functools import partial

import pytest
from django.db import transaction

from tests.turns.row_factory import RowFactory
from tests.turns.threads import at_once
from turns.core.events import TurnError
from turns.events import log
from turns.models import Event

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def factory(ada) -> RowFactory:
    return RowFactory(ada)


def write(factory: RowFactory, turn, *codes: str) -> list[log.WireEvent]:
    events = [TurnError(code=code, message="") for code in codes]
    with transaction.atomic():
        return log.append(log.locked(factory.id), turn.pk, *events)


def test_events_are_numbered_from_one_without_a_gap(factory):
    turn = factory.turn()
    assert [e["seq"] for e in write(factory, turn, "a", "b")] == [1, 2]
    assert [e["seq"] for e in write(factory, turn, "c")] == [3]
    assert write(factory, turn) == []
    factory.conversation.refresh_from_db()
    assert factory.conversation.last_seq == 3


def test_what_was_rolled_back_leaves_no_gap(factory):
    turn = factory.turn()
    write(factory, turn, "a")
    with transaction.atomic():
        write(factory, turn, "lost")
        transaction.set_rollback(True)
    assert [e["seq"] for e in write(factory, turn, "b")] == [2]


def test_many_writers_at_once_leave_no_gap(factory):
    turn = factory.turn()

    def write_ten(name: str) -> None:
        for number in range(10):
            write(factory, turn, f"{name}{number}")

    at_once(partial(write_ten, name) for name in "abcd")
    rows = Event.objects.filter(conversation=factory.id).order_by("seq")
    assert [row.seq for row in rows] == list(range(1, 41))
    for name in "abcd":
        own = [row.payload["code"] for row in rows if row.payload["code"].startswith(name)]
        assert own == [f"{name}{number}" for number in range(10)]


def test_conversations_are_numbered_apart(factory, ada):
    other = RowFactory(ada)
    write(factory, factory.turn(), "a", "b")
    assert [e["seq"] for e in write(other, other.turn(), "c")] == [1]


def test_what_is_read_is_what_was_written(factory):
    turn, later = factory.turn(), factory.turn()
    written = [*write(factory, turn, "a", "b"), *write(factory, later, "c")]
    assert log.read(factory.id, after=0) == written
    assert log.read(factory.id, after=1) == written[1:]
    assert log.read(factory.id, after=0, limit=2) == written[:2]
    assert log.read(factory.id, after=3) == []
    assert log.read_turn(turn.pk, after=0) == written[:2]
    assert log.read_turn(turn.pk, after=1, limit=5) == written[1:2]


def test_what_no_database_takes_is_replaced(factory):
    (event,) = write(factory, factory.turn(), "nul \x00, half \ud800")
    assert event["code"] == "nul \ufffd, half ?"
    assert log.read(factory.id, after=0) == [event]


def test_the_conversation_of_a_turn_that_is_gone_is_none(factory):
    turn_id = factory.turn().pk
    with transaction.atomic():
        assert log.locked_of(turn_id) == factory.conversation
        factory.conversation.delete()
        assert log.locked_of(turn_id) is None
