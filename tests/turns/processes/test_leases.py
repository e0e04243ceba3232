"""The lease of this process: renewed by itself, lost when it is ended or not renewed, then taken again (H4)."""

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
from asgiref.sync import async_to_sync
from django.db import connection, connections, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from governance import CancellationToken
from governance.db import run_in_db_thread
from governance.db_clock import database_now, now_minus
from tests.support import PATIENCE, eventually, pass_time, with_room
from tests.turns.row_factory import RowFactory, make_process, said
from tests.turns.support import ChatDriver, in_database, row
from tests.turns.threads import at_once
from turns.core.chat_model import Notice
from turns.core.exceptions import Fenced
from turns.core.prompt_changes import PromptHead
from turns.core.turns import TurnEnding, TurnStatus
from turns.endings import recovery, turn_endings
from turns.events import sinks
from turns.events.notifications import Notifications
from turns.models import Process, Turn
from turns.processes import leases, process_registry
from turns.processes.leases import Lease, LeaseTiming, LoopWatch
from turns.queueing import queue
from turns.running import runtime
from turns.running.journal import DatabaseJournal
from turns.testing import call, text

pytestmark = pytest.mark.django_db(transaction=True)

QUICK = LeaseTiming(renew=0.05, fence_after=0.3, ttl=0.5)
LASTING = LeaseTiming(renew=0.05, fence_after=2 * PATIENCE, ttl=3 * PATIENCE)


@pytest.fixture
def quick(settings):
    settings.TURNS_LEASE_RENEW_INTERVAL = 0.1
    settings.TURNS_LEASE_FENCE_AFTER = 5.0
    settings.TURNS_LEASE_TTL = 7.0


@pytest.fixture
async def hold(transactional_db):
    """Return a function that registers this process and keeps its lease; `lost` is set when it is lost."""
    held: list[Lease] = []

    async def begin(timing: LeaseTiming = QUICK) -> tuple[Lease, asyncio.Event]:
        lost = asyncio.Event()
        registered_at = time.monotonic()
        process = await run_in_db_thread(process_registry.register)()
        lease = Lease(process, timing=timing, registered_at=registered_at, on_lost=lost.set)
        held.append(lease)
        lease.start()
        return lease, lost

    yield begin
    for lease in held:
        await lease.close()
    await run_in_db_thread(connections.close_all)()


async def seen_at(process: Process) -> datetime:
    return (await row(Process, pk=process.pk)).seen_at


class TestLease:
    async def test_is_renewed_by_the_databases_clock(self, hold):
        lease, lost = await hold(LASTING)
        first = await seen_at(lease.process)

        async def has_moved() -> bool:
            return await seen_at(lease.process) > first

        await eventually(has_moved)
        assert lease.is_held
        assert not lost.is_set()

    async def test_is_renewed_although_the_database_thread_of_the_process_is_busy(
        self, hold, monkeypatch
    ):
        renew, renewed, go_on = process_registry.renew, [], threading.Event()
        lease, lost = await hold(LASTING)
        busy = asyncio.create_task(run_in_db_thread(go_on.wait)())
        monkeypatch.setattr(
            process_registry, "renew", lambda process: renewed.append(renew(process)) or renewed[-1]
        )
        try:
            await eventually(lambda: len(renewed) >= 3)
        finally:
            go_on.set()
            await busy
        assert all(renewed)
        assert lease.is_held
        assert not lost.is_set()

    async def test_is_lost_once_somebody_has_ended_the_row(self, hold):
        lease, lost = await hold(LASTING)
        await run_in_db_thread(process_registry.retire)(lease.process)
        await asyncio.wait_for(lost.wait(), PATIENCE)
        assert not lease.is_held
        await eventually(lambda: not lease._thread.is_alive())

    async def test_is_lost_when_the_thread_hangs(self, hold, monkeypatch):
        lease, lost = await hold()
        go_on = threading.Event()
        monkeypatch.setattr(process_registry, "renew", lambda _process: go_on.wait())
        await asyncio.wait_for(lost.wait(), PATIENCE)
        assert not lease.is_held
        go_on.set()

    async def test_outlives_errors_of_the_database_for_a_while(self, hold, monkeypatch, caplog):
        lease, lost = await hold(LASTING)
        renew = process_registry.renew
        failures = iter(range(3))

        def fail(process: Process) -> bool:
            if next(failures, None) is not None:
                raise OSError("away")
            return renew(process)

        monkeypatch.setattr(process_registry, "renew", fail)
        first = await seen_at(lease.process)
        await eventually(lambda: caplog.text.count("The lease was not renewed") >= 3)

        async def has_moved() -> bool:
            return await seen_at(lease.process) > first

        await eventually(has_moved)
        assert not lost.is_set()

    async def test_is_not_renewed_for_a_loop_that_is_blocked(self, hold, monkeypatch, caplog):
        monkeypatch.setattr(leases, "LOGGED_LAG", 0.1)
        monkeypatch.setattr(leases, "LOOK_INTERVAL", 0.02)
        lease, lost = await hold()
        before = Process.objects.filter(
            pk=lease.process.pk, seen_at__lt=now_minus(timedelta(seconds=0.5))
        )
        assert block_the_loop_until(before.exists)
        await asyncio.wait_for(lost.wait(), PATIENCE)
        assert caplog.text.count("The event loop has been held up") in range(1, 4)  # not each look
        assert "block_the_loop" in caplog.text

    async def test_that_was_closed_is_not_lost(self, hold):
        lease, lost = await hold(LASTING)
        await lease.close()
        await eventually(lambda: not lease._thread.is_alive())
        lease._held_until = time.monotonic()
        pass_time(LASTING.fence_after)
        await asyncio.sleep(0.01)
        assert not lost.is_set()


def block_the_loop(seconds: float) -> None:
    threading.Event().wait(seconds)


def block_the_loop_until(holds: Callable[[], bool]) -> bool:
    """Block the loop until another thread has seen in the database that something holds. False if it never does."""

    def look() -> bool:
        until = time.monotonic() + PATIENCE
        try:
            while not (is_so := holds()) and time.monotonic() < until:
                block_the_loop(0.05)
        finally:
            connection.close()
        return is_so

    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(look).result()


class TestLoopWatch:
    async def test_a_loop_that_answers_is_not_behind(self):
        watch = LoopWatch()
        await asyncio.to_thread(watch.lag)
        await asyncio.sleep(0.1)
        assert await asyncio.to_thread(watch.lag) < with_room(0.1)

    async def test_a_process_that_stood_still_is_no_blocked_loop(self):
        watch = LoopWatch()
        lags = []

        def look() -> None:
            watch.lag()
            time.sleep(0.1)
            lags.append(watch.lag())
            watch.restart()
            lags.append(watch.lag())

        thread = threading.Thread(target=look)
        thread.start()
        block_the_loop(0.2)
        thread.join()
        assert lags[0] >= 0.1 > lags[1]


class TestLoss:
    async def test_a_process_drops_its_turns_and_comes_back_under_a_new_name(
        self, chat: ChatDriver, fake_tools, quick
    ):
        chat.use_script([call("h", "held")], [text("Next.")])
        lost = await chat.say("work")
        waiting = await chat.say("more")
        await chat.running(lost, "h")
        owner = await runtime.ensure_started()
        before = owner.process
        await in_database(lambda: process_registry.retire(before))
        turn = await chat.ended(lost)
        assert (turn.status, turn.ended_by_reason, turn.owner_id) == ("interrupted", "", before.pk)
        await chat.sink.until_ended(waiting)
        again = await row(Turn, pk=waiting)
        assert owner.process.pk != before.pk
        assert again.owner_id == owner.process.pk
        assert (await chat.calls(lost))["h"].status == "repaired"
        assert [
            (await row(Process, pk=p)).ended_at is None for p in (before.pk, again.owner_id)
        ] == [
            False,
            True,
        ]

    async def test_a_call_whose_start_was_written_too_late_does_not_run(
        self, chat: ChatDriver, fake_tools
    ):
        chat.use_script([call("a", "quick")], [text("Unheard.")])
        lease = (await runtime.ensure_started()).ownership.lease
        await lease.close()

        class LateWrite:
            """The lease runs out while the start of the call is written."""

            async def publish(self, conversation_id, event):
                if event["type"] == "tool_start":
                    lease._held_until = 0.0

        late = LateWrite()
        sinks.register(late)
        try:
            turn_id = await chat.say()
            await chat.sink.until("tool_start", turn_id=str(turn_id))
            await eventually(lambda: runtime.find_turn(turn_id) is None)
        finally:
            sinks.unregister(late)
        assert fake_tools.started == []


def test_a_journal_without_its_lease_writes_nothing_and_does_not_ask(ada):
    factory = RowFactory(ada)
    factory.turn("queued")
    claimed, _events = queue.claim(factory.id, process=process_registry.register())

    class Lost:
        is_held = False

    journal = DatabaseJournal(claimed, token=CancellationToken(), lease=Lost())

    async def write_all() -> None:
        for write in (
            journal.prompt(PromptHead.of("local", "", ())),
            journal.save_text(1, "hm"),
            journal.notify(Notice(code="x", message="y")),
        ):
            with pytest.raises(Fenced):
                await write

    with CaptureQueriesContext(connection) as queries:
        async_to_sync(write_all)()
    assert len(queries) == 0


def test_a_process_that_was_ended_claims_nothing(ada):
    factory = RowFactory(ada)
    factory.turn("queued")
    process = process_registry.register()
    process_registry.retire(process)
    assert queue.claim(factory.id, process=process) is None
    assert queue.claim(factory.id, process=process_registry.register()) is not None


@pytest.mark.parametrize("skew", [timedelta(hours=-1), timedelta(hours=1)])
def test_the_clock_of_a_machine_does_not_matter(ada, monkeypatch, skew):
    real = timezone.now
    monkeypatch.setattr(timezone, "now", lambda: real() + skew)
    process = process_registry.register()
    factory = RowFactory(ada)
    waiting = queue.enqueue(factory.id, text="go", source="typed", client_id=None).turn
    claimed, _events = queue.claim(factory.id, process=process)
    assert recovery.sweep(process, list) == Notifications()  # just claimed: left alone
    turn = Turn.objects.get(pk=waiting.pk)
    for at in (turn.queued_at, turn.started_at, Process.objects.get().seen_at):
        assert abs(at - datetime.now(UTC)) < timedelta(seconds=30)
    turn_endings.end_turn(claimed.id, TurnEnding(status=TurnStatus.COMPLETED), epoch=claimed.epoch)
    turn.refresh_from_db()
    assert turn.duration_ms < 30_000
    elsewhere = make_process(age=60)
    assert process_registry.end_dead() == 1
    assert Process.objects.get(pk=elsewhere.pk).ended_at is not None


def test_the_databases_clock_is_aware_and_goes_on():
    first = database_now()
    assert first.tzinfo is not None
    assert abs(first - datetime.now(UTC)) < timedelta(seconds=5)
    time.sleep(0.002)
    assert database_now() > first


class TestSweep:
    def test_ends_what_it_finds_once_although_several_processes_look_at_once(self, ada):
        factory = [RowFactory(ada) for _ in range(6)]
        dead = make_process(age=3600)
        for one in factory:
            one.message(one.turn("running", owner=dead), "user", said("question"))
            one.turn("queued")

        def look() -> int:
            return len(recovery.end_orphaned().batches)

        found = sum(at_once([look] * 3))
        assert found + look() == len(factory)  # what was locked at that moment waits for the next
        assert set(queue.waiting_conversations()) == {one.id for one in factory}
        assert Turn.objects.filter(status="interrupted", epoch=1).count() == len(factory)

    def test_does_not_wait_for_a_conversation_that_somebody_has_locked(self, ada):
        if connection.vendor == "sqlite":
            pytest.skip("a writer holds the whole file")
        factory = RowFactory(ada)
        factory.turn("running", owner=make_process(age=3600))
        found: list[object] = []

        def look() -> None:
            try:
                found.append(recovery.end_orphaned().batches)
            finally:
                connection.close()

        with transaction.atomic():
            factory.conversation.__class__.objects.select_for_update().get(pk=factory.id)
            sweeper = threading.Thread(target=look)
            sweeper.start()
            sweeper.join(timeout=PATIENCE)
            assert found == [[]]
        assert len(recovery.end_orphaned().batches) == 1

    def test_asks_as_often_and_looks_at_as_much_however_long_the_past_is(self, ada):
        process = process_registry.register()
        RowFactory(ada).turn("queued")

        def questions() -> list[str]:
            with CaptureQueriesContext(connection) as queries:
                assert recovery.sweep(process, list) == Notifications()
                queue.waiting_conversations()
            return [query["sql"] for query in queries]

        before = questions()
        for _ in range(20):
            old = RowFactory(ada)
            for _ in range(10):
                old.turn("completed", owner=process)
            Process.objects.filter(pk=make_process().pk).update(ended_at=timezone.now())
        asked = questions()
        assert len(asked) == len(before) <= 8
        if connection.vendor == "sqlite":
            for sql in asked:
                assert "SCAN turns_turn" not in _plan(sql), sql
                assert "SCAN turns_process\n" not in _plan(sql), sql


def _plan(sql: str) -> str:
    if not sql.startswith("SELECT"):
        return ""
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN QUERY PLAN {sql}")
        return "\n".join(line[3] for line in cursor.fetchall()) + "\n"
