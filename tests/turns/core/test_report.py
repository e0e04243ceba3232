"""A turn whose time is up may report what it has in one answer without tools. Its time is bounded (17)."""

import asyncio

import pytest

from governance import Cancellation, CancelReason, LoopDetector
from tests.support import PATIENCE, eventually, pass_time
from tests.turns.core.runner_harness import BY_USER, RunnerHarness, claimed
from turns.core.exceptions import ChatModelError
from turns.core.runner import REPORT_REQUEST
from turns.core.turns import TurnStatus
from turns.testing import call, failure, gate, text

TURN_TIMEOUT = 60.0
GRACE = 30.0


@pytest.fixture
async def harness():
    harness = RunnerHarness()
    yield harness
    await harness.close()


def start(harness, *replies, **options):
    options = {"turn": claimed(turn_timeout=TURN_TIMEOUT), "report_grace": GRACE, **options}
    return harness.start(*replies, **options)


async def run_out_of_time(harness, *replies, at, **options):
    """Run a turn whose time is up as soon as it is `at` a gate."""
    task, model = start(harness, *replies, **options)
    await reach(at)
    pass_time(TURN_TIMEOUT)
    return await ended(task), model


async def reach(pause):
    async with asyncio.timeout(PATIENCE):
        await pause.reached.wait()


async def ended(task):
    async with asyncio.timeout(PATIENCE):
        return await task


def last_words(harness):
    return harness.journal.replies[-1].message.texts[0].text


async def test_calls_are_ended_then_the_report_is_asked_for_without_tools(harness):
    task, model = start(
        harness, [text("Looking."), call("c1", "hold", name="a")], [text("I found one of three.")]
    )
    await harness.until_begun("a")
    pass_time(TURN_TIMEOUT)
    ending = await ended(task)

    assert (ending.status, ending.cancellation.reason) == (
        TurnStatus.TIMED_OUT,
        CancelReason.TIMEOUT,
    )
    assert harness.journal.outcomes["c1"].ended_by.reason is CancelReason.TIMEOUT
    assert last_words(harness) == "I found one of three."
    assert model.requests[1].tools == ()
    assert model.requests[1].messages[-1].texts[0].text == REPORT_REQUEST
    harness.assert_valid_history()


async def test_what_was_being_said_is_part_of_the_question(harness):
    pause = gate()
    ending, model = await run_out_of_time(
        harness, [text("So far I se"), pause], [text("That is all.")], at=pause
    )

    assert ending.status is TurnStatus.TIMED_OUT
    said, wanted = model.requests[1].messages[-2:]
    assert (said.role, said.texts[0].text, said.interrupted) == ("assistant", "So far I se", True)
    assert wanted.texts[0].text == REPORT_REQUEST
    harness.assert_valid_history()


async def test_a_report_that_takes_too_long_is_cut_off(harness):
    asked, reporting = gate(), gate()
    task, model = start(harness, [asked], [text("I have"), reporting])
    await reach(asked)
    pass_time(TURN_TIMEOUT)
    await reach(reporting)
    pass_time(GRACE)

    assert (await ended(task)).status is TurnStatus.TIMED_OUT
    assert (last_words(harness), model.cancelled) == ("I have", 2)


async def test_a_report_calls_no_tools(harness):
    asked = gate()
    ending, model = await run_out_of_time(
        harness, [asked], [text("Let me check."), call("c1", "echo")], at=asked
    )

    assert ending.status is TurnStatus.TIMED_OUT
    assert (last_words(harness), harness.journal.names("call_started")) == ("Let me check.", [])
    assert len(model.requests) == 2
    harness.assert_valid_history()


async def test_a_chat_model_that_fails_at_the_report_changes_nothing(harness):
    asked = gate()
    down = failure(ChatModelError("down", "It is down."))
    ending, model = await run_out_of_time(harness, [asked], [down], at=asked)

    assert (ending.status, ending.error_code) == (TurnStatus.TIMED_OUT, "")
    assert len(model.requests) == 2


async def test_a_cancel_during_the_report_ends_it_as_a_cancel(harness):
    asked, reporting = gate(), gate()
    task, _model = start(harness, [asked], [reporting])
    await reach(asked)
    pass_time(TURN_TIMEOUT)
    await reach(reporting)
    harness.token.cancel(BY_USER)

    ending = await ended(task)
    assert (ending.status, ending.cancellation) == (TurnStatus.CANCELLED, BY_USER)


async def test_a_cancelled_turn_reports_nothing(harness):
    asked = gate()
    task, model = start(harness, [asked])
    await reach(asked)
    harness.token.cancel(Cancellation(reason=CancelReason.PARENT))

    assert (await ended(task)).status is TurnStatus.CANCELLED
    assert len(model.requests) == 1


async def test_calls_that_ran_out_of_time_are_no_loop(harness):
    calls = [call(f"c{number}", "hold", name="same") for number in range(6)]
    loops = LoopDetector(window=30, warn_after=2, halt_after=3)
    task, _model = start(harness, calls, [text("Nothing yet.")], loops=loops)
    await eventually(lambda: len(harness.journal.names("call_started")) == len(calls))
    pass_time(TURN_TIMEOUT)

    assert (await ended(task)).status is TurnStatus.TIMED_OUT
    assert last_words(harness) == "Nothing yet."


async def test_it_can_be_told_to_wind_up_before_its_time(harness):
    asked = gate()
    task, _model = start(harness, [asked], [text("Halfway.")])
    await reach(asked)
    harness.runner.request_report()

    assert (await ended(task)).status is TurnStatus.TIMED_OUT
    assert last_words(harness) == "Halfway."


async def test_without_a_grace_the_time_is_just_up(harness):
    asked = gate()
    ending, model = await run_out_of_time(harness, [asked], at=asked, report_grace=0.0)

    assert ending.status is TurnStatus.TIMED_OUT
    assert (len(model.requests), harness.token.cancellation.reason) == (1, CancelReason.TIMEOUT)
    assert harness.runner.steps == 1  # as the turn's page says


@pytest.mark.parametrize("read_before", [0, 1], ids=["at the first request", "at the report"])
async def test_files_that_hang_are_given_up_when_the_time_is_up(harness, read_before):
    readings = 0

    async def with_files(messages):
        nonlocal readings
        readings += 1
        if readings > read_before:
            await asyncio.Event().wait()
        return messages

    task, model = start(harness, [gate()], with_files=with_files)
    await eventually(lambda: readings == 1 and len(model.requests) == read_before)
    pass_time(TURN_TIMEOUT)
    await eventually(lambda: readings == 2)
    pass_time(GRACE)

    assert ((await ended(task)).status, readings) == (TurnStatus.TIMED_OUT, 2)
    assert len(model.requests) == read_before
    harness.assert_valid_history()


async def test_a_cancel_does_not_wait_for_files(harness):
    reached = asyncio.Event()

    async def with_files(messages):
        reached.set()
        await asyncio.Event().wait()

    task, model = harness.start(with_files=with_files)
    async with asyncio.timeout(PATIENCE):
        await reached.wait()
    harness.token.cancel(BY_USER)

    ending = await ended(task)
    assert (ending.status, ending.cancellation) == (TurnStatus.CANCELLED, BY_USER)
    assert model.requests == []
