"""Limits of calls and turns that hold and move while they run: T1, T9, T10, T11, A3, A4."""

import asyncio
from functools import partial
from uuid import UUID

import pytest
from asgiref.sync import async_to_sync, sync_to_async

from governance import services as governance_services
from governance.runtime import get_executor
from tests.support import eventually
from tests.turns.row_factory import RowFactory
from tests.turns.support import (
    ChatDriver,
    FakeTools,
    find_live_call,
    in_database,
    row,
    run_out_of_time,
)
from turns import selectors, services
from turns.core.repairs import violations
from turns.events import sinks
from turns.exceptions import MessageRejected
from turns.models import DeadlineOrder, Process, Turn
from turns.running import runtime
from turns.running.write_queue import Urgency
from turns.services import OpOutcome
from turns.testing import call, gate, text

pytestmark = pytest.mark.django_db(transaction=True)


def limited(name: str, tool: str, milliseconds: float, **input):
    """A call that asks for a limit of its own."""
    return call(name, tool, _meta={"timeout_ms": milliseconds}, **input)


async def set_deadline(chat: ChatDriver, turn_id, tool_id: str, **how) -> services.DeadlineReceipt:
    return await services.set_deadline(
        turn_id=turn_id, tool_id=tool_id, **{"user": chat.user, **how}
    )


@pytest.mark.usefixtures("without_workspace")
async def test_a_call_past_its_limit_is_answered_and_the_turn_goes_on(
    chat: ChatDriver, fake_tools: FakeTools
):
    model = chat.use_script(
        [limited("a", "held", 60), call("b", "quick", text="real"), limited("c", "stubborn", 60)],
        [text("I will try something smaller.")],
    )
    turn = await chat.run()
    assert turn.status == "completed"
    calls = await chat.calls(turn.pk)
    assert {n: (c.status, c.disposition) for n, c in calls.items()} == {
        "a": ("timed_out", "settled"),
        "b": ("succeeded", "settled"),
        "c": ("abandoned", "indeterminate"),
    }
    assert {calls[n].error_type for n in "ac"} == {"timeout"}
    assert (calls["a"].timeout_ms, calls["a"].timeout_source) == (60, "hint")
    read = [block.content for block in model.requests[1].messages[-1].tool_results]
    assert [result.partition("] ")[0] for result in read] == ["[TIMEOUT", "real", "[TIMEOUT"]
    for name, tool in (("a", "held"), ("c", "stubborn")):
        told = chat.sink.find("tool_timeout", tool_id=name)
        assert (told["tool_name"], told["timeout_ms"]) == (tool, 60)


async def test_a_late_result_is_recorded_and_never_shown(chat: ChatDriver, fake_tools: FakeTools):
    turn_id = await chat.begin(
        [call("a", "stubborn"), call("b", "blocked")], [text("Fine.")], running=["a", "b"]
    )
    for name in "ab":
        await set_deadline(chat, turn_id, name, timeout_ms=30)
    turn = await chat.ended(turn_id)
    shown = await chat.history()
    told = chat.sink.stored(chat.id)
    fake_tools.open("a")
    fake_tools.open("b")

    async def late():
        calls = await chat.calls(turn.pk)
        return all(made.late_kind for made in calls.values()) and calls

    for name, made in (await eventually(late)).items():
        assert (made.status, made.late_kind) == ("abandoned", "returned")
        assert made.late_text == f"{name} finished late"
        assert made.late_after_ms >= 0
        assert made.result.startswith("[TIMEOUT]")
    for name in "ab":
        await chat.sink.until("tool_settled", tool_id=name, kind="returned")
    assert await chat.history() == shown
    later = chat.sink.stored(chat.id)[len(told) :]
    assert {event["type"] for event in later} == {"tool_settled"}
    await chat.check()


async def test_a_shorter_limit_is_obeyed_by_the_running_call(chat: ChatDriver):
    turn_id = await chat.begin([call("a", "held")], [text("Fine.")])
    receipt = await set_deadline(chat, turn_id, "a", timeout_ms=50)
    assert (receipt.outcome, receipt.timeout_ms, receipt.timeout_source) == (
        OpOutcome.ACCEPTED,
        50,
        "manual",
    )
    assert (await chat.ended(turn_id)).status == "completed"
    made = (await chat.calls(turn_id))["a"]
    assert (made.status, made.timeout_ms, made.timeout_source) == ("timed_out", 50, "manual")
    (change,) = made.deadline_changes
    assert change["at"]
    assert {k: change[k] for k in ("from_ms", "to_ms", "source", "by")} == {
        "from_ms": 120_000,
        "to_ms": 50,
        "source": "manual",
        "by": "ada",
    }
    told = chat.sink.find("tool_deadline", tool_id="a")
    assert (told["timeout_ms"], told["changed_by"]) == (50, "ada")


@pytest.fixture
def silent_for(operator):
    """Let the calls of a tool be silent for no longer than this."""

    async def limit(tool_name: str, idle_timeout_ms: int) -> None:
        values = {"timeout_ms": 600_000, "idle_timeout_ms": idle_timeout_ms}
        save = partial(
            governance_services.save_tool_policy, tool_name=tool_name, values=values, by=operator
        )
        await in_database(save)

    return limit


@pytest.mark.usefixtures("without_workspace")
@pytest.mark.parametrize(("tool", "status"), [("held", "timed_out"), ("stubborn", "abandoned")])
async def test_a_call_cut_by_its_idle_limit_says_so_everywhere(
    chat: ChatDriver, fake_tools: FakeTools, silent_for, tool, status
):
    await silent_for(tool, 60)
    chat.use_script([call("a", tool)], [text("Fine.")])
    turn_id = await chat.say()
    turn = await chat.ended(turn_id)
    made = (await chat.calls(turn_id))["a"]
    assert (turn.status, made.status, made.limit_reached) == ("completed", status, "idle")
    begun = chat.sink.find("tool_start", tool_id="a")
    assert (begun["timeout_ms"], begun["idle_timeout_ms"]) == (600_000, 60)
    ran_out = chat.sink.find("tool_timeout", tool_id="a")
    assert (ran_out["timeout_ms"], ran_out["limit_reached"]) == (60, "idle")
    assert chat.sink.find("tool_result", tool_id="a")["limit_reached"] == "idle"
    (shown,) = (await selectors.get_turn(turn_id=turn_id, user=chat.user))["calls"]
    assert (shown["idle_timeout_ms"], shown["limit_reached"]) == (60, "idle")
    fake_tools.open("a")


async def test_a_call_cut_by_its_own_limit_says_that(chat: ChatDriver):
    chat.use_script([limited("a", "held", 50)], [text("Fine.")])
    turn_id = await chat.say()
    await chat.ended(turn_id)
    assert (await chat.calls(turn_id))["a"].limit_reached == "total"
    ran_out = chat.sink.find("tool_timeout", tool_id="a")
    assert (ran_out["timeout_ms"], ran_out["limit_reached"]) == (50, "total")
    assert chat.sink.find("tool_start", tool_id="a")["idle_timeout_ms"] is None


async def test_a_call_that_nothing_cut_names_no_limit(chat: ChatDriver):
    await chat.play([call("a", "quick")], [text("Fine.")])
    assert chat.sink.find("tool_result", tool_id="a")["limit_reached"] is None


async def test_a_live_change_of_the_idle_limit_is_recorded_as_one(
    chat: ChatDriver, fake_tools: FakeTools, silent_for
):
    await silent_for("held", 50_000)
    turn_id = await chat.begin([call("a", "held")], [text("Fine.")])
    await set_deadline(chat, turn_id, "a", timeout_ms=700_000)
    await chat.sink.until("tool_deadline", timeout_ms=700_000)
    await silent_for("held", 20_000)
    told = await chat.sink.until("tool_deadline", idle_timeout_ms=20_000)
    assert (told["timeout_ms"], told["timeout_source"]) == (700_000, "manual"), (
        "set by hand, it stays"
    )
    assert told["changed_by"] == "olga"
    made = (await chat.calls(turn_id))["a"]
    _by_hand, change = made.deadline_changes
    assert (change["from_ms"], change["to_ms"]) == (700_000, 700_000)
    assert (change["from_idle_ms"], change["to_idle_ms"]) == (50_000, 20_000)
    assert (made.timeout_ms, made.timeout_source) == (700_000, "manual")
    assert made.idle_timeout_ms == 20_000
    fake_tools.open("a")
    await chat.ended(turn_id)


async def test_a_call_that_ended_with_its_turns_time_names_that_limit(chat: ChatDriver):
    turn_id = await chat.begin([call("a", "held")], [text("never asked")])
    run_out_of_time(turn_id)
    assert (await chat.ended(turn_id)).status == "timed_out"
    assert chat.sink.find("tool_result", tool_id="a")["limit_reached"] == "turn"
    assert chat.sink.find("tool_timeout", tool_id="a") is None


async def test_several_changes_at_once_are_all_recorded(chat: ChatDriver, fake_tools: FakeTools):
    chat.use_script([limited("a", "held", 600_000)], [text("Fine.")])
    turn_id = await chat.say()
    await eventually(lambda: "a" in fake_tools.started)  # told as started a little earlier
    live = find_live_call(turn_id, "a")
    executor = await get_executor()
    for seconds in (700, 800, 900):
        executor.set_deadline(live, seconds, by="ada")
    fake_tools.open("a")
    await chat.ended(turn_id)
    moves = [(c["from_ms"], c["to_ms"]) for c in (await chat.calls(turn_id))["a"].deadline_changes]
    assert moves == [(600_000, 700_000), (700_000, 800_000), (800_000, 900_000)]
    told = [e["timeout_ms"] for e in chat.sink.events if e["type"] == "tool_deadline"]
    assert told == [700_000, 800_000, 900_000]


async def test_a_longer_limit_lets_the_call_finish(chat: ChatDriver, fake_tools: FakeTools):
    turn_id = await chat.begin([limited("a", "held", 600_000)], [text("Fine.")])
    receipt = await set_deadline(chat, turn_id, "a", extend_ms=60_000)
    assert receipt.timeout_ms == 660_000
    await chat.sink.until("tool_deadline", tool_id="a", timeout_ms=660_000)
    live = find_live_call(turn_id, "a")
    assert live.limits.deadline.time_left > 600, "the timer has moved, not only what people see"
    fake_tools.open("a")
    await chat.ended(turn_id)
    assert (await chat.calls(turn_id))["a"].status == "succeeded"


async def test_a_limit_set_by_a_sync_view_is_stored_when_its_request_is_over(
    chat: ChatDriver, fake_tools: FakeTools
):
    turn_id = await chat.begin([call("a", "held")], [text("Fine.")])
    view = async_to_sync(partial(set_deadline, chat, turn_id, "a", extend_ms=60_000))
    running = await runtime.ensure_started()
    async with running.lock.acquired(Urgency.WORK):  # nothing is written until it has answered
        receipt = await sync_to_async(view)()
    moved = await chat.sink.until("tool_deadline", tool_id="a")
    assert moved["timeout_ms"] == receipt.timeout_ms == (await chat.calls(turn_id))["a"].timeout_ms
    settled = partial(in_database, lambda: DeadlineOrder.objects.get().settled_at)
    await eventually(settled)
    fake_tools.open("a")
    await chat.ended(turn_id)


async def test_a_limit_is_capped_by_the_ceiling(chat: ChatDriver, fake_tools: FakeTools, settings):
    settings.GOVERNANCE_TIMEOUT_CEILING = 600.0
    turn_id = await chat.begin([limited("a", "held", 650_000)], [text("Fine.")])
    made = (await chat.calls(turn_id))["a"]
    assert (made.timeout_ms, made.asked_timeout_ms) == (600_000, 650_000)
    assert (await set_deadline(chat, turn_id, "a", timeout_ms=3_600_000)).timeout_ms == 600_000
    assert (await set_deadline(chat, turn_id, "a", extend_ms=10**15)).timeout_ms == 600_000
    fake_tools.open("a")
    await chat.ended(turn_id)


async def test_without_a_limit_there_is_nothing_to_extend(
    chat: ChatDriver, fake_tools: FakeTools, settings
):
    settings.GOVERNANCE_TIMEOUT_CEILING = 0
    turn_id = await chat.begin([limited("a", "held", 0)], [text("Fine.")])
    receipt = await set_deadline(chat, turn_id, "a", extend_ms=5_000)
    assert (receipt.outcome, receipt.timeout_ms) == (OpOutcome.ACCEPTED, None)
    receipt = await set_deadline(chat, turn_id, "a", timeout_ms=30_000)
    assert (receipt.outcome, receipt.timeout_ms) == (OpOutcome.ACCEPTED, 30_000)
    fake_tools.open("a")
    await chat.ended(turn_id)


@pytest.mark.parametrize(
    "wrong", [{}, {"timeout_ms": 0}, {"extend_ms": -1}, {"timeout_ms": 1, "extend_ms": 1}]
)
async def test_a_senseless_limit_is_refused(chat: ChatDriver, fake_tools: FakeTools, wrong):
    turn_id = await chat.begin([call("a", "held")], [text("Fine.")])
    with pytest.raises(MessageRejected):
        await set_deadline(chat, turn_id, "a", **wrong)
    fake_tools.open("a")
    await chat.ended(turn_id)


async def test_only_a_running_call_has_a_limit_to_move(chat: ChatDriver, fake_tools: FakeTools):
    turn_id = await chat.begin(
        [call("a", "quick"), call("b", "held")], [text("Fine.")], running=["b"]
    )
    await chat.sink.until("tool_result", tool_id="a")
    finished = await set_deadline(chat, turn_id, "a", timeout_ms=5)
    unknown = await set_deadline(chat, turn_id, "nobody", timeout_ms=5)
    assert (finished.outcome, unknown.outcome) == (OpOutcome.ALREADY_FINISHED, OpOutcome.NOT_FOUND)
    fake_tools.open("b")
    await chat.ended(turn_id)


async def test_a_repeated_operation_moves_the_limit_once(chat: ChatDriver, fake_tools: FakeTools):
    turn_id = await chat.begin([limited("a", "held", 600_000)], [text("Fine.")])
    extend = (set_deadline(chat, turn_id, "a", extend_ms=5_000, op_id="op") for _ in range(3))
    receipts = await asyncio.gather(*extend)
    assert {r.outcome for r in receipts} == {OpOutcome.ACCEPTED}
    live = find_live_call(turn_id, "a")
    assert live.timeout == 605.0
    fake_tools.open("a")
    await chat.ended(turn_id)
    again = await set_deadline(chat, turn_id, "a", extend_ms=5_000, op_id="op")
    assert again.outcome is OpOutcome.ACCEPTED
    assert len((await chat.calls(turn_id))["a"].deadline_changes) == 1


async def test_an_operation_id_of_an_earlier_turn_does_not_stand_for_a_later_limit(
    chat: ChatDriver, fake_tools: FakeTools
):
    for name in ("a", "b"):
        turn_id = await chat.begin([limited(name, "held", 600_000)], [text("Fine.")])
        moved = await set_deadline(chat, turn_id, name, timeout_ms=700_000, op_id="same")
        assert (moved.outcome, moved.timeout_ms) == (OpOutcome.ACCEPTED, 700_000)
        fake_tools.open(name)
        await chat.ended(turn_id)


async def test_an_edit_of_an_administrator_is_obeyed_by_the_running_call_and_the_next(
    chat: ChatDriver, operator
):
    turn_id = await chat.begin([call("a", "held")], [call("b", "held")], [text("Fine.")])
    await in_database(
        lambda: governance_services.save_tool_policy(
            tool_name="held", values={"timeout_ms": 80}, by=operator
        )
    )
    assert (await chat.ended(turn_id)).status == "completed"
    calls = await chat.calls(turn_id)
    assert {made.status for made in calls.values()} == {"timed_out"}
    (change,) = calls["a"].deadline_changes
    assert (change["from_ms"], change["to_ms"], change["source"]) == (120_000, 80, "override")
    assert (calls["b"].timeout_ms, calls["b"].timeout_source) == (80, "override")
    assert calls["b"].deadline_changes == []
    told = chat.sink.find("tool_deadline", tool_id="a")
    assert (told["timeout_ms"], told["timeout_source"]) == (80, "override")
    assert told["changed_by"] == change["by"] == "olga"


async def test_a_deleted_override_gives_way_to_the_next_level(
    chat: ChatDriver, fake_tools: FakeTools, operator
):
    def edit(function, **values):
        return in_database(lambda: function(tool_name="held", by=operator, **values))

    await edit(governance_services.save_tool_policy, values={"timeout_ms": 77_000})
    turn_id = await chat.begin([call("a", "held")], [text("Fine.")])
    assert (await chat.calls(turn_id))["a"].timeout_source == "override"
    await edit(governance_services.delete_tool_policy)
    told = await chat.sink.until("tool_deadline", tool_id="a")
    assert (told["timeout_ms"], told["timeout_source"]) == (120_000, "built_in")
    assert told["changed_by"] == "olga"
    fake_tools.open("a")
    await chat.ended(turn_id)


async def test_a_turn_out_of_time_says_so_and_not_its_tool(chat: ChatDriver, settings):
    settings.TURNS_TURN_TIMEOUT = 600.0
    model = chat.use_script(
        [text("Hm."), call("a", "held"), call("b", "stubborn")], [text("never")]
    )
    turn_id = await chat.say()
    await chat.running(turn_id, "a", "b")
    assert runtime.find_turn(turn_id).runner.clock.time_left <= 600
    run_out_of_time(turn_id)
    turn = await chat.ended(turn_id)
    assert (turn.status, turn.ended_by_reason, turn.ended_by_source) == (
        "timed_out",
        "timeout",
        "policy",
    )
    assert turn.turn_timeout_ms == 600_000
    abort = chat.sink.find("turn_abort", turn_id=str(turn.pk))
    assert (abort["reason"], abort["source"]) == ("timeout", "policy")
    calls = await chat.calls(turn.pk)
    assert {made.status for made in calls.values()} == {"cancelled", "abandoned"}
    assert "because the turn ran out of time" in calls["a"].result
    assert not chat.sink.find("tool_timeout")
    assert len(model.requests) == 1


async def test_a_turn_out_of_time_while_the_model_speaks_keeps_its_text(chat: ChatDriver):
    pause = gate()
    chat.use_script([text("So far"), pause])
    turn_id = await chat.say()
    await pause.reached.wait()
    run_out_of_time(turn_id)
    assert (await chat.ended(turn_id)).status == "timed_out"
    assert (await chat.history())[-1].texts[0].text == "So far"


@pytest.mark.parametrize("none", [0, None])
async def test_a_turn_may_have_no_limit(chat: ChatDriver, settings, none):
    settings.TURNS_TURN_TIMEOUT = none
    turn = await chat.play([text("Fine.")])
    assert (turn.status, turn.turn_timeout_ms) == ("completed", None)


async def test_a_turn_ends_at_its_step_limit(chat: ChatDriver, settings):
    settings.TURNS_STEP_LIMIT = 2
    model = chat.use_script(
        [call("a", "quick", text="1"), call("b", "quick", text="2")],
        [call("c", "quick", text="3")],
        [text("never")],
    )
    turn = await chat.run()
    assert (turn.status, turn.error_code) == ("failed", "step_limit")
    assert (turn.steps, turn.tool_call_count) == (2, 3)
    told = chat.sink.find("error", turn_id=str(turn.pk))
    assert told["code"] == "step_limit"
    assert len(model.requests) == 2
    await chat.history()


async def test_the_same_call_with_the_same_result_is_warned_of_and_then_halted(
    chat: ChatDriver, settings
):
    settings.TURNS_LOOP_WARN_AFTER, settings.TURNS_LOOP_HALT_AFTER = 2, 3
    model = chat.use_script(
        *[[call(f"c{n}", "quick", text="same")] for n in (1, 2)],
        [call("c3", "quick", text="same"), call("c4", "alone"), call("c5", "alone")],
        [text("never said")],
    )
    turn = await chat.run()
    assert (turn.status, turn.ended_by_reason) == ("cancelled", "loop")
    assert len(model.requests) == 3
    calls = await chat.calls(turn.pk)
    assert "[LOOP]" not in calls["c1"].result
    assert calls["c2"].result.startswith("same\n[LOOP]")
    assert "halted" in calls["c3"].result
    assert {calls[n].status for n in ("c4", "c5")} <= {"not_started", "cancelled"}
    assert violations(await chat.history()) == []
    assert chat.sink.find("turn_abort", reason="loop")


async def test_an_exempt_tool_or_another_result_is_no_loop(chat: ChatDriver, settings):
    settings.TURNS_LOOP_WARN_AFTER, settings.TURNS_LOOP_HALT_AFTER = 2, 3
    turn = await chat.play(
        *[[call(f"e{n}", "exempt")] for n in range(4)],
        *[[call(f"q{n}", "quick", text=f"value {n}")] for n in range(4)],
        [text("Fine.")],
    )
    assert turn.status == "completed"
    assert not any("[LOOP]" in made.result for made in (await chat.calls(turn.pk)).values())


async def test_the_loop_detector_can_be_switched_off(chat: ChatDriver, settings):
    settings.TURNS_LOOP_WARN_AFTER = None
    chat.use_script(*[[call(f"c{n}", "quick", text="same")] for n in range(9)], [text("Fine.")])
    assert (await chat.run()).status == "completed"


async def test_a_tool_that_raises_tells_the_kind_of_error_and_no_secret(chat: ChatDriver):
    model = chat.use_script(
        [call("a", "failing"), call("b", "quick"), call("c", "nothing")], [text("!")]
    )
    turn = await chat.run()
    assert turn.status == "completed"
    calls = await chat.calls(turn.pk)
    assert (calls["a"].error_type, calls["a"].status) == ("execution_error", "failed")
    assert calls["c"].error_type == "unknown_tool"
    assert calls["b"].status == "succeeded"
    read = model.requests[1].messages[-1].tool_results[0].content
    assert "RuntimeError" in read
    assert "secret" not in read
    assert not any("secret" in str(event) for event in chat.sink.events)
    assert (await row(Turn, pk=turn.pk)).tool_call_count == 3


async def test_an_order_of_another_process_is_carried_out_once(
    chat: ChatDriver, fake_tools: FakeTools
):
    turn_id = await chat.begin([limited("a", "held", 600_000)], [text("Fine.")])
    order = {"turn_id": turn_id, "tool_id": "a", "extend_ms": 5_000, "by_name": "eve"}
    await in_database(lambda: DeadlineOrder.objects.create(**order))
    supervisor = (await runtime.ensure_started()).supervisor
    await asyncio.gather(*(supervisor.check_requests() for _ in range(3)))
    told = await chat.sink.until("tool_deadline", tool_id="a")
    assert (told["timeout_ms"], told["changed_by"]) == (605_000, "eve")
    await supervisor.check_requests()
    assert find_live_call(turn_id, "a").timeout == 605.0
    fake_tools.open("a")
    await chat.ended(turn_id)


async def test_a_limit_of_a_call_in_another_process_is_ordered_there(chat: ChatDriver, settings):
    settings.GOVERNANCE_TIMEOUT_CEILING = 60.0
    await runtime.ensure_started()
    factory = await in_database(lambda: RowFactory(chat.user))
    theirs = await in_database(
        lambda: factory.turn("running", owner=Process.objects.create(host="elsewhere", pid=1))
    )
    await in_database(lambda: factory.call(theirs, "a", "running", timeout_ms=20_000))
    await in_database(lambda: factory.call(theirs, "b", "succeeded", timeout_ms=20_000))
    moved = await set_deadline(chat, theirs.pk, "a", extend_ms=5_000, op_id="op")
    again = await set_deadline(chat, theirs.pk, "a", extend_ms=5_000, op_id="op")
    capped = await set_deadline(chat, theirs.pk, "a", timeout_ms=3_600_000)
    late = await set_deadline(chat, theirs.pk, "b", timeout_ms=5)
    assert (moved.outcome, moved.timeout_ms) == (OpOutcome.ACCEPTED, 25_000)
    assert (again.outcome, capped.timeout_ms) == (OpOutcome.ACCEPTED, 60_000)
    assert late.outcome is OpOutcome.ALREADY_FINISHED
    ordered = await in_database(
        lambda: list(DeadlineOrder.objects.values_list("extend_ms", "timeout_ms", "by_name"))
    )
    assert ordered == [(5_000, None, "ada"), (None, 3_600_000, "ada")]


async def test_a_limit_of_a_call_that_waits_counts_from_its_start(
    chat: ChatDriver, fake_tools: FakeTools
):
    turn_id = await chat.begin([call("a", "alone"), call("b", "alone")], [text("Done.")])
    receipt = await set_deadline(chat, turn_id, "b", timeout_ms=30_000)
    again = await set_deadline(chat, turn_id, "b", extend_ms=5_000, op_id="op")
    assert (receipt.outcome, receipt.timeout_ms) == (OpOutcome.ACCEPTED, 30_000)
    assert (again.timeout_ms, again.timeout_source) == (35_000, "manual")
    assert chat.sink.find("tool_deadline", tool_id="b") is None
    fake_tools.open("a")
    told = await chat.sink.until("tool_deadline", tool_id="b")
    assert (told["timeout_ms"], told["changed_by"]) == (35_000, "ada")
    fake_tools.open("b")
    await chat.ended(turn_id)
    assert (await chat.calls(turn_id))["b"].timeout_ms == 35_000


async def test_a_limit_of_a_call_that_waits_in_another_process_is_ordered_there(chat: ChatDriver):
    await runtime.ensure_started()
    factory = await in_database(lambda: RowFactory(chat.user))
    theirs = await in_database(
        lambda: factory.turn("running", owner=Process.objects.create(host="elsewhere", pid=1))
    )
    await in_database(lambda: factory.call(theirs, "a", "pending"))
    receipt = await set_deadline(chat, theirs.pk, "a", timeout_ms=30_000)
    assert (receipt.outcome, receipt.timeout_ms) == (OpOutcome.ACCEPTED, 30_000)
    assert await in_database(DeadlineOrder.objects.count) == 1


class Meddler:
    """A sink that asks for another limit as soon as people see the call."""

    def __init__(self, chat: ChatDriver) -> None:
        self.chat = chat
        self.receipts: list[services.DeadlineReceipt] = []

    async def publish(self, conversation_id, event) -> None:
        if event["type"] == "message" and not self.receipts:
            turn_id = UUID(event["turn_id"])
            self.receipts.append(await set_deadline(self.chat, turn_id, "a", timeout_ms=30_000))


async def test_an_order_for_a_call_that_is_about_to_begin_is_not_lost(
    chat: ChatDriver, fake_tools: FakeTools, settings
):
    settings.TURNS_POLL_INTERVAL = 0.05
    chat.use_script([call("a", "held")], [text("Fine.")])
    meddler = Meddler(chat)
    sinks.register(meddler)
    try:
        turn_id = await chat.say()
        told = await chat.sink.until("tool_deadline", tool_id="a")
    finally:
        sinks.unregister(meddler)
    assert (told["timeout_ms"], told["changed_by"]) == (30_000, "ada")
    assert meddler.receipts[0].outcome is OpOutcome.ACCEPTED
    fake_tools.open("a")
    await chat.ended(turn_id)


async def test_an_order_for_a_call_that_has_ended_is_settled(
    chat: ChatDriver, fake_tools: FakeTools
):
    turn_id = await chat.begin(
        [call("a", "quick")], [call("b", "held")], [text("Fine.")], running=["b"]
    )
    order = {"turn_id": turn_id, "extend_ms": 5_000}
    await in_database(lambda: DeadlineOrder.objects.create(tool_id="a", **order))
    await in_database(lambda: DeadlineOrder.objects.create(tool_id="unheard of", **order))
    await (await runtime.ensure_started()).supervisor.check_requests()
    unsettled = DeadlineOrder.objects.filter(settled_at=None)

    async def settled() -> bool:
        return not await in_database(unsettled.exists)

    await eventually(settled)
    fake_tools.open("b")
    await chat.ended(turn_id)
