"""A turn makes its prompt fit: before a request, and after the provider has said that one is too long."""

import asyncio

import pytest

from tests.support import PATIENCE
from tests.turns.core.histories import text as said
from tests.turns.core.histories import user
from tests.turns.core.runner_harness import BY_USER, RunnerHarness, claimed
from tests.turns.core.test_window import LONG, turn
from tests.turns.journals import RecordingJournal
from turns.core.chat_model import ChatSettings, Usage
from turns.core.exceptions import ChatModelError
from turns.core.repairs import violations
from turns.core.runner import REPORT_REQUEST
from turns.core.texts import SUMMARY
from turns.core.turns import TurnStatus
from turns.testing import call, failure, gate, text

pytestmark = pytest.mark.asyncio

SMALL = ChatSettings(window=2_600)


def too_long():
    error = ChatModelError("context_too_long", "It does not fit.")
    error.is_too_long = True
    return failure(error)


@pytest.fixture
async def harness():
    harness = RunnerHarness()
    yield harness
    await harness.close()


def after(harness, *past):
    """Let the conversation have these turns, and begin another one."""
    new = claimed()
    harness.journal = RecordingJournal(*past, user(said("and now?"), turn=str(new.id)))
    return {"turn": new, "settings": SMALL}


@pytest.fixture
def past():
    """Two long turns."""
    return [message for name in (1, 2) for message in turn(name, LONG, LONG)]


async def test_what_does_not_fit_is_summarised_without_tools_before_the_request(harness, past):
    ending, model = await harness.run(
        [text("They said x.")], [text("Now.")], **after(harness, *past)
    )

    assert ending.status is TurnStatus.COMPLETED
    asked, request = model.requests
    assert (asked.tools, asked.may_call, asked.may_think) == ((), False, False)
    assert len(asked.messages) == 1
    assert request.messages[0].texts[0].text == f"{SUMMARY}\nThey said x."
    assert request.messages[-1].texts[-1].text == "and now?"
    assert violations(request.messages) == []
    assert harness.journal.names("keep") == ["summary"]
    assert harness.journal.kept.summary == "They said x."
    assert harness.journal.text == "Now."


async def test_a_second_summary_is_of_the_first_one_and_what_came_since(harness, past):
    options = after(harness, *past)
    await harness.run([text("They said x.")], [text("Now.")], **options)
    kept, first = harness.journal.kept, harness.journal.history[-2:]
    options = after(harness, *past, *first, *turn(3, LONG, LONG), *turn(4, LONG))
    harness.journal.begin_with(kept)
    _ending, model = await harness.run([text("x, then y.")], [text("Now.")], **options)

    (asked,) = model.requests[0].messages
    assert "They said x." in asked.texts[0].text
    assert model.requests[1].messages[0].texts[0].text == f"{SUMMARY}\nx, then y."


async def test_calls_in_a_summary_never_run(harness, past):
    options = after(harness, *past)
    await harness.run([text("So far."), call("c9", "echo")], [text("Now.")], **options)

    assert harness.journal.started == {}
    assert harness.journal.kept.summary == "So far."


@pytest.mark.parametrize("error", [ChatModelError("chat_model_busy", "Busy."), RuntimeError("x")])
async def test_without_a_summary_the_turns_are_left_out_all_the_same(harness, past, error):
    ending, model = await harness.run([failure(error)], [text("Now.")], **after(harness, *past))

    assert ending.status is TurnStatus.COMPLETED
    assert harness.journal.names("keep") == ["cut"]
    assert [block.text for block in model.requests[-1].messages[0].texts] == ["and now?"]


async def test_a_cancel_ends_a_summary_and_nothing_is_left_out(harness, past):
    waits = gate()
    task, model = harness.start([text("They"), waits], **after(harness, *past))
    async with asyncio.timeout(PATIENCE):
        await waits.reached.wait()
        harness.token.cancel(BY_USER)
        ending = await task

    assert ending.status is TurnStatus.CANCELLED
    assert (model.cancelled, len(model.requests)) == (1, 1)
    assert harness.journal.names("keep") == []


async def test_a_summary_that_does_not_end_holds_up_no_cancel(harness, past):
    deaf = gate(ignores_cancel=True)
    task, _model = harness.start([text("They"), deaf], **after(harness, *past))
    async with asyncio.timeout(PATIENCE):
        await deaf.reached.wait()
        harness.token.cancel(BY_USER)
        ending = await task
    deaf.opening.set()

    assert ending.status is TurnStatus.CANCELLED
    assert harness.journal.text == ""
    assert harness.journal.names("keep") == []


async def test_a_report_spends_no_time_on_a_summary(harness, past):
    waits = gate()
    replies = [text("They"), waits], [text("So far.")]
    task, model = harness.start(*replies, report_grace=PATIENCE, **after(harness, *past))
    async with asyncio.timeout(PATIENCE):
        await waits.reached.wait()
        harness.runner.request_report()
        ending = await task

    assert ending.status is TurnStatus.TIMED_OUT
    assert len(model.requests) == 2
    assert harness.journal.names("keep") == ["cut"]
    assert harness.journal.text == "So far."


async def test_a_refused_report_is_asked_for_again_with_less_in_the_same_step(harness, past):
    waits = gate()
    options = {**after(harness, *past), "settings": ChatSettings()}
    replies = [text("I am"), waits], [too_long()], [text("So far.")]
    task, model = harness.start(*replies, report_grace=PATIENCE, **options)
    async with asyncio.timeout(PATIENCE):
        await waits.reached.wait()
        harness.runner.request_report()
        ending = await task

    assert (ending.status, harness.runner.steps) == (TurnStatus.TIMED_OUT, 2)
    _first, refused, report = model.requests
    assert len(report.messages) < len(refused.messages)
    assert [request.messages[-1].texts[0].text for request in (refused, report)] == [
        REPORT_REQUEST
    ] * 2
    assert report.messages[-2].texts[0].text == "I am"  # what was being said is still there
    assert harness.journal.names("keep") == ["cut"]
    assert harness.journal.text.endswith("So far.")


async def test_a_report_that_never_fits_is_given_up(harness, past):
    waits = gate()
    options = {**after(harness, *past), "settings": ChatSettings()}
    replies = [[waits], *[[too_long()]] * 9]
    task, model = harness.start(*replies, report_grace=PATIENCE, **options)
    async with asyncio.timeout(PATIENCE):
        await waits.reached.wait()
        harness.runner.request_report()
        ending = await task

    assert (ending.status, ending.error_code) == (TurnStatus.TIMED_OUT, "")
    assert len(model.requests) <= 5


async def test_what_a_summary_costs_counts(harness, past):
    options = after(harness, *past)
    options["turn"] = claimed(token_limit=2_000)
    usage = Usage(input_tokens=1_900, output_tokens=100, requests=1)
    ending, model = await harness.run([text("They said x."), usage], **options)

    assert ending.error_code == "token_limit"
    assert len(model.requests) == 1


async def test_a_refused_prompt_is_asked_again_with_less_in_the_same_step(harness, past):
    options = {**after(harness, *past), "settings": ChatSettings()}
    ending, model = await harness.run([too_long()], [text("x")], [text("Now.")], **options)

    assert ending.status is TurnStatus.COMPLETED
    assert harness.runner.steps == 1
    assert len(model.requests[-1].messages) < len(model.requests[0].messages)
    assert harness.journal.names("keep") == ["summary"]


async def test_results_of_the_running_turn_go_last(harness):
    calls = [[call(f"c{place}", "echo", text=LONG)] for place in (1, 2, 3)]
    _ending, model = await harness.run(
        *calls, [too_long()], [text("Now.")], **{**after(harness), "settings": ChatSettings()}
    )

    results = [block.content for m in model.requests[-1].messages for block in m.tool_results]
    assert [content == LONG for content in results] == [False, False, True]
    assert harness.journal.names("keep") == ["clear"]
    assert len(harness.journal.started) == 3


async def test_a_refusal_counts_if_nothing_more_can_be_left_out(harness):
    with pytest.raises(ChatModelError, match="It does not fit"):
        await harness.run([too_long()], **after(harness))

    assert harness.journal.names("keep") == []


async def test_it_is_known_how_full_the_window_is(harness):
    usage = Usage(input_tokens=1_500, output_tokens=60, requests=1)
    await harness.run([text("Now."), usage], **after(harness))

    assert harness.runner.usage["context_tokens"] == 1_560
    assert harness.runner.usage["context_window"] == SMALL.window
