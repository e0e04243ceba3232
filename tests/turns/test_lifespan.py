"""The ASGI lifespan: what waits starts with the server, what runs is drained at its end (95)."""

import asyncio
import gc

import pytest
from django.db.migrations.recorder import MigrationRecorder

from tests.support import PATIENCE, eventually
from tests.turns.row_factory import RowFactory
from tests.turns.support import ChatDriver, FakeTools, in_database, row
from turns.events import sinks
from turns.lifespan import LifespanApplication
from turns.models import Process, Turn
from turns.queueing import queue
from turns.running import runtime
from turns.testing import call, gate, text

pytestmark = pytest.mark.django_db(transaction=True)


class Server:
    """A server that speaks lifespan."""

    def __init__(self) -> None:
        self._to_app: asyncio.Queue = asyncio.Queue()
        self._from_app: asyncio.Queue = asyncio.Queue()
        self._task = asyncio.create_task(
            LifespanApplication()({"type": "lifespan"}, self._to_app.get, self._from_app.put)
        )

    async def ask(self, phase: str) -> str:
        await self._to_app.put({"type": f"lifespan.{phase}"})
        return (await asyncio.wait_for(self._from_app.get(), PATIENCE))["type"]

    async def end(self) -> None:
        await asyncio.wait_for(self._task, PATIENCE)


async def test_what_waits_starts_with_the_server_and_what_runs_ends_with_it(
    chat: ChatDriver, settings
):
    settings.TURNS_DRAIN_GRACE = 0.0
    chat.use_script([call("a", "held")])
    waiting = await in_database(
        lambda: queue.enqueue(chat.id, text="x", source="typed", client_id=None).turn
    )
    server = Server()
    assert await server.ask("startup") == "lifespan.startup.complete"
    await chat.running(waiting.pk, "a")
    queued = await chat.say("second")
    assert await server.ask("shutdown") == "lifespan.shutdown.complete"
    await server.end()
    turn = await chat.ended(waiting.pk)
    assert (turn.status, turn.ended_by_reason) == ("interrupted", "shutdown")
    assert "the server, which is shutting down" in (await chat.calls(turn.pk))["a"].result
    assert (await row(Turn, pk=queued)).status == "queued"
    assert await in_database(Process.objects.filter(ended_at=None).count) == 0


@pytest.mark.parametrize(("own", "then"), [(700, 10_000), (50_000, 50_000), (0, 0)])
async def test_the_garbage_collector_comes_rarely_where_turns_run(site, own, then):
    runtime._calm_collector.cache_clear()
    usual = gc.get_threshold()
    gc.set_threshold(own, *usual[1:])
    try:
        await runtime.ensure_started()
        assert gc.get_threshold() == (then, *usual[1:])
    finally:
        gc.set_threshold(*usual)


async def test_a_database_of_a_later_version_is_refused_in_words(chat: ChatDriver, caplog):
    migrations = MigrationRecorder.Migration.objects
    later = await in_database(lambda: migrations.create(app="turns", name="9999_from_the_future"))
    try:
        server = Server()
        assert await server.ask("startup") == "lifespan.startup.failed"
    finally:
        await in_database(later.delete)
    [said] = [record for record in caplog.records if record.name == "turns.lifespan"]
    assert "was migrated by a later version (turns.9999)" in said.getMessage()
    assert said.exc_info is None
    await server.ask("shutdown")
    await server.end()


async def test_a_turn_that_ends_within_the_drain_is_not_cancelled(
    chat: ChatDriver, fake_tools: FakeTools, settings
):
    settings.TURNS_DRAIN_GRACE = 10.0
    turn_id = await chat.begin([call("a", "held")], [text("Done.")])
    stopping = asyncio.create_task(runtime.stop())
    runner = await runtime.ensure_started()
    await eventually(lambda: runner.supervisor.is_draining)
    fake_tools.open("a")
    await asyncio.wait_for(stopping, PATIENCE)
    assert (await chat.ended(turn_id)).status == "completed"


async def test_a_stubborn_tool_does_not_hold_up_the_end(chat: ChatDriver):
    turn_id = await chat.begin([call("a", "stubborn"), call("b", "blocked")], running=["a", "b"])
    await asyncio.wait_for(runtime.stop(grace=0), PATIENCE)
    turn = await chat.ended(turn_id)
    assert (turn.status, turn.ended_by_reason) == ("interrupted", "shutdown")
    assert {c.status for c in (await chat.calls(turn_id)).values()} == {"abandoned"}


async def test_while_draining_nothing_new_begins(chat: ChatDriver, fake_tools: FakeTools):
    turn_id = await chat.begin([call("a", "held")], [text("Done.")])
    stopping = asyncio.create_task(runtime.stop(grace=10))
    runner = await runtime.ensure_started()
    await eventually(lambda: runner.supervisor.is_draining)
    queued = await chat.say("second")
    fake_tools.open("a")
    await asyncio.wait_for(stopping, PATIENCE)
    assert (await row(Turn, pk=turn_id)).status == "completed"
    assert (await row(Turn, pk=queued)).status == "queued"


async def test_a_turn_that_is_claimed_while_the_rest_is_ended_is_ended_too(chat: ChatDriver):
    """The claim is stored and not yet known here when the drain cancels what runs."""
    claimed, told = asyncio.Event(), asyncio.Event()

    class Slow:
        async def publish(self, conversation_id, event):
            if event["type"] == "turn_start":
                claimed.set()
                await told.wait()

    slow = Slow()
    sinks.register(slow)
    try:
        chat.use_script([gate()])
        saying = asyncio.create_task(chat.say())
        await asyncio.wait_for(claimed.wait(), PATIENCE)
        stopping = asyncio.create_task(runtime.stop(grace=0))
        runner = await runtime.ensure_started()
        await eventually(lambda: runner.supervisor.is_draining)
        told.set()
        await asyncio.wait_for(stopping, PATIENCE)
    finally:
        sinks.unregister(slow)
    turn = await row(Turn, pk=await saying)
    assert (turn.status, turn.ended_by_reason) == ("interrupted", "shutdown")


async def test_after_a_shutdown_the_next_turn_is_told(chat: ChatDriver):
    hold = gate()
    chat.use_script([text("So far"), hold])
    first = await chat.say()
    await asyncio.wait_for(hold.reached.wait(), PATIENCE)
    await runtime.stop(grace=0)
    model = chat.use_script([text("Welcome back.")])
    second = await chat.run()
    assert second.status == "completed"
    assert "the server was shut down" in str(model.requests[0].messages[-1])
    assert (await row(Turn, pk=first)).status == "interrupted"


async def test_a_start_that_fails_is_told_and_can_be_tried_again(site, monkeypatch):
    from turns.endings import recovery

    with monkeypatch.context() as broken:
        broken.setattr(recovery, "recover", lambda: 1 / 0)
        server = Server()
        assert await server.ask("startup") == "lifespan.startup.failed"
    assert await server.ask("startup") == "lifespan.startup.complete"
    assert await server.ask("shutdown") == "lifespan.shutdown.complete"
    await server.end()


async def test_a_queued_turn_of_a_dead_process_starts_with_the_next_one(chat: ChatDriver):
    chat.use_script([text("Here I am.")])
    factory = await in_database(lambda: RowFactory(chat.user))
    turn = await in_database(lambda: factory.turn("queued"))
    await runtime.ensure_started()
    await chat.sink.until_ended(turn.pk)
    assert (await row(Turn, pk=turn.pk)).status == "completed"
