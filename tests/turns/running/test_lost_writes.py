"""A database that loses statements, or the answers to commits, under a running turn. It goes on, and nothing is there twice."""

import asyncio
from collections.abc import Iterator
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth.models import AbstractUser

from governance import make_tool, registry
from governance.logs import KeyValueFormatter
from tests.faulty_database import FaultyDatabase
from tests.support import eventually
from tests.turns.support import ChatDriver, FakeTools, in_database
from turns import services
from turns.events import sinks
from turns.models import CancelRequest, Conversation, Event, Message, Repair, Turn
from turns.running import runtime, write_queue
from turns.testing import call, gate, text

MODEL_READS = 'FROM "turns_message"'
REPLY_BEGINS = '"steps" = %s WHERE'  # where it takes so long that its first words are stored before it is whole
REPLY_STANDS = 'INSERT INTO "turns_message"'
CALLS_COUNTED = '"steps" = %s, "tool_call_count"'
CALLS_PROPOSED = 'INSERT INTO "governance_toolcall"'
CALL_STARTS = '"started_at" = %s, "queued_ms"'
CALL_ENDS = '"error_type" = %s, "disposition"'
LOG = 'INSERT INTO "turns_event"'
TURN_ENDS = '"ended_by_source" = %s'
EVERY_WRITE = (REPLY_STANDS, CALLS_COUNTED, CALLS_PROPOSED, CALL_STARTS, CALL_ENDS, LOG)


class Saboteur:
    """A sink that lets the database lose something as soon as a turn has begun: all that follows is its owner's."""

    def __init__(self, database: FaultyDatabase) -> None:
        self.faults: list[tuple[str, str, int]] = []
        self._database = database

    async def publish(self, conversation_id: UUID, event: dict[str, Any]) -> None:
        if event["type"] == "turn_start":
            while self.faults:
                fault, part, times = self.faults.pop()
                getattr(self._database, fault)(part, times=times)


@pytest.fixture
def saboteur(faulty_database: FaultyDatabase) -> Any:
    made = Saboteur(faulty_database)
    sinks.register(made)
    yield made
    sinks.unregister(made)


@pytest.fixture
def solitary(fake_tools: FakeTools) -> Iterator[str]:
    """A tool that runs beside no other call. So its start is a write of its own."""
    registry.register(make_tool(fake_tools.quick, name="solitary", concurrency="exclusive"))
    yield "solitary"
    registry.unregister("solitary")


def play_two_calls(chat: ChatDriver, *, second: str = "quick") -> None:
    chat.use_script([text("Look."), call("a", "quick"), call("b", second)], [text("Done.")])


async def assert_is_whole(chat: ChatDriver, turn_id: UUID, fake_tools: FakeTools) -> None:
    turn = await chat.ended(turn_id)
    assert (turn.status, turn.steps, turn.tool_call_count) == ("completed", 2, 2)
    assert sorted(fake_tools.started) == ["a", "b"]
    calls = await chat.calls(turn_id)
    assert {made.status for made in calls.values()} == {"succeeded"}
    said = await in_database(lambda: list(Message.objects.order_by("position").values("role")))
    assert [message["role"] for message in said] == ["user", "assistant", "assistant"]
    types = await in_database(lambda: list(Event.objects.values_list("type", flat=True)))
    counted = {name: types.count(name) for name in ("message", "tool_start", "tool_result")}
    assert counted == {"message": 2, "tool_start": 2, "tool_result": 2}
    assert [message.role for message in await chat.history()] == [
        "user",
        "assistant",
        "user",
        "assistant",
    ]


@pytest.mark.parametrize("part", ['FROM "turns_agent"', MODEL_READS])
async def test_a_lost_read_is_repeated(
    chat: ChatDriver,
    fake_tools: FakeTools,
    saboteur: Saboteur,
    faulty_database: FaultyDatabase,
    part: str,
):
    saboteur.faults.append(("lose_statement", part, 3))
    play_two_calls(chat)
    await assert_is_whole(chat, await chat.say(), fake_tools)
    assert faulty_database.lost[part] == 3


@pytest.mark.parametrize(("fault", "times"), [("lose_statement", 3), ("lose_commit", 1)])
@pytest.mark.parametrize("part", EVERY_WRITE)
async def test_a_lost_statement_is_repeated_and_a_commit_whose_answer_is_lost_is_not(
    chat: ChatDriver,
    fake_tools: FakeTools,
    saboteur: Saboteur,
    faulty_database: FaultyDatabase,
    solitary: str,
    part: str,
    fault: str,
    times: int,
):
    saboteur.faults.append((fault, part, times))
    play_two_calls(chat, second=solitary)
    await assert_is_whole(chat, await chat.say(), fake_tools)
    assert faulty_database.lost[part] == times


@pytest.mark.parametrize("fault", ["lose_statement", "lose_commit"])
async def test_an_answer_and_the_starts_of_its_calls_are_there_once_though_tried_one_by_one(
    chat: ChatDriver,
    fake_tools: FakeTools,
    saboteur: Saboteur,
    faulty_database: FaultyDatabase,
    monkeypatch: pytest.MonkeyPatch,
    fault: str,
):
    monkeypatch.setattr(write_queue, "PATIENCE", 0)  # so the whole is tried once
    saboteur.faults.append((fault, CALLS_PROPOSED, 1))
    play_two_calls(chat)
    await assert_is_whole(chat, await chat.say(), fake_tools)
    assert faulty_database.lost[CALLS_PROPOSED] == 1


@pytest.mark.parametrize("fault", ["lose_statement", "lose_commit"])
async def test_a_long_answer_is_begun_once(
    chat: ChatDriver, saboteur: Saboteur, faulty_database: FaultyDatabase, fault: str
):
    saboteur.faults.append((fault, REPLY_BEGINS, 1))
    pause = asyncio.Event()
    chat.use_script([text("Half"), gate(pause), text(" and half.")])
    turn_id = await chat.say()
    streaming = Message.objects.filter(turn=turn_id, is_streaming=True)
    await eventually(partial(in_database, streaming.exists))
    pause.set()
    assert (await chat.ended(turn_id)).status == "completed"
    said = await in_database(lambda: list(Message.objects.filter(role="assistant")))
    assert [message.content for message in said] == [[{"type": "text", "text": "Half and half."}]]
    assert faulty_database.lost[REPLY_BEGINS] == 1


async def test_an_answer_that_says_nothing_leaves_no_message(chat: ChatDriver):
    chat.use_script([text(" ")])
    assert (await chat.run()).status == "completed"
    assert not await in_database(Message.objects.filter(role="assistant").exists)


@pytest.mark.parametrize("fault", ["lose_statement", "lose_commit"])
async def test_a_question_is_put_once_and_its_answer_is_obeyed(
    chat: ChatDriver, saboteur: Saboteur, faulty_database: FaultyDatabase, settings: Any, fault: str
):
    settings.GOVERNANCE_APPROVAL = {}
    part = 'INSERT INTO "governance_approval"'
    saboteur.faults.append((fault, part, 1))
    chat.use_script([call("a", "asked")], [text("Done.")])
    turn_id = await chat.say()
    await chat.asked(turn_id, "a")
    assert (await chat.decide(turn_id, "a")).outcome == "accepted"
    assert (await chat.ended(turn_id)).status == "completed"
    assert len(await chat.questions(turn_id)) == 1
    assert faulty_database.lost[part] == 1


@pytest.mark.parametrize("fault", ["lose_statement", "lose_commit"])
async def test_a_limit_that_is_moved_is_written_down_once(
    chat: ChatDriver, fake_tools: FakeTools, faulty_database: FaultyDatabase, fault: str
):
    part = '"deadline_changes" = %s'
    turn_id = await chat.begin([call("a", "held")], [text("Done.")])
    getattr(faulty_database, fault)(part)
    how = {"turn_id": turn_id, "tool_id": "a", "user": chat.user, "op_id": "op"}
    await services.set_deadline(extend_ms=60_000, **how)
    await chat.sink.until("tool_deadline", tool_id="a")
    fake_tools.open("a")
    await chat.ended(turn_id)
    assert len((await chat.calls(turn_id))["a"].deadline_changes) == 1
    assert faulty_database.lost[part] == 1


@pytest.mark.parametrize("fault", ["lose_statement", "lose_commit"])
async def test_a_sub_agent_is_set_to_work_once(
    chat: ChatDriver, saboteur: Saboteur, faulty_database: FaultyDatabase, fault: str
):
    part = 'INSERT INTO "turns_conversation"'
    saboteur.faults.append((fault, part, 1))
    ask = call("a", "sessions_ask", agent="assistant", message="Say yes.")
    turn = await chat.play([ask], [text("Yes.")], [text("It said yes.")])
    assert turn.status == "completed"
    assert await in_database(Conversation.objects.count) == 2
    assert await in_database(Turn.objects.count) == 2
    assert faulty_database.lost[part] == 1


async def test_the_end_of_a_turn_is_stored_though_the_answer_is_lost(
    chat: ChatDriver, faulty_database: FaultyDatabase
):
    faulty_database.lose_commit(TURN_ENDS)
    chat.use_script([text("Fine.")], [text("Fine again.")])
    turn_id = await chat.say()
    second = await chat.run("next")
    assert second.status == "completed"
    ended = await in_database(lambda: Turn.objects.get(pk=turn_id))
    assert ended.status == "completed"
    ends = Event.objects.filter(turn=turn_id, type="turn_end")
    assert await in_database(ends.count) == 1


def has_failed(turn_id: UUID, chat: ChatDriver) -> bool:
    """Whether the runner of a turn has given up."""
    live = runtime.find_turn(turn_id)
    if live is None or live.runner is None:
        return chat.sink.find("turn_end", turn_id=str(turn_id)) is not None
    return live.runner.failure is not None


@pytest.mark.parametrize("part", [CALL_STARTS, CALL_ENDS])
async def test_what_the_database_never_takes_interrupts_the_turn_and_says_what_may_have_happened(
    chat: ChatDriver,
    fake_tools: FakeTools,
    faulty_database: FaultyDatabase,
    monkeypatch: pytest.MonkeyPatch,
    settings: Any,
    solitary: str,
    part: str,
):
    monkeypatch.setattr(write_queue, "PATIENCE", 0.2)
    settings.TURNS_PARK_AFTER = 2
    calls = {
        CALL_STARTS: [call("b", "quick"), call("a", solitary)],
        CALL_ENDS: [call("a", "quick"), call("b", "held", gate="never")],
    }
    for number in range(2):
        faulty_database.lose_statement(part, times=10**6)
        chat.use_script(calls[part], [text("Unheard.")])
        turn_id = await chat.say(f"try {number}")
        await eventually(partial(has_failed, turn_id, chat))
        faulty_database.heal()
        turn = await chat.ended(turn_id)
        assert (turn.status, turn.error_code) == ("interrupted", "not_stored")
        told = chat.sink.find("error", turn_id=str(turn.pk))
        assert "may have taken effect" in told["message"]
        assert "hunter2" not in str(chat.sink.events)
        made = (await chat.calls(turn.pk))["a"]
        if part == CALL_ENDS:  # known all the time, and stored with the end of the turn
            assert (made.status, made.disposition) == ("succeeded", "settled")
        else:
            assert (made.status, made.disposition) == ("not_started", "not_started")
    assert (await in_database(lambda: Conversation.objects.get(pk=chat.id))).parked_at is None
    causes = await in_database(lambda: set(Repair.objects.values_list("cause", flat=True)))
    assert causes == ({"error"} if part == CALL_STARTS else set())
    model = chat.use_script([text("Going on.")])
    received = await services.continue_turn(turn_id=turn.pk, user=chat.user)
    assert (await chat.ended(received.turn_id)).status == "completed"
    assert "an internal error ended it" in str(model.requests[0].messages[-1])


async def test_a_cancel_counts_although_the_database_did_not_take_what_was_done(
    chat: ChatDriver,
    fake_tools: FakeTools,
    faulty_database: FaultyDatabase,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(write_queue, "PATIENCE", 0.2)
    faulty_database.lose_statement(CALL_ENDS, times=10**6)
    chat.use_script([call("a", "quick"), call("b", "held", gate="never")], [text("Unheard.")])
    turn_id = await chat.say()
    await eventually(partial(has_failed, turn_id, chat))
    assert (await chat.cancel(turn_id)).outcome == "accepted"
    faulty_database.heal()
    turn = await chat.ended(turn_id)
    assert (turn.status, turn.ended_by_reason, turn.error_code) == ("cancelled", "user", "")
    assert (await chat.calls(turn_id))["a"].status == "succeeded"
    request = await in_database(lambda: CancelRequest.objects.get(turn=turn_id))
    assert request.outcome == "cancelled"


async def test_ends_of_calls_and_of_their_turn_are_there_once_though_no_answer_comes(
    chat: ChatDriver, fake_tools: FakeTools, faulty_database: FaultyDatabase
):
    names = [f"c{number}" for number in range(4)]
    turn_id = await chat.begin(
        [call(name, "held", gate="shared") for name in names], [text("Unheard.")], running=[*names]
    )
    faulty_database.lose_commit(CALL_ENDS, times=2)
    faulty_database.lose_commit(TURN_ENDS, times=1)
    fake_tools.open("shared")
    await chat.cancel(turn_id)
    ended = Turn.objects.filter(pk=turn_id, status__in=("cancelled", "completed"))
    await eventually(partial(in_database, ended.exists))
    assert faulty_database.lost  # once where the cancel was quicker: one write has all of it then
    told = Event.objects.filter(turn=turn_id).order_by("seq").values_list("seq", "type")
    seqs, types = zip(*await in_database(lambda: list(told)), strict=True)
    assert len(set(seqs)) == len(seqs)
    assert (types.count("tool_result"), types.count("turn_end")) == (4, 1)
    assert types.index("turn_end") > max(
        at for at, name in enumerate(types) if name == "tool_result"
    )
    requests = await in_database(lambda: list(CancelRequest.objects.filter(turn=turn_id)))
    assert all(request.settled_at for request in requests)


async def test_an_owner_that_lost_its_lease_repeats_nothing(
    chat: ChatDriver, fake_tools: FakeTools, faulty_database: FaultyDatabase, ada: AbstractUser
):
    turn_id = await chat.begin([call("a", "held")], [text("Unheard.")])
    faulty_database.lose_statement(
        CALL_ENDS
    )  # of whoever writes it first: that is who finds the turn
    ownership = (await runtime.ensure_started()).ownership
    ownership.lease._lose()
    fake_tools.open("a")
    turn = await chat.ended(turn_id)
    assert (turn.status, turn.error_code) == ("interrupted", "stood_still")


async def test_the_log_of_a_repeated_write_names_its_turn(
    chat: ChatDriver,
    fake_tools: FakeTools,
    saboteur: Saboteur,
    faulty_database: FaultyDatabase,
    caplog: pytest.LogCaptureFixture,
):
    caplog.handler.setFormatter(KeyValueFormatter())
    saboteur.faults.append(("lose_statement", CALLS_PROPOSED, 1))
    play_two_calls(chat)
    turn_id = await chat.say()
    await assert_is_whole(chat, turn_id, fake_tools)
    (line,) = [line for line in caplog.text.splitlines() if "is asked again" in line]
    assert f"turn_id={turn_id}" in line
