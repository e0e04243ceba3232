"""Who looks at a conversation, over processes and sub-agents, and what a policy does when nobody does (C11)."""

import threading
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import connection, transaction
from django.db.models import F

from tests.support import PATIENCE
from tests.turns.row_factory import RowFactory
from turns.cancelling import cancel_requests
from turns.events import log
from turns.models import CancelRequest, Conversation, Process, Turn, Viewer
from turns.presence import disconnects, viewers
from turns.processes.process_registry import end_dead, register, retire

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def here(transactional_db: None) -> Process:
    return register()


@pytest.fixture
def factory(ada: Any) -> RowFactory:
    return RowFactory(ada)


def look(process: Process, factory: RowFactory, key: str) -> None:
    assert viewers.join(process, factory.id, key=key, user_id=factory.conversation.owner_id)


def since(factory: RowFactory) -> Any:
    return Conversation.objects.get(pk=factory.id).unattended_since


def pass_time(factory: RowFactory, **span: float) -> None:
    moved = F("unattended_since") - timedelta(**span)
    Conversation.objects.filter(pk=factory.id).update(unattended_since=moved)


def status(turn: Turn) -> str:
    return Turn.objects.values_list("status", flat=True).get(pk=turn.pk)


def below(factory: RowFactory, turn: Turn) -> tuple[RowFactory, Turn]:
    """A sub-agent's conversation, with the turn that works there for `turn`."""
    child = RowFactory(factory.conversation.owner)
    Conversation.objects.filter(pk=child.id).update(parent=factory.id)
    child.conversation.refresh_from_db()
    return child, child.turn("running", parent=turn, is_detached=True)


def test_only_the_last_of_several_viewers_in_several_processes_leaves_a_turn_alone(here, factory):
    other = register()
    factory.turn("running")
    look(here, factory, "one")
    look(other, factory, "two")
    viewers.leave("one")
    assert since(factory) is None
    viewers.leave("two")
    assert since(factory) is not None
    look(here, factory, "three")
    assert since(factory) is None


def test_nothing_is_noted_where_nothing_is_left_to_do(here, factory):
    factory.turn("completed")
    look(here, factory, "one")
    viewers.leave("one")
    viewers.leave("one")
    assert since(factory) is None


def test_somebody_else_attends_to_nothing(here, factory, eve):
    assert not viewers.join(here, factory.id, key="one", user_id=eve.pk)
    assert not viewers.join(here, UUID(int=0), key="one", user_id=eve.pk)
    assert not Viewer.objects.exists()


def test_after_the_grace_what_was_left_behind_is_cancelled_once(here, factory):
    running, queued = factory.turn("running"), factory.turn("queued")
    look(here, factory, "one")
    viewers.leave("one")
    pass_time(factory, seconds=15)
    assert viewers.end_overdue().cancelled == 0
    pass_time(factory, seconds=16)
    [(conversation_id, events)] = viewers.end_overdue().batches
    assert conversation_id == factory.id
    assert [event["type"] for event in events] == ["turn_abort", "turn_end"]
    assert (status(running), status(queued)) == ("cancelling", "cancelled")
    asked = CancelRequest.objects.get(turn=running)
    assert (asked.reason, asked.source, asked.by_name) == ("disconnect", "policy", "")
    assert viewers.end_overdue().cancelled == 0
    assert CancelRequest.objects.count() == 2


def test_who_comes_back_in_time_keeps_the_turn(here, factory):
    turn = factory.turn("running")
    look(here, factory, "one")
    viewers.leave("one")
    pass_time(factory, minutes=5)
    look(here, factory, "two")
    assert viewers.end_overdue().cancelled == 0
    assert status(turn) == "running"


def test_a_turn_that_a_program_began_without_any_viewer_goes_on(here, factory):
    turn = factory.turn("running")
    assert viewers.end_overdue().cancelled == 0
    look(here, factory, "one")
    viewers.leave("one")
    later = factory.turn("queued")
    pass_time(factory, minutes=5)
    viewers.end_overdue()
    assert (status(turn), status(later)) == ("cancelling", "queued")


def test_a_grace_of_nothing_or_at_once_ends_it_when_the_last_one_leaves(here, factory):
    disconnects.save({"policy": "cancel_at_once"})
    turn = factory.turn("running")
    look(here, factory, "one")
    look(here, factory, "two")
    assert viewers.leave("one").cancelled == 0
    assert status(turn) == "running"
    assert viewers.leave("two").cancelled == 1
    assert status(turn) == "cancelling"
    assert since(factory) is None


def test_a_detached_turn_goes_on_up_to_the_unattended_limit(here, factory):
    disconnects.save({"policy": "detach"})
    turn = factory.turn("running")
    look(here, factory, "one")
    viewers.leave("one")
    pass_time(factory, minutes=59)
    assert viewers.end_overdue().cancelled == 0
    disconnects.save({"unattended_limit_ms": 0})
    pass_time(factory, days=300)
    assert viewers.end_overdue().cancelled == 0
    disconnects.save({"unattended_limit_ms": 60_000})
    assert viewers.end_overdue().cancelled == 1
    assert status(turn) == "cancelling"


def test_an_edit_counts_for_what_is_left_alone_already(here, factory):
    turn = factory.turn("running")
    look(here, factory, "one")
    viewers.leave("one")
    pass_time(factory, seconds=20)
    assert viewers.end_overdue().cancelled == 0
    assert disconnects.save({"grace_ms": 15_000}) == "grace period: 30 s → 15 s"
    assert viewers.end_overdue().cancelled == 1
    assert status(turn) == "cancelling"


def test_viewers_of_a_process_that_ended_do_not_count_and_their_grace_begins_when_somebody_serves(
    here, factory
):
    disconnects.save({"policy": "cancel_at_once"})
    gone = register()
    turn = factory.turn("running")
    look(gone, factory, "one")
    retire(gone)
    assert viewers.end_overdue().cancelled == 0
    assert since(factory) is None
    viewers.forget_lost()
    assert not Viewer.objects.exists()
    assert since(factory) is not None
    assert (
        viewers.end_overdue().cancelled == 0
    )  # a page needs a moment to come back, whatever the policy
    pass_time(factory, seconds=11)
    assert viewers.end_overdue().cancelled == 1
    assert status(turn) == "cancelling"


def test_a_killed_process_is_found(here, factory):
    killed = register()
    Process.objects.filter(pk=killed.pk).update(pid=4_000_000)
    factory.turn("running")
    look(killed, factory, "one")
    look(here, factory, "two")
    assert end_dead() == 1
    viewers.forget_lost()
    assert list(Viewer.objects.values_list("key", flat=True)) == ["two"]
    assert since(factory) is None


def test_rows_follow_the_open_sockets_of_their_process(here, factory):
    factory.turn("running")
    look(here, factory, "closed")
    viewers.reconcile(here, {"open": factory.id, "deleted": UUID(int=0)})
    assert list(Viewer.objects.values_list("key", flat=True)) == ["open"]
    assert since(factory) is None
    viewers.reconcile(here, {})
    assert since(factory) is not None


def test_who_is_found_to_have_gone_has_a_moment_to_come_back_even_if_all_is_to_end_at_once(
    here, factory
):
    disconnects.save({"policy": "cancel_at_once"})
    turn = factory.turn("running")
    look(here, factory, "one")
    assert viewers.reconcile(here, {}).cancelled == 0
    assert (status(turn), Viewer.objects.exists()) == ("running", False)
    pass_time(factory, seconds=11)
    assert viewers.end_overdue().cancelled == 1


def test_a_process_that_got_another_row_keeps_its_viewers(here, factory):
    factory.turn("running")
    look(here, factory, "one")
    retire(here)
    again = register()
    viewers.reconcile(again, {"one": factory.id})
    viewers.forget_lost()
    assert Viewer.objects.get().process == again
    assert since(factory) is None


def test_what_came_to_its_end_by_itself_is_not_left_alone_any_more(here, factory):
    disconnects.save({"policy": "detach", "unattended_limit_ms": 0})
    turn = factory.turn("running")
    _, work = below(factory, turn)
    look(here, factory, "one")
    viewers.leave("one")
    Turn.objects.filter(pk=turn.pk).update(status="completed")
    viewers.end_overdue()
    assert since(factory) is not None
    Turn.objects.filter(pk=work.pk).update(status="completed")
    viewers.end_overdue()
    assert since(factory) is None


def test_who_looks_at_a_conversation_attends_to_its_sub_agents(here, factory):
    turn = factory.turn("running")
    child, work = below(factory, turn)
    grandchild, deep = below(child, work)
    look(here, factory, "top")
    look(here, grandchild, "deep")
    viewers.leave("top")
    assert since(factory) is None
    viewers.leave("deep")
    assert since(factory) is not None
    assert since(grandchild) is None
    pass_time(factory, minutes=1)
    assert viewers.end_overdue().cancelled == 3
    assert {status(turn), status(work), status(deep)} == {"cancelling"}


def test_what_a_sub_agent_began_for_a_turn_without_viewers_goes_on(here, factory):
    first = factory.turn("running")
    look(here, factory, "one")
    viewers.leave("one")
    Turn.objects.filter(pk=first.pk).update(status="completed")
    later = factory.turn("running")
    _, work = below(factory, later)
    _, late_work = below(factory, first)
    pass_time(factory, minutes=1)
    viewers.end_overdue()
    assert (status(later), status(work), status(late_work)) == ("running", "running", "cancelling")


def test_what_begins_while_the_grace_ends_is_asked_to_stop_all_the_same(here, factory):
    child, turn = below(factory, factory.turn("running"))
    Turn.objects.filter(pk=turn.pk).update(status="queued", started_at=None)
    turn.refresh_from_db()
    Turn.objects.filter(pk=turn.pk).update(status="running", owner=here)
    with transaction.atomic():
        cancel_requests.cancel_turns(
            [turn], viewers.DISCONNECTED, conversations=[log.locked(child.id)]
        )
    assert status(turn) == "cancelling"
    assert CancelRequest.objects.get(turn=turn).settled_at is None


def test_who_comes_back_while_the_grace_ends_is_first_or_second_but_never_both(here, factory):
    turn = factory.turn("running")
    look(here, factory, "one")
    viewers.leave("one")
    pass_time(factory, minutes=1)
    ended: list[Any] = []

    def sweep() -> None:
        try:
            ended.append(viewers.end_overdue())
        finally:
            connection.close()

    with transaction.atomic():
        log.locked(factory.id)
        sweeping = threading.Thread(target=sweep)
        sweeping.start()
        sweeping.join(timeout=0.2)  # it has found the conversation, and may wait for its row
        look(here, factory, "two")
    sweeping.join(timeout=PATIENCE)
    assert [told.cancelled for told in ended] == [0]
    assert status(turn) == "running"
