"""Cancelling one call of a step: the others and the turn go on (C3, 43, 44, 45)."""

import pytest

from governance import CancelSource
from governance.runtime import load
from tests.support import eventually
from tests.turns.support import PROMISED_MS, ChatDriver, FakeTools, in_database
from turns.cancelling import commands
from turns.cancelling.commands import CancelCommand
from turns.models import CancelRequest
from turns.services import OpOutcome
from turns.testing import call, text

pytestmark = pytest.mark.django_db(transaction=True)


async def test_one_of_three_is_cancelled_and_the_turn_goes_on(
    chat: ChatDriver, fake_tools: FakeTools
):
    model = chat.use_script(
        [call("a", "held"), call("b", "held"), call("c", "held")], [text("Fine.")]
    )
    turn_id = await chat.say()
    await chat.running(turn_id, "a", "b", "c")
    receipt = await chat.cancel_call(turn_id, "b")
    assert (receipt.outcome, receipt.status) == (OpOutcome.ACCEPTED, "cancelling")
    told = await chat.sink.until("tool_result", tool_id="b")
    assert told["ended_by"] == {"reason": "user", "source": "button", "by": "ada"}
    assert (told["error_type"], told["status"]) == ("cancelled", "cancelled")
    fake_tools.open("a")
    fake_tools.open("c")
    turn = await chat.ended(turn_id)
    assert (turn.status, turn.ended_by_reason) == ("completed", "")
    statuses = {name: made.status for name, made in (await chat.calls(turn_id)).items()}
    assert statuses == {"a": "succeeded", "b": "cancelled", "c": "succeeded"}
    read = {block.tool_use_id: block for block in model.requests[1].messages[-1].tool_results}
    assert list(read) == ["a", "b", "c"]
    assert read["b"].content.startswith("[CANCELLED]")
    request = await chat.request(turn_id, "b")
    assert (request.outcome, request.running_tools) == ("cancelled", ["held"])
    assert request.settled_ms <= PROMISED_MS


async def test_a_stubborn_call_is_given_up_within_a_second(chat: ChatDriver, fake_tools: FakeTools):
    turn_id = await chat.begin(
        [call("a", "stubborn"), call("b", "held")], [text("Fine.")], running=["a", "b"]
    )
    await chat.cancel_call(turn_id, "a")
    told = await chat.sink.until("tool_result", tool_id="a")
    assert (told["status"], told["disposition"]) == ("abandoned", "indeterminate")
    assert (await chat.request(turn_id, "a")).settled_ms <= PROMISED_MS
    fake_tools.open("b")
    assert (await chat.ended(turn_id)).status == "completed"


async def test_a_call_that_waits_for_its_slot_never_starts(chat: ChatDriver, fake_tools: FakeTools):
    turn_id = await chat.begin([call("a", "alone"), call("b", "alone")], [text("Fine.")])
    assert (await chat.cancel_call(turn_id, "b")).outcome is OpOutcome.ACCEPTED
    told = await chat.sink.until("tool_result", tool_id="b")
    assert (told["status"], told["disposition"]) == ("not_started", "not_started")
    fake_tools.open("a")
    assert (await chat.ended(turn_id)).status == "completed"
    assert fake_tools.started == ["a"]


async def test_a_stored_request_keeps_a_call_from_starting_before_its_nudge_has_come(
    chat: ChatDriver, fake_tools: FakeTools, settings
):
    settings.TURNS_POLL_INTERVAL = 600.0
    turn_id = await chat.begin([call("a", "alone"), call("b", "alone")], [text("Fine.")])
    command = CancelCommand(user=chat.user, source=CancelSource.API)
    await in_database(lambda: commands.request_call_cancel(turn_id, "b", command))
    fake_tools.open("a")
    fake_tools.open("b")

    assert (await chat.ended(turn_id)).status == "completed"
    assert (await chat.calls(turn_id))["b"].disposition == "not_started"
    assert (await chat.request(turn_id, "b")).settled_at is not None
    assert fake_tools.started == ["a"]


async def test_a_stored_request_ends_a_running_call_before_its_nudge_has_come(
    chat: ChatDriver, fake_tools: FakeTools, settings
):
    settings.TURNS_POLL_INTERVAL = 600.0
    turn_id = await chat.begin(
        [call("a", "held"), call("b", "held")], [text("Fine.")], running=["a", "b"]
    )
    command = CancelCommand(user=chat.user, source=CancelSource.API)
    await in_database(lambda: commands.request_call_cancel(turn_id, "b", command))
    fake_tools.open("a")

    assert (await chat.ended(turn_id)).status == "completed"
    assert (await chat.calls(turn_id))["b"].status == "cancelled"


async def test_a_thread_is_left_behind_and_the_rest_of_the_turn_goes_on(
    chat: ChatDriver, fake_tools: FakeTools
):
    model = chat.use_script([call("a", "blocked"), call("b", "held")], [text("Fine.")])
    turn_id = await chat.say()
    await chat.running(turn_id, "a", "b")
    told = chat.sink.find("tool_start", tool_id="a")
    assert (told["cancellable"], told["interruptible"]) == (True, False)
    assert chat.sink.find("tool_start", tool_id="b")["interruptible"] is True
    before = load().abandoned

    assert (await chat.cancel_call(turn_id, "a")).outcome is OpOutcome.ACCEPTED
    ended = await chat.sink.until("tool_result", tool_id="a")

    assert (ended["status"], ended["disposition"]) == ("abandoned", "indeterminate")
    assert ended["ended_by"]["by"] == "ada"
    assert load().abandoned == before + 1  # its thread counts until it has ended
    fake_tools.open("b")
    assert (await chat.ended(turn_id)).status == "completed"
    assert (await chat.calls(turn_id))["b"].status == "succeeded"
    assert model.requests[1].messages[-1].tool_results[0].content.startswith("[CANCELLED]")
    assert (await chat.request(turn_id, "a")).outcome == "abandoned"
    fake_tools.open("a")
    await chat.sink.until("tool_settled", tool_id="a")
    await eventually(lambda: load().abandoned == before)


async def test_a_finished_or_unknown_call_is_left_alone(chat: ChatDriver, fake_tools: FakeTools):
    turn_id = await chat.begin(
        [call("a", "quick"), call("b", "held")], [text("Fine.")], running=["b"]
    )
    await chat.sink.until("tool_result", tool_id="a")
    assert (await chat.cancel_call(turn_id, "a")).outcome is OpOutcome.ALREADY_FINISHED
    assert (await chat.cancel_call(turn_id, "nobody")).outcome is OpOutcome.NOT_FOUND
    fake_tools.open("b")
    await chat.ended(turn_id)
    assert (await chat.cancel_call(turn_id, "b")).outcome is OpOutcome.ALREADY_FINISHED
    assert await in_database(CancelRequest.objects.count) == 0


async def test_twice_is_one_row_and_a_repeated_operation_its_first_answer(chat: ChatDriver):
    turn_id = await chat.begin([call("a", "held")], [text("Fine.")])
    receipts = [await chat.cancel_call(turn_id, "a", op_id="op") for _ in range(2)]
    await chat.ended(turn_id)
    receipts.append(await chat.cancel_call(turn_id, "a", op_id="op"))
    assert {receipt.outcome for receipt in receipts} == {OpOutcome.ACCEPTED}
    assert await in_database(CancelRequest.objects.count) == 1


async def test_a_result_that_comes_in_the_grace_is_the_real_one(chat: ChatDriver):
    turn_id = await chat.begin([call("a", "graceful")], [text("Fine.")])
    await chat.cancel_call(turn_id, "a")
    assert (await chat.ended(turn_id)).status == "completed"
    made = (await chat.calls(turn_id))["a"]
    assert (made.status, made.result) == ("succeeded", "saved just in time")
    assert (await chat.request(turn_id, "a")).outcome == "succeeded"


async def test_an_operator_cancels_a_call_as_an_administrator(chat: ChatDriver, operator):
    turn_id = await chat.begin([call("a", "held")], [text("Fine.")])
    await chat.cancel_call(turn_id, "a", user=operator, source=CancelSource.ADMIN)
    assert (await chat.ended(turn_id)).status == "completed"
    made = (await chat.calls(turn_id))["a"]
    assert (made.ended_by_reason, made.ended_by_name) == ("admin", "olga")


async def test_a_request_without_a_nudge_is_obeyed_at_the_next_poll(chat: ChatDriver, settings):
    settings.TURNS_POLL_INTERVAL = 0.05
    turn_id = await chat.begin([call("a", "held")], [text("Fine.")])
    command = CancelCommand(user=chat.user, source=CancelSource.API)
    await in_database(lambda: commands.request_call_cancel(turn_id, "a", command))
    assert (await chat.ended(turn_id)).status == "completed"
    assert (await chat.calls(turn_id))["a"].status == "cancelled"


async def test_the_turn_can_be_cancelled_after_one_of_its_calls(
    chat: ChatDriver, fake_tools: FakeTools
):
    turn_id = await chat.begin([call("a", "stubborn"), call("b", "held")], running=["a", "b"])
    await chat.cancel_call(turn_id, "a")
    await chat.cancel(turn_id)
    assert (await chat.ended(turn_id)).status == "cancelled"
    requests_made = await in_database(
        lambda: list(CancelRequest.objects.order_by("tool_id").values_list("tool_id", "outcome"))
    )
    assert requests_made == [("", "cancelled"), ("a", "abandoned")]
