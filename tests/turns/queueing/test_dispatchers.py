"""What every dispatcher keeps to: nothing before the commit, nothing after a rollback, duplicates and losses harmless."""

import asyncio
from uuid import uuid4

import pytest
from django.db import transaction
from django.utils import timezone

from governance import CancelSource
from tests.support import eventually
from tests.turns.row_factory import RowFactory, make_process
from tests.turns.support import ChatDriver, in_database, row
from turns.cancelling import commands
from turns.models import Conversation, DisconnectPolicy, Process, Turn
from turns.presence import disconnects
from turns.processes import wakeups
from turns.queueing import dispatchers, queue
from turns.running import runtime
from turns.testing import call, gate, text

pytestmark = pytest.mark.django_db(transaction=True)


class Waking:
    """Remembers which conversations were woken here."""

    def __init__(self) -> None:
        self.woken: list[object] = []

    def wake(self, conversation_id) -> None:
        self.woken.append(conversation_id)


@pytest.fixture
async def waking():
    waking = Waking()
    dispatchers.attach(waking.wake)
    yield waking
    dispatchers.detach()


def enqueue(conversation_id) -> Turn:
    return queue.enqueue(conversation_id, text="x", source="typed", client_id=None).turn


async def test_the_embedded_one_wakes_this_process_after_the_commit_and_not_after_a_rollback(
    chat: ChatDriver, waking: Waking
):
    def roll_back():
        with transaction.atomic():
            enqueue(chat.id)
            transaction.set_rollback(True)

    await in_database(roll_back)
    await in_database(lambda: enqueue(chat.id))
    await eventually(lambda: waking.woken)
    assert waking.woken == [chat.id]


async def test_a_lost_dispatch_is_made_up_for_by_the_sweep(chat: ChatDriver, settings):
    settings.TURNS_POLL_INTERVAL = 0.01
    chat.use_script([text("Here.")])
    await runtime.ensure_started()
    factory = await in_database(lambda: RowFactory(chat.user))
    turn = await in_database(lambda: factory.turn("queued"))
    await chat.sink.until_ended(turn.pk)


async def test_a_process_that_leaves_turns_to_runners_owns_none(chat: ChatDriver, settings):
    settings.TURNS_DISPATCHER = "tests.turns.queueing.test_dispatchers.Nowhere"
    settings.TURNS_POLL_INTERVAL = 0.01
    turn_id = await chat.say()
    running = await runtime.ensure_started()
    process = await row(Process, pk=running.process.pk)
    assert (process.role, process.turn_limit) == ("web", 0)
    (await runtime.ensure_started()).supervisor.wake(chat.id)
    assert (chat.id, turn_id) in dispatchers.get_dispatcher().dispatched
    assert (await row(Turn, pk=turn_id)).status == "queued"


class Nowhere:
    """A dispatcher of somebody else."""

    is_embedded = False

    def __init__(self) -> None:
        self.dispatched: list[object] = []

    def dispatch(self, conversation_id, turn_id) -> None:
        self.dispatched.append((conversation_id, turn_id))


class Bus:
    """A bus in memory, to the processes that it is told of."""

    is_shared = True

    def __init__(self) -> None:
        self.sent: list[object] = []
        self.heard: dict[object, object] = {}

    async def send(self, process_id) -> None:
        self.sent.append(process_id)
        if process_id in self.heard:
            await self.heard[process_id]()

    async def listen(self, process_id, heard) -> None:
        self.heard[process_id] = heard
        await asyncio.Event().wait()


@pytest.fixture
def bus():
    bus = Bus()
    wakeups.register(bus)
    yield bus
    wakeups.unregister(bus)


async def test_the_owner_of_a_turn_gets_a_hint_of_a_cancel(chat: ChatDriver, bus: Bus):
    chat.use_script([gate()])
    turn_id = await chat.say()
    here = (await runtime.ensure_started()).process
    assert (await row(Process, pk=here.pk)).has_shared_layer
    other = await in_database(lambda: Process.objects.create(host="elsewhere", pid=1))
    factory = await in_database(lambda: RowFactory(chat.user))
    theirs = await in_database(lambda: factory.turn("running", owner=other))
    receipt = await chat.cancel(theirs.pk)
    assert (receipt.outcome, bus.sent) == ("accepted", [other.pk])
    await eventually(lambda: here.pk in bus.heard)
    await chat.cancel(turn_id)
    assert bus.sent == [other.pk]
    await chat.sink.until_ended(turn_id)


async def test_a_cancel_by_a_rule_gives_the_owner_the_same_hint(chat: ChatDriver, bus: Bus):
    """The last viewer is here, the turn elsewhere (C11, C12)."""
    started = await runtime.ensure_started()
    other = await in_database(make_process)
    factory = await in_database(lambda: RowFactory(chat.user))
    await in_database(lambda: factory.turn("running", owner=other))
    await in_database(
        lambda: disconnects.save({"policy": DisconnectPolicy.CANCEL_AT_ONCE, "grace_ms": 0})
    )
    viewing = await started.presence.join(factory.id, user_id=chat.user.pk)
    await started.presence.leave(viewing)
    assert bus.sent == [other.pk]


async def test_who_ends_what_a_dead_process_left_gives_the_owners_of_its_sub_agents_a_hint(
    chat: ChatDriver, bus: Bus, settings
):
    settings.TURNS_SWEEP_INTERVAL = 0.05
    await runtime.ensure_started()
    other = await in_database(make_process)

    def plant() -> None:
        dead = Process.objects.create(host="elsewhere", pid=1, ended_at=timezone.now())
        factory = RowFactory(chat.user)
        parent = factory.turn("running", owner=dead)
        child = Conversation.objects.create(owner_id=chat.user.pk, parent=factory.conversation)
        RowFactory(conversation=child).turn("running", owner=other, parent=parent)

    await in_database(plant)
    await eventually(lambda: other.pk in bus.sent)


async def test_a_hint_is_obeyed_at_once(chat: ChatDriver, bus: Bus, settings):
    settings.TURNS_POLL_INTERVAL = 60.0
    turn_id = await chat.begin([call("a", "held")])
    here = (await runtime.ensure_started()).process
    await eventually(lambda: here.pk in bus.heard)
    command = commands.CancelCommand(user=chat.user, source=CancelSource.BUTTON)
    await in_database(lambda: commands.request_turn_cancel(turn_id, command))
    await wakeups.send(here.pk)
    assert (await chat.ended(turn_id)).status == "cancelled"


async def test_a_bus_that_hangs_or_fails_is_given_up_and_nobody_is_told(monkeypatch, caplog):
    class Dead:
        is_shared = True

        async def send(self, process_id) -> None:
            raise ConnectionError("no broker")

    class Deaf:
        is_shared = False

        async def send(self, process_id) -> None:
            await asyncio.Event().wait()

    monkeypatch.setattr(wakeups, "SEND_LIMIT", 0.01)
    buses = [Dead(), Deaf()]
    for bus in buses:
        wakeups.register(bus)
    try:
        await wakeups.send(uuid4())
    finally:
        for bus in buses:
            wakeups.unregister(bus)
