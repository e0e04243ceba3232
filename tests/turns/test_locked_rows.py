"""Rows that somebody else has locked: rounds pass them by, and who deletes a user waits for writers. SQLite has no such locks."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import connection, connections, transaction
from django.db.models.functions import Now
from django.db.models.signals import pre_delete
from django.utils import timezone

from governance import recorder
from governance.core import calls as core_calls
from governance.models import ToolCall
from tests.support import PATIENCE, eventually_sync
from tests.turns.row_factory import RowFactory
from tests.turns.support import FakeTools
from turns.calls import late_settlements
from turns.core.events import TurnError
from turns.endings import report_delivery
from turns.events import log
from turns.models import Conversation, Event, Process, Turn, Viewer
from turns.presence import viewers
from turns.processes.process_registry import register, retire
from turns.storage.turn_rows import lock_live_turn

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif("connection.vendor == 'sqlite'", reason="a writer holds the whole file"),
]


@pytest.fixture(autouse=True)
def _nobody_waits(transactional_db: None) -> Iterator[None]:
    """Who waits for a lock fails, instead of waiting until the test gives it up."""
    with connection.cursor() as cursor:
        cursor.execute("SET lock_timeout = '100ms'")
    yield
    with connection.cursor() as cursor:
        cursor.execute("SET lock_timeout TO DEFAULT")


@contextmanager
def held(*conversation_ids: UUID) -> Iterator[None]:
    """Let somebody else stand still in a write of these conversations."""
    other = connections.create_connection("default")
    try:
        other.set_autocommit(False)
        with other.cursor() as cursor:
            for pk in conversation_ids:
                cursor.execute("SELECT 1 FROM turns_conversation WHERE id = %s FOR UPDATE", [pk])
        yield
    finally:
        other.rollback()
        other.close()


@pytest.fixture
def here() -> Process:
    return register()


@pytest.fixture
def factory(ada: Any) -> RowFactory:
    return RowFactory(ada)


def below(factory: RowFactory, parent: Turn, status: str) -> RowFactory:
    """A sub-agent's conversation, with a turn that works there."""
    child = RowFactory(factory.conversation.owner)
    Conversation.objects.filter(pk=child.id).update(parent=factory.id)
    child.turn(status, parent=parent, root=parent, is_detached=True)
    return child


def leave_alone(factory: RowFactory) -> None:
    """As if the last viewer had left long ago."""
    number = factory.conversation.last_number
    Conversation.objects.filter(pk=factory.id).update(
        unattended_since=Now() - timedelta(days=1), attended_number=number
    )


def test_what_is_overdue_is_cancelled_once_nobody_has_any_of_it_locked(factory: RowFactory):
    turn = factory.turn("running")
    child = below(factory, turn, "running")
    leave_alone(factory)
    for locked in (factory, child):
        with held(locked.id):
            assert viewers.end_overdue().cancelled == 0
    assert viewers.end_overdue().cancelled == 2


def test_where_nothing_runs_any_more_nobody_is_waited_for(factory: RowFactory):
    leave_alone(factory)
    alone = Conversation.objects.filter(unattended_since__isnull=False)
    with held(factory.id):
        viewers.end_overdue()
        assert alone.exists()
    viewers.end_overdue()
    assert not alone.exists()


def test_viewers_of_a_process_that_is_gone_go_once_their_conversation_is_free(
    factory: RowFactory, here: Process
):
    gone = register()
    viewers.join(gone, factory.id, key="one", user_id=factory.conversation.owner_id)
    retire(gone)
    with held(factory.id):
        viewers.forget_lost()
        assert Viewer.objects.exists()
    viewers.forget_lost()
    assert not Viewer.objects.exists()


def test_a_list_of_viewers_is_put_right_once_their_conversations_are_free(
    factory: RowFactory, here: Process
):
    viewers.join(here, factory.id, key="left", user_id=factory.conversation.owner_id)
    keys = Viewer.objects.values_list("key", flat=True)
    with held(factory.id):
        viewers.reconcile(here, {"came": factory.id})
        assert [*keys.all()] == ["left"]
    viewers.reconcile(here, {"came": factory.id})
    assert [*keys.all()] == ["came"]


def test_a_report_is_brought_on_its_way_once_nobody_writes_where_it_is_due(factory: RowFactory):
    parent = factory.turn()
    middle = below(factory, parent, "completed")
    Turn.objects.filter(conversation=middle.id).update(is_detached=False)
    below(middle, middle.conversation.turns.get(), "completed")
    for locked in (factory, middle):
        with held(locked.id):
            assert report_delivery.enqueue_report_turns() == []
    [(conversation_id, _events)] = report_delivery.enqueue_report_turns()
    assert conversation_id == middle.id


def test_what_ended_with_its_process_is_told_once_nobody_writes_there(
    factory: RowFactory, here: Process, fake_tools: FakeTools
):
    retire(here)
    Process.objects.update(start_ticks=1)  # an earlier process with this pid
    turn = factory.turn("cancelled", owner=here)
    factory.call(turn, "c1", "abandoned", ended_at=timezone.now())
    with held(factory.id):
        assert late_settlements.settle_of_dead_processes() == []
    assert len(late_settlements.settle_of_dead_processes()) == 1


def test_a_user_goes_with_all_that_a_turn_at_work_writes_meanwhile(
    ada: Any, factory: RowFactory, here: Process
):
    turn = factory.turn("running", owner=here, epoch=1)
    written: list[bool] = []

    def write() -> None:
        """As the turn's owner stores a step: its calls and its events."""
        try:
            with transaction.atomic():
                row = lock_live_turn(turn.pk, epoch=1)
                written.append(row is not None)
                if row is not None:
                    calls = [core_calls.ToolCall(id="c1", tool_name="quick")]
                    recorder.insert_pending(calls, group=str(turn.pk), step=1)
                    log.append(row.conversation, turn.pk, TurnError(code="x", message="x"))
        finally:
            connection.close()

    writing = threading.Thread(target=write)

    def begin(**_facts: Any) -> None:
        """What goes is known by now, and nothing has gone but what `follow_user` deletes."""
        writing.start()
        eventually_sync(lambda: not writing.is_alive() or _somebody_waits())

    pre_delete.connect(begin, sender=type(ada))
    try:
        ada.delete()
    finally:
        pre_delete.disconnect(begin, sender=type(ada))
    writing.join(PATIENCE)
    assert written == [False]
    assert not ToolCall.objects.exists()
    assert not Event.objects.exists()


def _somebody_waits() -> bool:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT 1 FROM pg_stat_activity"
            " WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        return cursor.fetchone() is not None


def test_who_waits_for_a_lock_reads_what_was_written_under_it(factory: RowFactory):
    turn = factory.turn("running", epoch=1)
    seen: list[int] = []

    def read() -> None:
        try:
            with transaction.atomic():
                seen.append(lock_live_turn(turn.pk, epoch=1).conversation.last_seq)
        finally:
            connection.close()

    reading = threading.Thread(target=read)
    other = connections.create_connection("default")
    try:
        other.set_autocommit(False)
        with other.cursor() as cursor:
            cursor.execute(
                "UPDATE turns_conversation SET last_seq = 41 WHERE id = %s", [factory.id]
            )
        reading.start()
        eventually_sync(_somebody_waits)
        other.commit()
    finally:
        other.close()
    reading.join(PATIENCE)
    assert seen == [41]
