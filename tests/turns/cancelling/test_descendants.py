"""Cancelling a turn reaches all that it has started, at once. Cancelling a sub-agent does not end its parent (C10)."""

import threading
import time
from datetime import timedelta

import pytest
from django.db import DatabaseError, connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from governance import CancelReason, CancelSource
from governance.db import run_in_db_thread
from tests.support import PATIENCE, eventually, with_room
from tests.turns.row_factory import RowFactory
from tests.turns.support import ChatDriver, in_database, row
from tests.turns.tools.scripted_agents import (
    ask,
    child,
    ended,
    request_of,
    running,
    spawn,
    use_scripts,
)
from turns import services
from turns.cancelling import cancel_requests, commands, descendants
from turns.cancelling.commands import CancelCommand
from turns.core.turns import TurnEnding, TurnStatus
from turns.endings import recovery, turn_endings
from turns.events import log
from turns.history.reports import undelivered
from turns.models import CancelRequest, Conversation, Turn
from turns.processes import process_registry
from turns.running import runtime
from turns.testing import call, gate, text
from turns.tools import children
from turns.tools.children import ChildRefused, Origin

pytestmark = pytest.mark.django_db(transaction=True)


def three_deep(chat: ChatDriver, **more):
    """A turn whose sub-agent has a sub-agent, which holds."""
    return use_scripts(
        chat,
        go=[[ask("a1", "middle")], [text("Done.")]],
        middle=[[ask("a2", "leaf")], [text("m")]],
        leaf=[[call("c1", "held")], [text("l")]],
        **more,
    )


async def test_a_cancel_reaches_grandchildren_and_says_how_many(chat: ChatDriver):
    three_deep(chat)
    turn_id = await chat.say()
    leaf = await running("leaf")
    await chat.running(leaf.pk, "c1")

    receipt = await chat.cancel(turn_id)
    assert receipt.descendants == 2
    turn = await chat.ended(turn_id)
    assert turn.status == "cancelled"
    for message in ("middle", "leaf"):
        below = await ended(await child(message))
        assert (below.status, below.ended_by_reason, below.ended_by_source) == (
            "cancelled",
            "parent",
            "button",
        )
        assert below.ended_by_name == "ada"
        request = await request_of(below)
        assert (request.reason, request.outcome) == ("parent", "cancelled")
    assert (await chat.calls(leaf.pk))["c1"].status == "cancelled"
    assert (await chat.calls(turn_id))["a1"].status == "cancelled", "none was given up"
    assert (await chat.calls((await child("middle")).pk))["a2"].status == "cancelled"
    told = await chat.sink.until("turn_abort", turn_id=str(turn_id))
    assert (told["reason"], told["descendants"]) == ("user", 2)


async def test_one_that_does_not_stop_keeps_nobody_waiting(chat: ChatDriver, fake_tools):
    use_scripts(
        chat,
        go=[[ask("a1", "deaf one"), ask("a2", "good one")], [text("Done.")]],
        deaf_one=[[call("c1", "stubborn")], [text("d")]],
        good_one=[[call("c2", "held")], [text("g")]],
    )
    turn_id = await chat.say()
    await running("deaf one")
    await running("good one")
    await eventually(lambda: {"c1", "c2"} <= set(fake_tools.started))

    began = time.monotonic()
    await chat.cancel(turn_id)
    await chat.ended(turn_id)
    good = await ended(await child("good one"))
    took = time.monotonic() - began
    deaf = await ended(await child("deaf one"))
    assert (good.status, deaf.status) == ("cancelled", "cancelled")
    assert (await chat.calls(deaf.pk))["c1"].status == "abandoned"
    assert took < with_room(1.0)
    fake_tools.open("c1")


async def test_one_whose_request_cannot_be_stored_keeps_nobody_waiting(
    chat: ChatDriver, monkeypatch
):
    use_scripts(
        chat,
        go=[[ask("a1", "first"), ask("a2", "second")], [text("Done.")]],
        first=[[gate()]],
        second=[[gate()]],
    )
    turn_id = await chat.say()
    first, second = await running("first"), await running("second")
    broken = {first.pk}
    cancel_turns = cancel_requests.cancel_turns

    def fails_with_the_first(turns, cancellation, **how):
        if broken & {turn.pk for turn in turns}:
            raise DatabaseError("no")
        return cancel_turns(turns, cancellation, **how)

    monkeypatch.setattr(cancel_requests, "cancel_turns", fails_with_the_first)
    receipt = await chat.cancel(turn_id)
    assert receipt.descendants == 2  # both run here and obey without a request
    assert (await ended(second)).status == "cancelled"
    assert (await chat.ended(turn_id)).status == "cancelled"

    broken.clear()
    await run_in_db_thread(recovery.complete_endings)()
    await (await runtime.ensure_started()).supervisor.check_requests()
    assert (await ended(first)).ended_by_reason == "parent"


@pytest.mark.parametrize(
    "above",
    [
        ("cancelled", "completed"),
        ("running", "cancelled", "completed"),
        ("failed", *["completed"] * 3),
    ],
)
def test_whom_a_cascade_left_out_is_asked_later_although_its_parent_had_completed(ada, above):
    parent = root = None
    for status in above:
        parent = RowFactory(ada).turn(status, parent=parent, root=root)
        root = root or parent
    left_out = RowFactory(ada).turn("running", parent=parent, root=root, is_detached=True)
    asked_already = RowFactory(ada).turn("running", parent=parent, root=root)
    CancelRequest.objects.create(
        turn=asked_already, reason="parent", source="policy", requested_at=timezone.now()
    )
    goes_on = RowFactory(ada).turn("running", parent=RowFactory(ada).turn("completed"))
    assert descendants.complete().cancelled == 1
    for turn, status in (
        (left_out, "cancelling"),
        (asked_already, "running"),
        (goes_on, "running"),
    ):
        turn.refresh_from_db()
        assert turn.status == status


def test_one_that_could_not_be_asked_to_end_still_reports_though_those_below_it_were(
    ada, monkeypatch
):
    above, below = RowFactory(ada), RowFactory(ada)
    dug = below.turn("running", parent=above.turn("running"), is_detached=True)
    deeper = RowFactory(ada).turn("running", parent=dug)
    cancel_turns = cancel_requests.cancel_turns

    def fails_with_it(turns, cancellation, **how):
        if dug in turns:
            raise DatabaseError("no")
        return cancel_turns(turns, cancellation, **how)

    monkeypatch.setattr(cancel_requests, "cancel_turns", fails_with_it)
    assert children.cancel_session(above.id, dug.pk).cancelled == 1
    deeper.refresh_from_db()
    dug.refresh_from_db()
    assert (deeper.status, dug.status, dug.delivered_at) == ("cancelling", "running", None)


@pytest.mark.parametrize("asked", ["report", "end"])
def test_an_owner_that_writes_its_turn_meanwhile_keeps_no_request_from_it(ada, asked):
    above, below = RowFactory(ada), RowFactory(ada)
    parent = above.turn("running", owner=process_registry.register())
    Conversation.objects.filter(pk=below.id).update(parent=above.id)
    dug = below.turn("running", parent=parent, parent_tool_id="a1")
    is_writing = threading.Event()

    def write() -> None:
        with transaction.atomic():
            log.locked(below.id)
            is_writing.set()
            time.sleep(0.2)  # so that the other one is at its lock
            Turn.objects.filter(pk=dug.pk).update(steps=1)
        connection.close()

    writing = threading.Thread(target=write)
    writing.start()
    is_writing.wait(PATIENCE)
    if asked == "report":
        cascade = children.request_reports_of(parent.pk, "a1")
    else:
        cascade = children.cancel_session(above.id, dug.pk)
    writing.join(PATIENCE)
    assert cascade.cancelled == 1
    assert CancelRequest.objects.get(turn=dug).mode == ("report" if asked == "report" else "now")


def test_a_sub_agent_that_has_ended_just_before_its_call_is_out_of_time_reports(ada):
    above = RowFactory(ada)
    parent = above.turn("running", owner=process_registry.register())
    done, _cancelled = (
        RowFactory(ada).turn(status, parent=parent, parent_tool_id="a1")
        for status in ("completed", "cancelled")
    )
    children.request_reports_of(parent.pk, "a1")
    turn_endings.end_turn(parent.pk, TurnEnding(status=TurnStatus.COMPLETED))
    assert list(undelivered(above.id)) == [done]


def test_a_completed_turn_leaves_nobody_at_work_whom_it_should_have_waited_for(ada):
    above = RowFactory(ada)
    parent = above.turn("running", owner=process_registry.register())
    waited_for, detached = (
        RowFactory(ada).turn("running", parent=parent, is_detached=is_detached)
        for is_detached in (False, True)
    )
    turn_endings.end_turn(parent.pk, TurnEnding(status=TurnStatus.COMPLETED))
    waited_for.refresh_from_db()
    detached.refresh_from_db()
    assert (waited_for.status, detached.status) == ("cancelling", "running")
    assert CancelRequest.objects.get(turn=waited_for).reason == "parent"


async def test_one_that_waits_to_begin_never_begins(chat: ChatDriver, settings):
    settings.TURNS_MAX_LIVE = 1
    use_scripts(chat, go=[[spawn("s1", "dig"), call("c1", "held")]], dig=[[text("never")]])
    turn_id = await chat.say()
    dug = await child("dig", status="queued")

    receipt = await chat.cancel(turn_id)
    assert receipt.descendants == 1
    await chat.ended(turn_id)
    dug = await ended(dug)
    assert (dug.status, dug.started_at, dug.ended_by_reason) == ("cancelled", None, "parent")


async def test_nothing_is_started_once_the_cancel_is_stored(chat: ChatDriver):
    use_scripts(chat, go=[[call("c1", "stubborn")], [text("never")]])
    turn_id = await chat.say()
    await chat.running(turn_id, "c1")
    turn = await row(Turn, pk=turn_id)
    origin = Origin(turn_id=turn_id, epoch=turn.epoch, tool_id="a1", time_left=None)
    start = run_in_db_thread(children.start)
    await chat.cancel(turn_id)

    with pytest.raises(ChildRefused, match="being ended"):
        await start(origin, agent="", message="dig", is_detached=True)
    assert await in_database(Conversation.objects.count) == 1


async def test_a_new_owner_of_the_turn_makes_the_old_one_start_nothing(chat: ChatDriver):
    use_scripts(chat, go=[[call("c1", "held")], [text("on")]])
    turn_id = await chat.say()
    await chat.running(turn_id, "c1")
    origin = Origin(turn_id=turn_id, epoch=0, tool_id="a1", time_left=None)

    with pytest.raises(ChildRefused):
        await run_in_db_thread(children.start)(origin, agent="", message="dig", is_detached=True)
    await chat.cancel(turn_id)
    await chat.ended(turn_id)


async def test_cancelling_a_sub_agent_gives_its_parent_a_cancelled_result(chat: ChatDriver):
    use_scripts(
        chat,
        go=[[ask("a1", "dig")], [text("On without it.")]],
        dig=[[text("I have a lead."), call("c1", "held")]],
    )
    turn_id = await chat.say()
    dug = await running("dig")
    await chat.sink.until("tool_start", tool_id="c1")

    receipt = await chat.cancel(dug.pk)
    assert receipt.descendants == 0
    turn = await chat.ended(turn_id)
    result = (await chat.calls(turn_id))["a1"]
    assert (turn.status, result.status) == ("completed", "cancelled")
    assert (result.ended_by_reason, result.ended_by_source) == ("user", "button")
    assert result.result.startswith('[CANCELLED] Tool "sessions_ask" was cancelled by the user.')
    assert "I have a lead." in result.result
    await chat.history()


async def test_cancelling_the_call_cancels_its_sub_agent_alone(chat: ChatDriver):
    use_scripts(
        chat,
        go=[[ask("a1", "one"), ask("a2", "two")], [text("Two is enough.")]],
        one=[[call("c1", "held")]],
        two=[[call("c2", "held", gate="two")], [text("2")]],
    )
    turn_id = await chat.say()
    await running("one")
    await running("two")

    receipt = await chat.cancel_call(turn_id, "a1")
    assert receipt.descendants == 1
    assert (await ended(await child("one"))).ended_by_reason == "parent"
    two = await row(Turn, pk=(await child("two")).pk)
    assert two.status == "running"
    await chat.cancel(two.pk)
    turn = await chat.ended(turn_id)
    calls = await chat.calls(turn_id)
    assert (turn.status, calls["a1"].status, calls["a2"].status) == (
        "completed",
        "cancelled",
        "cancelled",
    )


@pytest.mark.parametrize(
    "ending",
    [
        TurnEnding(status=TurnStatus.FAILED, error_code="internal_error"),
        TurnEnding(status=TurnStatus.INTERRUPTED),
    ],
)
async def test_however_a_turn_ends_before_its_time_its_sub_agents_end_with_it(
    chat: ChatDriver, ending: TurnEnding
):
    use_scripts(chat, go=[[spawn("s1", "dig"), call("c1", "held")]], dig=[[gate()]])
    turn_id = await chat.say()
    dug = await running("dig")

    await run_in_db_thread(turn_endings.end_turn)(turn_id, ending)
    request = await request_of(dug)
    assert (request.reason, request.source) == ("parent", "policy")
    await (await runtime.ensure_started()).supervisor.check_requests()
    assert (await ended(dug)).status == "cancelled"


async def test_a_completed_turn_leaves_its_detached_sub_agents_at_work(
    chat: ChatDriver, fake_tools
):
    use_scripts(
        chat,
        go=[[spawn("s1", "dig")], [text("It digs.")]],
        dig=[[call("c1", "held")], [text("Gold.")]],
        **{"[SUB-AGENT]": [[text("It has found gold.")]]},
    )
    turn = await chat.run()
    dug = await running("dig")
    assert turn.status == "completed"
    assert not await in_database(CancelRequest.objects.exists)
    fake_tools.open("c1")
    assert (await ended(dug)).status == "completed"


async def test_an_operator_cancels_a_sub_agent_as_an_operator(chat: ChatDriver, operator):
    use_scripts(chat, go=[[ask("a1", "dig")], [text("On.")]], dig=[[gate()]])
    turn_id = await chat.say()
    dug = await running("dig")
    await chat.cancel(dug.pk, user=operator, source=CancelSource.ADMIN)

    assert (await ended(dug)).ended_by_reason == CancelReason.ADMIN
    await chat.ended(turn_id)


async def test_a_cancel_word_ends_what_works_in_the_background_if_nothing_else_does(
    chat: ChatDriver,
):
    use_scripts(
        chat,
        go=[[spawn("s1", "one"), spawn("s2", "two")], [text("They dig.")]],
        one=[[gate()]],
        two=[[gate()]],
        stop=[[text("There is nothing to stop.")]],
    )
    await chat.run()
    began = [await running("one"), await running("two")]
    one, two = sorted(began, key=lambda turn: turn.queued_at)  # they were spawned side by side
    received = await services.receive_message(
        conversation_id=chat.id, user=chat.user, text="stop", client_id="m1"
    )
    assert (received.cancelled, received.turn_id) == (True, one.pk)
    for turn in (one, two):
        turn = await ended(turn)
        assert (turn.status, turn.ended_by_reason, turn.ended_by_source) == (
            "cancelled",
            "user",
            "typed",
        )
    again = await services.receive_message(
        conversation_id=chat.id, user=chat.user, text="stop", client_id="m1"
    )
    assert (again.cancelled, again.turn_id) == (True, one.pk)
    assert await chat.say("stop") == one.pk, "an impatient second one"
    answer = await chat.sink.until("cancel_acknowledged", conversation_id=str(chat.id))
    assert (answer["text"], answer["turn_id"]) == (
        "Cancelled in the background: assistant, assistant.",
        str(turn.parent_id),
    )
    await chat.check()
    long_ago = two.queued_at - timedelta(hours=1)
    await run_in_db_thread(lambda: Turn.objects.update(ended_at=long_ago))()
    assert (await chat.run("stop")).status == "completed", "nothing is active any more"


def test_all_are_asked_with_as_many_queries_as_one(ada):
    """However many sub-agents a turn has, at whatever depth."""

    def queries_of_a_cancel(children: int) -> int:
        above = RowFactory(ada)
        parent = above.turn("running", owner=process_registry.register())
        for number in range(children):
            below = RowFactory(ada)
            dug = below.turn("running", parent=parent, owner=parent.owner)
            below.call(dug, f"c{number}", "running")
            deeper = RowFactory(ada)
            deeper.turn("running", parent=dug, owner=parent.owner)
        command = CancelCommand(user=ada, source=CancelSource.BUTTON)
        with CaptureQueriesContext(connection) as queries:
            receipt = commands.request_turn_cancel(parent.pk, command)
        assert (receipt.descendants, receipt.notifications.has_left_out) == (2 * children, False)
        assert set(Turn.objects.filter(parent__isnull=False).values_list("status", flat=True)) == {
            "cancelling"
        }
        stored = CancelRequest.objects.filter(reason="parent", running_tools=["quick"])
        assert stored.count() >= children
        return len(queries)

    one = queries_of_a_cancel(1)
    assert queries_of_a_cancel(20) == one


def test_a_cancel_is_accepted_although_a_sub_agent_is_being_written(ada):
    """It waits for nobody; whoever was left out is asked by itself right after."""
    if connection.vendor == "sqlite":
        pytest.skip("a writer holds the whole file")
    above, below = RowFactory(ada), RowFactory(ada)
    parent = above.turn("running", owner=process_registry.register())
    dug = below.turn("running", parent=parent)
    is_held, let_go = threading.Event(), threading.Event()

    def write() -> None:
        with transaction.atomic():
            log.locked(below.id)
            is_held.set()
            let_go.wait(20)
        connection.close()

    writing = threading.Thread(target=write)
    writing.start()
    is_held.wait(20)
    command = CancelCommand(user=ada, source=CancelSource.BUTTON)
    receipt = commands.request_turn_cancel(parent.pk, command)
    assert (receipt.status, receipt.descendants, receipt.notifications.has_left_out) == (
        "cancelling",
        1,
        True,
    )
    let_go.set()
    writing.join()
    assert commands.cancel_left_out(parent.pk).cancelled == 1
    dug.refresh_from_db()
    assert dug.status == "cancelling"
