"""What a process that died under its turns leaves behind is found, ended and repaired (H4, 74, 93, 94b)."""

from datetime import timedelta
from uuid import UUID

import pytest
from django.utils import timezone

from tests.turns.row_factory import RowFactory, said, use
from tests.turns.support import ChatDriver, in_database, row
from turns.calls.serializers import elapsed_ms
from turns.endings import recovery
from turns.events.notifications import Notifications
from turns.models import Process, Repair, Turn
from turns.processes import process_registry
from turns.queueing import queue
from turns.running import runtime
from turns.running.store import DatabaseStore
from turns.testing import text

pytestmark = pytest.mark.django_db(transaction=True)


async def test_after_a_kill_the_turn_is_interrupted_and_the_conversation_goes_on(
    chat: ChatDriver, die
):
    crashed = await die("first", "second")
    assert (await row(Turn, pk=crashed)).status == "running"
    model = chat.use_script([text("To the second.")], [text("To the third.")])
    await runtime.ensure_started()
    turn = await chat.ended(crashed)
    assert (turn.status, turn.ended_by_reason) == ("interrupted", "")
    calls = await chat.calls(crashed)
    assert (calls["q"].status, calls["q"].result) == ("succeeded", "real")
    assert (calls["h"].status, calls["h"].disposition) == ("repaired", "indeterminate")
    assert calls["h"].result.startswith("[INTERRUPTED]")
    repair = await in_database(Repair.objects.get)
    assert (repair.tool_id, repair.cause, repair.found_when) == ("h", "crash", "recovery")
    assert chat.sink.find("history_repaired", turn_id=str(crashed))
    second = await row(Turn, number=2)
    assert (await chat.ended(second.pk)).status == "completed"
    told = model.requests[0].messages[-1].texts[0].text
    assert "The previous turn did not reach its end: the server ended unexpectedly." in told
    assert "check before repeating: stubborn (h)." in told
    assert (await chat.run("third")).status == "completed"
    await chat.history()
    assert await in_database(Repair.objects.count) == 1


async def test_a_turn_whose_end_was_asked_for_before_the_crash_is_not_resumed(
    chat: ChatDriver, die
):
    crashed = await die("first", "second", TURNKEEPER_CANCEL="yes")
    request = await chat.request(crashed)
    assert (request.settled_at, request.outcome) == (None, "")
    model = chat.use_script()
    await runtime.ensure_started()
    assert (await chat.ended(crashed)).status == "interrupted"
    request = await chat.request(crashed)
    assert (request.reason, request.source, request.by_name) == ("user", "button", "ada")
    assert (request.outcome, request.running_tools) == ("interrupted", ["stubborn"])
    assert request.settled_ms >= 0
    assert (await row(Turn, number=2)).status == "cancelled"
    assert model.requests == []


async def test_recovery_twice_changes_nothing_more(chat: ChatDriver, die):
    await die("first")
    assert len((await in_database(recovery.recover)).batches) == 1
    assert await in_database(recovery.recover) == Notifications()


def a_live_turn(factory: RowFactory, **owner) -> Turn:
    turn = factory.turn("running", owner=owner.pop("owner", None))
    factory.message(turn, "user", said("question"))
    factory.message(turn, "assistant", use("started"), use("waiting"))
    factory.call(turn, "started", "running")
    factory.call(turn, "waiting", "pending")
    return turn


def test_a_turn_that_its_own_process_has_lost_is_ended(ada):
    owner = process_registry.register()
    lost, kept = (a_live_turn(RowFactory(ada), owner=owner) for _ in range(2))
    just_claimed = a_live_turn(RowFactory(ada), owner=owner)
    Turn.objects.filter(pk=just_claimed.pk).update(started_at=timezone.now())
    ((conversation_id, _events),) = recovery.end_lost(owner, [kept.pk]).batches
    assert conversation_id == lost.conversation_id
    statuses = {turn.pk: turn.status for turn in Turn.objects.all()}
    assert statuses == {lost.pk: "interrupted", kept.pk: "running", just_claimed.pk: "running"}


async def test_a_turn_that_begins_while_the_sweep_waits_for_the_database_goes_on(
    chat: ChatDriver, settings
):
    settings.TURNS_SWEEP_INTERVAL = 3600.0
    here = await runtime.ensure_started()
    store = DatabaseStore(here.ownership, lock=here.lock, notify_owner=runtime.notify_owner)
    live: list[UUID] = []

    def live_when_it_is_asked() -> list[UUID]:
        live.append(a_live_turn(RowFactory(chat.user), owner=here.process).pk)
        return live

    await store.sweep(live_when_it_is_asked)
    assert (await row(Turn, pk=live[0])).status == "running"


def test_the_turns_of_a_live_owner_are_left_alone(ada):
    owner = process_registry.register()
    turn = a_live_turn(RowFactory(ada), owner=owner)
    assert recovery.recover() == Notifications()
    turn.refresh_from_db()
    assert turn.status == "running"
    assert Process.objects.get(pk=owner.pk).ended_at is None


@pytest.mark.parametrize("how", ["ended", "pid taken", "no such pid", "another boot", "nobody"])
def test_the_turns_of_a_dead_owner_are_ended(ada, how):
    owner = process_registry.register()
    changed = {
        "ended": {"ended_at": owner.started_at},
        "pid taken": {"start_ticks": owner.start_ticks - 1},
        "no such pid": {"pid": 2**22 + 1},
        "another boot": {"boot_id": "of yesterday"},
        "nobody": {},
    }[how]
    for name, value in changed.items():
        setattr(owner, name, value)
    owner.save()
    turn = a_live_turn(RowFactory(ada), owner=None if how == "nobody" else owner)
    ((conversation_id, events),) = recovery.recover().batches
    assert conversation_id == turn.conversation_id
    told = [e["type"] for e in events if e["type"] != "error"]
    assert told == ["tool_result", "tool_result", "history_repaired", "turn_end"]
    turn.refresh_from_db()
    # Its pid is there, so it has not ended unexpectedly.
    assert turn.error_code == ("lease_lost" if how == "ended" else "")
    assert (turn.status, turn.epoch) == ("interrupted", 1)
    if how != "nobody":
        owner.refresh_from_db()
        assert owner.ended_at is not None


def test_of_a_dead_owners_calls_those_that_never_started_say_so(ada):
    factory = RowFactory(ada)
    turn = a_live_turn(factory)
    recovery.recover()
    from governance import selectors

    calls = {call.call_id: call for call in selectors.calls_of_group(str(turn.pk))}
    assert (calls["started"].status, calls["started"].disposition) == ("repaired", "indeterminate")
    assert (calls["waiting"].status, calls["waiting"].disposition) == ("not_started", "not_started")
    assert calls["started"].duration_ms is None  # nobody knows how long it ran
    later = calls["started"].ended_at + timedelta(hours=1)
    assert elapsed_ms(calls["started"], at=later) < 3_600_000
    assert "was not started" in calls["waiting"].result
    assert Repair.objects.count() == 2


def test_text_said_before_the_crash_is_kept_and_an_empty_answer_is_not(ada):
    factory = RowFactory(ada)
    speaking = factory.turn("running")
    factory.message(speaking, "user", said("question"))
    factory.message(speaking, "assistant", said("half an ans"), is_streaming=True)
    silent = RowFactory(ada)
    turn = silent.turn("running")
    silent.message(turn, "user", said("question"))
    silent.message(turn, "assistant", is_streaming=True)
    recovery.recover()
    kept = speaking.messages.get(role="assistant")
    assert (kept.is_streaming, kept.interrupted) == (False, True)
    assert not turn.messages.filter(role="assistant").exists()


def test_what_waited_may_start_and_what_runs_is_not_started_again(ada):
    waiting, busy = RowFactory(ada), RowFactory(ada)
    waiting.turn("queued")
    busy.turn("running", owner=process_registry.register())
    busy.turn("queued")
    assert recovery.recover() == Notifications()
    assert queue.waiting_conversations() == [waiting.id]
