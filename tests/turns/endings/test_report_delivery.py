"""The report of a detached sub-agent is delivered once, with the next message or by its own turn (C10, C7)."""

from typing import Any

import pytest

from governance import CancelSource
from governance.db import run_in_db_thread
from tests.faulty_database import FaultyDatabase
from tests.turns.row_factory import RowFactory, said
from tests.turns.support import ChatDriver, in_database, row
from tests.turns.tools.scripted_agents import (
    child,
    ended,
    report_turns,
    running,
    spawn,
    use_scripts,
)
from turns import selectors
from turns.cancelling import commands
from turns.core.turns import ACTIVE_STATUSES, TurnEnding, TurnStatus
from turns.endings import recovery, report_delivery, turn_endings
from turns.models import Conversation, Message, Turn
from turns.processes import process_registry
from turns.queueing import queue
from turns.testing import call, gate, text

pytestmark = pytest.mark.django_db(transaction=True)

REPORT = "[SUB-AGENT]"


def spawning(chat: ChatDriver, *after, dig=(), **more):
    return use_scripts(
        chat,
        go=[[spawn("s1", "dig")], [text("It digs.")], *after],
        dig=dig or [[call("c1", "held")], [text("Gold.")]],
        **more,
    )


async def test_an_idle_conversation_gets_a_turn_that_carries_the_report(
    chat: ChatDriver, fake_tools
):
    agents = spawning(chat, **{REPORT: [[text("It has found gold.")]]})
    turn = await chat.run()
    result = (await chat.calls(turn.pk))["s1"]
    dug = await running("dig")
    assert result.status == "succeeded"
    assert str(dug.pk) in result.result
    fake_tools.open("c1")

    started = await chat.sink.until("turn_start", source="sub_agent")
    carrier = await chat.ended(started["turn_id"])
    assert (carrier.status, carrier.conversation_id) == ("completed", chat.id)
    assert started["reports"] == [
        {
            "turn_id": str(dug.pk),
            "conversation_id": str(dug.conversation_id),
            "agent": "assistant",
            "status": "completed",
            "text": "Gold.",
        }
    ]
    assert (await row(Turn, pk=dug.pk)).delivered_at is not None
    [request] = agents.requests[REPORT]
    [block] = request.messages[-1].texts
    assert block.text.startswith(REPORT)
    assert 'The sub-agent "assistant" has completed its work. It reports:\nGold.' in block.text
    assert len(await report_turns(chat.id)) == 1
    snapshot = await selectors.snapshot(conversation_id=chat.id, user=chat.user)
    messages: Any = snapshot["messages"]
    [shown] = [m for m in messages if m["turn_id"] == str(carrier.pk)][:1]
    assert shown["content"][0]["sub_agent"]["text"] == "Gold."
    await chat.history()


async def test_a_busy_conversation_gets_it_with_its_next_message(chat: ChatDriver, fake_tools):
    agents = spawning(chat, next=[[text("I know.")]], busy=[[call("c2", "held")], [text("Free.")]])
    await chat.run()
    busy = await chat.say("busy")
    await chat.running(busy, "c2")
    following = await chat.say("next")
    fake_tools.open("c1")
    await ended(await child("dig"))
    fake_tools.open("c2")

    await chat.ended(following)
    [request] = agents.requests["next"]
    first, second = request.messages[-1].texts
    assert first.text.startswith(REPORT)
    assert second.text == "next"
    assert await report_turns(chat.id) == []


async def test_it_waits_for_the_end_of_the_turn_that_spawned_it(chat: ChatDriver, fake_tools):
    use_scripts(
        chat,
        go=[[spawn("s1", "dig"), call("c2", "held")], [text("Done.")]],
        dig=[[text("Gold.")]],
        **{REPORT: [[text("Gold it is.")]]},
    )
    turn_id = await chat.say()
    dug = await ended(await child("dig"))
    assert (dug.delivered_at, await report_turns(chat.id)) == (None, [])
    fake_tools.open("c2")
    await chat.ended(turn_id)

    started = await chat.sink.until("turn_start", source="sub_agent")
    await chat.ended(started["turn_id"])
    assert (await row(Turn, pk=dug.pk)).delivered_at is not None


async def test_what_a_cancel_took_with_it_delivers_nothing(chat: ChatDriver):
    use_scripts(
        chat,
        go=[[spawn("s1", "dig"), call("c2", "held")]],
        dig=[[text("Gold.")]],
        later=[[text("Well.")]],
    )
    turn_id = await chat.say()
    dug = await ended(await child("dig"))
    await chat.cancel(turn_id)
    await chat.ended(turn_id)

    assert await run_in_db_thread(report_delivery.enqueue_report_turns)() == []
    later = await chat.run("later")
    [message] = await in_database(lambda: list(Message.objects.filter(turn=later, role="user")))
    assert [block["text"] for block in message.content] == ["later"]
    assert (await row(Turn, pk=dug.pk)).delivered_at is None


async def test_nothing_begins_by_itself_for_a_sub_agent_that_was_cancelled(chat: ChatDriver):
    agents = spawning(chat, dig=[[text("I see"), gate()]], next=[[text("Pity.")]])
    await chat.run()
    dug = await running("dig")
    await chat.cancel(dug.pk)
    await ended(dug)

    assert await run_in_db_thread(report_delivery.enqueue_report_turns)() == []
    await chat.run("next")
    [request] = agents.requests["next"]
    report = request.messages[-1].texts[0].text
    assert 'The sub-agent "assistant" was cancelled by the user.' in report
    assert await report_turns(chat.id) == []


class TestRows:
    """The rules on rows, without anything that runs."""

    @pytest.fixture
    def place(self, ada) -> RowFactory:
        return RowFactory(ada)

    def spawned(
        self, place: RowFactory, status: str = "completed", worked_for: Turn | None = None, **fields
    ) -> Turn:
        """A detached sub-agent of a completed turn that has said what it found."""
        parent = worked_for or place.turn()
        below = RowFactory(place.conversation.owner)
        Conversation.objects.filter(pk=below.id).update(parent=place.id)
        turn = below.turn(
            status,
            **{"parent": parent, "is_detached": True, "depth": 1, "agent": "digger", **fields},
        )
        below.message(turn, "assistant", said("Gold."))
        return turn

    def test_several_reports_are_carried_by_one_turn(self, place):
        for _ in range(3):
            self.spawned(place)
        assert report_delivery.enqueue_report_turn(place.id) is not None
        assert report_delivery.enqueue_report_turn(place.id) is None
        claimed, events = queue.claim(place.id, process=process_registry.register())

        assert len(events[0]["reports"]) == 3
        [message] = Message.objects.filter(turn=claimed.id)
        assert len(message.content) == 3
        assert not Turn.objects.filter(is_detached=True, delivered_at=None).exists()

    def test_each_report_is_taken_once_whoever_comes_first(self, place):
        self.spawned(place)
        report_delivery.enqueue_report_turn(place.id)
        process = process_registry.register()
        claimed, _ = queue.claim(place.id, process=process)
        turn_endings.end_turn(claimed.id, TurnEnding(status=TurnStatus.INTERRUPTED))

        assert report_delivery.enqueue_report_turns() == []
        queue.enqueue(place.id, text="next", source="typed", client_id=None)
        _, events = queue.claim(place.id, process=process)
        assert events[0]["reports"] == []

    def test_a_restart_carries_what_nobody_has(self, place):
        self.spawned(place)
        recovery.recover()

        assert queue.waiting_conversations() == [place.id]
        assert Turn.objects.get(conversation=place.id, status="queued").source == "sub_agent"
        recovery.recover()
        assert queue.waiting_conversations() == [place.id]
        assert Turn.objects.filter(conversation=place.id, status="queued").count() == 1

    def test_a_cancel_overtakes_what_had_ended_before_it(self, place, ada):
        turn = place.turn("running", owner=process_registry.register())
        self.spawned(place)
        command = commands.CancelCommand(user=ada, source=CancelSource.BUTTON)
        commands.request_turn_cancel(turn.pk, command)
        turn_endings.end_turn(turn.pk, TurnEnding(status=TurnStatus.CANCELLED))

        assert report_delivery.enqueue_report_turn(place.id) is None
        queue.enqueue(place.id, text="next", source="typed", client_id=None)
        _, events = queue.claim(place.id, process=process_registry.register())
        assert len(events[0]["reports"]) == 1

    def test_a_carrier_that_is_cancelled_while_it_waits_takes_no_report_with_it(self, place, ada):
        turn = self.spawned(place)
        report_delivery.enqueue_report_turn(place.id)
        carrier = Turn.objects.get(conversation=place.id, status="queued")
        commands.request_turn_cancel(
            carrier.pk, commands.CancelCommand(user=ada, source=CancelSource.BUTTON)
        )
        turn.refresh_from_db()
        assert turn.delivered_at is None
        assert report_delivery.enqueue_report_turn(place.id) is None

    def test_agents_cannot_keep_each_other_going(self, place):
        self.spawned(place)
        report_delivery.enqueue_report_turn(place.id)
        assert Turn.objects.get(conversation=place.id, status="queued").depth == 1

    def nested(self, place: RowFactory, above: str = "completed") -> RowFactory:
        """A sub-agent that has ended before one that it had spawned: the conversation that the report is due to."""
        parent = place.turn(above)
        middle = RowFactory(place.conversation.owner)
        Conversation.objects.filter(pk=middle.id).update(parent=place.id)
        self.spawned(middle, worked_for=middle.turn(parent=parent, depth=1), depth=2)
        return middle

    def test_a_report_to_a_sub_agent_that_has_ended_reaches_whom_it_worked_for(self, place):
        middle = self.nested(place)
        [(carried_to, _)] = report_delivery.enqueue_report_turns()
        assert carried_to == middle.id
        claimed, _ = queue.claim(middle.id, process=process_registry.register())
        turn_endings.end_turn(claimed.id, TurnEnding(status=TurnStatus.COMPLETED))

        [(carried_to, _)] = report_delivery.enqueue_due_after(claimed.id)
        assert carried_to == place.id
        assert Turn.objects.get(conversation=place.id, status="queued").depth == 2

    def test_a_report_to_a_sub_agent_whose_work_was_cut_off_begins_nothing(self, place):
        middle = self.nested(place, above="cancelled")
        assert report_delivery.enqueue_report_turns() == []
        assert report_delivery.enqueue_report_turn(middle.id) is None

    @pytest.mark.parametrize("limit", ["TURNS_MAX_CHILDREN", "TURNS_MAX_FAMILY"])
    def test_a_report_to_a_sub_agent_waits_for_room_below_its_parent(self, place, settings, limit):
        setattr(settings, limit, 2)
        middle = self.nested(place)
        person = place.conversation.turns.get()
        Turn.objects.exclude(pk=person.pk).update(root=person)
        owner = process_registry.register()
        working = [
            self.spawned(place, "running", worked_for=person, root=person, owner=owner)
            for _ in range(2)
        ]
        assert report_delivery.enqueue_report_turns() == []

        turn_endings.end_turn(working[0].pk, TurnEnding(status=TurnStatus.CANCELLED))
        [(carried_to, _)] = report_delivery.enqueue_report_turns()
        assert carried_to == middle.id
        assert person.children.filter(status__in=ACTIVE_STATUSES).count() == 2

    def test_what_waits_for_a_person_is_not_looked_at_by_every_sweep(
        self, place, ada, django_assert_num_queries
    ):
        turn = place.turn("running", owner=process_registry.register())
        self.spawned(place)
        commands.request_turn_cancel(
            turn.pk, commands.CancelCommand(user=ada, source=CancelSource.BUTTON)
        )
        turn_endings.end_turn(turn.pk, TurnEnding(status=TurnStatus.CANCELLED))
        with django_assert_num_queries(1):
            assert report_delivery.enqueue_report_turns() == []

    def test_what_cannot_be_carried_does_not_keep_the_rest_waiting_for_ever(self, place, ada):
        stuck = [RowFactory(ada) for _ in range(6)]
        for other in stuck:
            self.spawned(other)
            Conversation.objects.filter(pk=other.id).update(agent="gone")
        self.spawned(place)
        sweeps = (report_delivery.enqueue_report_turns(limit=2) for _ in range(200))
        carried = next(batches for batches in sweeps if batches)
        assert [conversation_id for conversation_id, _events in carried] == [place.id]

    @pytest.mark.parametrize(
        ("status", "fields", "words"),
        [
            ("timed_out", {"turn_timeout_ms": 30_000}, "ran out of its time (30 s) and was ended."),
            ("failed", {"error_message": "The chat model is down."}, "The chat model is down."),
            ("interrupted", {}, "was interrupted"),
        ],
    )
    def test_a_report_says_how_it_ended(self, place, status, fields, words):
        self.spawned(place, status, **fields)
        report_delivery.enqueue_report_turn(place.id)
        claimed, _ = queue.claim(place.id, process=process_registry.register())

        [block] = Message.objects.get(turn=claimed.id).content
        assert words in block["text"]
        assert block["text"].endswith("The last that it said:\nGold.")


async def test_the_sweep_delivers_what_was_left_behind(chat: ChatDriver, settings, fake_tools):
    settings.TURNS_SWEEP_INTERVAL = 0.05
    spawning(chat, **{REPORT: [[text("So it is.")]]})
    await chat.run()
    dug = await running("dig")
    await run_in_db_thread(turn_endings.end_turn)(dug.pk, TurnEnding(status=TurnStatus.INTERRUPTED))

    started = await chat.sink.until("turn_start", source="sub_agent")
    assert started["reports"][0]["status"] == "interrupted"
    await chat.ended(started["turn_id"])
    fake_tools.open("c1")


@pytest.mark.parametrize(
    ("fault", "part"),
    [
        ("lose_statement", 'LEFT OUTER JOIN "turns_turn"'),  # where the report is due
        ("lose_statement", 'INSERT INTO "turns_turn"'),  # what carries it
        ("lose_commit", 'INSERT INTO "turns_turn"'),  # it is there, but nobody was told
    ],
)
async def test_a_report_outlives_the_database_that_fails_when_it_is_due(
    chat: ChatDriver, settings, fake_tools, faulty_database: FaultyDatabase, fault: str, part: str
):
    settings.TURNS_SWEEP_INTERVAL = 0.05
    agents = spawning(chat, **{REPORT: [[text("So it is.")]]})
    await chat.run()
    dug = await running("dig")
    getattr(faulty_database, fault)(part)
    fake_tools.open("c1")

    assert (await ended(dug)).status == "completed"
    started = await chat.sink.until("turn_start", source="sub_agent")
    await chat.ended(started["turn_id"])
    assert faulty_database.lost == {part: 1}
    assert [report["turn_id"] for report in started["reports"]] == [str(dug.pk)]
    assert (await row(Turn, pk=dug.pk)).delivered_at is not None
    assert (len(await report_turns(chat.id)), len(agents.requests[REPORT])) == (1, 1)
