"""One turn from its claim to its ending: answers, parallel calls, cancelling anywhere, limits, loops, broken stores."""

import asyncio

import pytest

from governance import CallStatus, Cancellation, CancelReason, Disposition, ErrorType, LoopDetector
from tests.support import PATIENCE, eventually, pass_time
from tests.turns.core.runner_harness import BY_USER, RunnerHarness, claimed
from tests.turns.journals import RecordingJournal
from turns.core import chat_model, runner
from turns.core.chat_model import Stop, StopReason, ThinkingDelta, Usage
from turns.core.exceptions import ChatModelError, Fenced
from turns.core.messages import ToolUseBlock
from turns.core.turns import TurnStatus
from turns.testing import call, failure, gate, partial_call, text

THREE = [call("c1", "hold", name="a"), call("c2", "hold", name="b"), call("c3", "hold", name="c")]
THREE_IN_TURN = [
    call("c1", "hold_alone", name="a"),
    call("c2", "hold_alone", name="b"),
    call("c3", "hold_alone", name="c"),
]


@pytest.fixture
async def harness():
    harness = RunnerHarness()
    yield harness
    await harness.close()


async def ended(task):
    async with asyncio.timeout(PATIENCE):
        return await task


class TestCompleted:
    async def test_an_answer_without_calls_completes_the_turn(self, harness):
        ending, model = await harness.run([text("Hello "), text("Ada.")])

        assert ending.status is TurnStatus.COMPLETED
        assert harness.journal.text == "Hello Ada."
        (reply,) = harness.journal.replies
        assert reply.message.texts[0].text == "Hello Ada."
        assert not reply.interrupted
        assert len(model.requests) == 1

    @pytest.mark.parametrize("said", [[], [text(" \n")], [Stop(StopReason.END)]])
    async def test_an_answer_without_a_word_is_told(self, harness, said):
        ending, _model = await harness.run([text("On it."), call("c1", "echo")], said)

        assert ending.status is TurnStatus.COMPLETED
        assert harness.journal.names("notify") == ["answer_empty"]

    async def test_an_answer_that_was_cut_off_is_told_in_each_step(self, harness):
        cut_off = Stop(StopReason.LENGTH)
        await harness.run([partial_call("c1", "echo"), cut_off], [text("So"), cut_off])

        assert [code for code, _message in harness.journal.notices] == ["answer_cut_off"] * 2
        assert "The agent continues" in harness.journal.notices[0][1]

    @pytest.mark.parametrize(
        "piece", [text("on "), ThinkingDelta("on "), partial_call("c1", "echo", arguments="on ")]
    )
    async def test_an_answer_without_end_is_cut_off(self, harness, monkeypatch, piece):
        monkeypatch.setattr(chat_model, "MAX_LENGTH", 3_000)

        ending, _model = await harness.run([piece] * 2_000, [text("Done.")])

        assert ending.status is TurnStatus.COMPLETED
        assert harness.journal.names("notify")[0] == "answer_cut_off"
        assert len(harness.journal.text) <= 3_000

    async def test_calls_without_end_are_cut_off(self, harness, monkeypatch):
        monkeypatch.setattr(chat_model, "MAX_LENGTH", 3_000)
        asked_for = [call(f"c{number}", "echo") for number in range(50)]

        ending, _model = await harness.run(asked_for, [text("Done.")])

        assert ending.status is TurnStatus.COMPLETED
        assert 0 < len(harness.journal.outcomes) < 10

    async def test_the_model_reads_the_results_of_its_calls(self, harness):
        ending, model = await harness.run(
            [text("Let me see."), call("c1", "echo", text="forty-two")], [text("It is 42.")]
        )

        assert ending.status is TurnStatus.COMPLETED
        (result,) = model.requests[1].messages[-1].tool_results
        assert (result.tool_use_id, result.content) == ("c1", "forty-two")
        assert harness.runner.steps == 2
        harness.assert_valid_history()

    async def test_the_message_with_the_calls_is_stored_before_any_of_them_starts(self, harness):
        await harness.run([call("c1", "echo"), call("c2", "echo")], [text("Done.")])

        written = harness.journal.entries
        assert written.index(("save_reply", 1)) < written.index(("call_started", "c1"))
        assert written.index(("save_reply", 1)) < written.index(("call_started", "c2"))

    async def test_the_note_on_the_previous_turn_is_in_the_last_message(self, harness):
        """In the instructions it would cost the provider's cache of all the messages between."""
        harness.journal = RecordingJournal("go on", note="The previous turn was interrupted.")

        _ending, model = await harness.run([text("Yes.")], instructions="Be brief.")

        assert model.requests[0].instructions == "Be brief."
        said = [block.text for block in model.requests[0].messages[-1].texts]
        assert said == ["The previous turn was interrupted.", "go on"]

    async def test_usage_is_summed_over_the_steps(self, harness):
        await harness.run(
            [Usage(input_tokens=10, output_tokens=2), call("c1", "echo")],
            [text("Done."), Usage(input_tokens=20, output_tokens=3)],
        )

        assert harness.runner.usage == {"input_tokens": 30, "output_tokens": 5}

    async def test_an_id_that_comes_again_in_a_later_step_is_made_new(self, harness):
        await harness.run([call("c1", "echo")], [call("c1", "echo")], [text("Done.")])

        assert harness.journal.names("call_ended") == ["c1", "c1_2"]
        harness.assert_valid_history()

    async def test_arguments_that_are_no_json_are_told_to_the_model_and_not_run(self, harness):
        _ending, model = await harness.run([partial_call("c1", "echo")], [text("Sorry.")])

        (result,) = model.requests[1].messages[-1].tool_results
        assert result.is_error
        assert "not valid JSON" in result.content
        assert harness.journal.started == {}
        harness.assert_valid_history()


class TestParallel:
    async def test_results_stand_in_call_order_whatever_order_they_come_in(self, harness):
        task, model = harness.start(THREE, [text("Done.")])
        await harness.until_begun("a", "b", "c")
        for name, call_id in (("c", "c3"), ("a", "c1"), ("b", "c2")):
            harness.release(name)
            await harness.journal.until("call_ended", call_id)

        await ended(task)

        assert harness.journal.names("call_ended") == ["c3", "c1", "c2"]
        results = model.requests[1].messages[-1].tool_results
        assert [block.tool_use_id for block in results] == ["c1", "c2", "c3"]
        harness.assert_valid_history()

    async def test_a_result_is_recorded_at_once_not_after_the_batch(self, harness):
        task, _model = harness.start(THREE, [text("Done.")])
        await harness.until_begun("a", "b", "c")

        harness.release("b")
        await harness.journal.until("call_ended", "c2")

        assert harness.journal.names("call_ended") == ["c2"]
        harness.release("a", "c")
        assert (await ended(task)).status is TurnStatus.COMPLETED

    async def test_cancelling_one_call_leaves_the_others_and_the_turn_goes_on(self, harness):
        task, model = harness.start(THREE, [text("Two will do.")])
        await harness.until_begun("a", "b", "c")

        harness.runner.find_call("c2").cancel(BY_USER)
        harness.release("a", "c")
        ending = await ended(task)

        assert ending.status is TurnStatus.COMPLETED
        statuses = [harness.journal.outcomes[id].status for id in ("c1", "c2", "c3")]
        assert statuses == [CallStatus.SUCCEEDED, CallStatus.CANCELLED, CallStatus.SUCCEEDED]
        assert "cancelled by the user" in model.requests[1].messages[-1].tool_results[1].content
        assert harness.runner.find_call("c2") is None


class TestCancel:
    async def test_before_the_first_token_keeps_no_assistant_message(self, harness):
        silent = gate()
        task, model = harness.start([silent, text("never")])
        await silent.reached.wait()

        harness.token.cancel(BY_USER)
        ending = await ended(task)

        assert ending.status is TurnStatus.CANCELLED
        assert ending.cancellation is BY_USER
        assert harness.journal.replies == []
        assert [message.role for message in harness.journal.history] == ["user"]
        assert model.cancelled == 1

    async def test_before_the_turn_begins_asks_no_model(self, harness):
        harness.token.cancel(BY_USER)

        ending, model = await harness.run([text("never")])

        assert ending.status is TurnStatus.CANCELLED
        assert model.requests == []
        assert harness.runner.steps == 0

    async def test_mid_text_keeps_what_was_said_and_marks_it(self, harness):
        pause = gate()
        task, model = harness.start([text("It was a dark"), pause, text(" night")])
        await pause.reached.wait()

        harness.token.cancel(BY_USER)
        ending = await ended(task)

        assert ending.status is TurnStatus.CANCELLED
        (reply,) = harness.journal.replies
        assert reply.interrupted
        assert reply.message.interrupted
        assert reply.message.texts[0].text == "It was a dark"
        assert harness.journal.text == "It was a dark"
        assert model.cancelled == 1

    async def test_mid_arguments_drops_the_call(self, harness):
        pause = gate()
        task, _model = harness.start(
            [text("I shall run"), partial_call("c1", "echo", arguments='{"te'), pause]
        )
        await pause.reached.wait()

        harness.token.cancel(BY_USER)
        ending = await ended(task)

        assert ending.status is TurnStatus.CANCELLED
        (reply,) = harness.journal.replies
        assert reply.message.tool_uses == ()
        assert reply.calls == ()
        assert harness.journal.outcomes == {}
        harness.assert_valid_history()

    async def test_in_the_first_of_three_calls_never_starts_the_others(self, harness):
        task, model = harness.start(THREE_IN_TURN, [text("never")])
        await harness.until_begun("a")

        harness.token.cancel(BY_USER)
        ending = await ended(task)

        assert ending.status is TurnStatus.CANCELLED
        statuses = [harness.journal.outcomes[id].status for id in ("c1", "c2", "c3")]
        assert statuses == [CallStatus.CANCELLED, CallStatus.NOT_STARTED, CallStatus.NOT_STARTED]
        assert harness.journal.names("call_started") == ["c1"]
        assert len(model.requests) == 1
        harness.assert_valid_history()

    async def test_a_call_that_had_finished_keeps_its_result(self, harness):
        task, _model = harness.start(THREE, [text("never")])
        await harness.until_begun("a", "b", "c")
        harness.release("b")
        await harness.journal.until("call_ended", "c2")

        harness.token.cancel(BY_USER)
        await ended(task)

        statuses = [harness.journal.outcomes[id].status for id in ("c1", "c2", "c3")]
        assert statuses == [CallStatus.CANCELLED, CallStatus.SUCCEEDED, CallStatus.CANCELLED]
        assert harness.journal.outcomes["c2"].result == "b was held"
        harness.assert_valid_history()

    async def test_between_two_tools_starts_no_more(self, harness):
        """26c: no model call and no tool is active, one call is just being written down as ended."""
        task, model = harness.start(
            [call("c1", "hold_alone", name="a"), call("c2", "hold_alone", name="b")],
            [text("never")],
        )
        await harness.until_begun("a")
        held = harness.journal.hold("call_started")
        harness.release("a")
        await harness.journal.until("call_started", "c2")

        harness.token.cancel(BY_USER)
        held.set()
        ending = await ended(task)

        assert ending.status is TurnStatus.CANCELLED
        assert harness.journal.outcomes["c1"].status is CallStatus.SUCCEEDED
        assert harness.journal.outcomes["c2"].status is CallStatus.NOT_STARTED
        assert "b" not in harness.began
        assert len(model.requests) == 1
        harness.assert_valid_history()

    async def test_between_a_model_answer_and_its_tools_starts_none(self, harness):
        held = harness.journal.hold("save_reply")
        task, model = harness.start([call("c1", "echo")], [text("never")])
        await harness.journal.until("save_reply", 1)

        harness.token.cancel(BY_USER)
        held.set()
        ending = await ended(task)

        assert ending.status is TurnStatus.CANCELLED
        assert harness.journal.outcomes["c1"].status is CallStatus.NOT_STARTED
        assert harness.journal.outcomes["c1"].disposition is Disposition.NOT_STARTED
        assert len(model.requests) == 1
        harness.assert_valid_history()

    async def test_while_the_last_result_is_written_makes_no_further_model_call(self, harness):
        held = harness.journal.hold("call_ended")
        task, model = harness.start([call("c1", "echo")], [text("never")])
        await harness.journal.until("call_ended", "c1")

        harness.token.cancel(BY_USER)
        held.set()
        ending = await ended(task)

        assert ending.status is TurnStatus.CANCELLED
        assert harness.journal.outcomes["c1"].status is CallStatus.SUCCEEDED
        assert len(model.requests) == 1

    async def test_after_the_step_lets_its_calls_finish(self, harness):
        task, model = harness.start(THREE, [text("never")])
        await harness.until_begun("a", "b", "c")

        harness.runner.cancel_after_step(BY_USER)
        harness.runner.cancel_after_step(Cancellation(reason=CancelReason.ADMIN))  # too late
        harness.release("a", "b", "c")
        ending = await ended(task)

        assert ending.status is TurnStatus.CANCELLED
        assert ending.cancellation is BY_USER
        assert {outcome.status for outcome in harness.journal.outcomes.values()} == {
            CallStatus.SUCCEEDED
        }
        assert len(model.requests) == 1

    async def test_after_the_last_step_that_is_allowed_is_a_cancel_not_the_limit(self, harness):
        task, _model = harness.start([call("c1", "hold", name="a")], turn=claimed(step_limit=1))
        await harness.until_begun("a")

        harness.runner.cancel_after_step(BY_USER)
        harness.release("a")

        assert (await ended(task)).status is TurnStatus.CANCELLED

    async def test_an_unstoppable_tool_is_left_behind_within_the_grace(self, harness):
        task, model = harness.start(
            [call("c1", "hang", name="deaf"), call("c2", "hold", name="a")], [text("never")]
        )
        await harness.until_begun("deaf", "a")

        harness.token.cancel(BY_USER)
        await harness.journal.until("call_ended", "c2")
        await eventually(lambda: task.done() or pass_time(PATIENCE))  # the grace of the other one
        ending = await ended(task)

        assert ending.status is TurnStatus.CANCELLED
        assert harness.journal.outcomes["c1"].status is CallStatus.ABANDONED
        assert harness.journal.outcomes["c1"].disposition is Disposition.INDETERMINATE
        assert harness.journal.outcomes["c2"].status is CallStatus.CANCELLED
        assert harness.executor.abandoned == 1
        harness.assert_valid_history()
        harness.let_go.set()
        await harness.journal.until("call_settled_late", "c1")
        assert harness.journal.outcomes["c1"].status is CallStatus.ABANDONED
        assert len(model.requests) == 1

    async def test_a_model_that_ignores_it_is_left_behind_and_says_nothing_more(
        self, harness, caplog
    ):
        opening = asyncio.Event()
        deaf = gate(opening, ignores_cancel=True)
        task, model = harness.start([text("One"), deaf, text(" two"), call("c1", "echo")])
        await deaf.reached.wait()

        harness.token.cancel(BY_USER)
        ending = await ended(task)
        opening.set()
        await eventually(lambda: model.closed == 1)
        await eventually(lambda: not [t for t in asyncio.all_tasks() if "work of" in t.get_name()])

        assert ending.status is TurnStatus.CANCELLED
        assert harness.journal.text == "One"
        assert harness.journal.names("save_reply") == [1]
        assert harness.journal.replies[0].message.texts[0].text == "One"
        assert harness.journal.outcomes == {}
        assert "does not end its stream" in caplog.text
        assert not [t for t in asyncio.all_tasks() if "text delta" in t.get_name()]

    async def test_a_turn_whose_task_is_cancelled_asks_its_tools_to_stop_and_passes_it_on(
        self, harness
    ):
        task, _model = harness.start([call("c1", "hold", name="a")])
        await harness.until_begun("a")
        live = harness.runner.find_call("c1")

        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await ended(task)

        await eventually(lambda: live.token.is_cancelled)
        assert live.ended_by.reason is CancelReason.SHUTDOWN
        assert harness.journal.outcomes == {}

    async def test_a_turn_whose_task_is_cancelled_mid_text_pushes_nothing_more(self, harness):
        opening, pause = asyncio.Event(), gate()
        task, model = harness.start([text("One"), gate(opening), text(" two"), pause])
        await harness.journal.until("publish_text", 0)
        opening.set()
        await pause.reached.wait()  # the second piece waits for its moment now
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await ended(task)

        assert model.cancelled == 1
        due = [h for h in asyncio.get_running_loop()._scheduled if "Pacer" in repr(h)]
        assert all(handle.cancelled() for handle in due)
        assert harness.journal.text == "One"


class TestLimits:
    async def test_the_turn_deadline_ends_a_longer_tool_and_says_so(self, harness):
        task, model = harness.start(
            [call("c1", "hold", name="a")], [text("never")], turn=claimed(turn_timeout=60)
        )
        await harness.until_begun("a")
        pass_time(60)

        ending = await ended(task)
        assert ending.status is TurnStatus.TIMED_OUT
        assert ending.cancellation.reason is CancelReason.TIMEOUT
        outcome = harness.journal.outcomes["c1"]
        assert outcome.status is CallStatus.CANCELLED
        assert outcome.ended_by.reason is CancelReason.TIMEOUT
        assert "the turn ran out of time" in outcome.result
        assert len(model.requests) == 1
        harness.assert_valid_history()

    async def test_the_turn_deadline_ends_a_silent_model(self, harness):
        asked = gate()
        task, model = harness.start([asked], turn=claimed(turn_timeout=60))
        await asked.reached.wait()
        pass_time(60)

        assert (await ended(task)).status is TurnStatus.TIMED_OUT
        assert model.cancelled == 1

    async def test_a_turn_in_time_is_not_touched_by_its_deadline(self, harness):
        ending, _model = await harness.run([text("Quick.")], turn=claimed(turn_timeout=60))

        assert ending.status is TurnStatus.COMPLETED
        assert not harness.token.is_cancelled

    async def test_the_step_limit_fails_the_turn_after_its_last_results(self, harness):
        ending, model = await harness.run(
            [call("c1", "echo")], [call("c2", "echo")], turn=claimed(step_limit=2)
        )

        assert ending.status is TurnStatus.FAILED
        assert ending.error_code == "step_limit"
        assert "2 steps" in ending.error_message
        assert len(model.requests) == 2
        harness.assert_valid_history()


class TestTokenLimit:
    def turn(self):
        return claimed(token_limit=100)

    async def test_an_answer_may_have_what_is_left_of_the_limit(self, harness):
        ending, model = await harness.run(
            [call("c1", "echo"), Usage(input_tokens=50, output_tokens=10)],
            [text("Done."), Usage(input_tokens=30, output_tokens=5)],
            turn=self.turn(),
        )

        assert ending.status is TurnStatus.COMPLETED
        assert [request.max_tokens for request in model.requests] == [100, 40]

    async def test_without_a_limit_an_answer_is_as_long_as_the_chat_model_likes(self, harness):
        _ending, model = await harness.run([text("Done.")])

        assert model.requests[0].max_tokens is None

    async def test_a_turn_that_used_it_up_asks_no_more(self, harness):
        ending, model = await harness.run(
            [call("c1", "echo", text="kept"), Usage(input_tokens=90, output_tokens=10)],
            turn=self.turn(),
        )

        assert (ending.status, ending.error_code) == (TurnStatus.FAILED, "token_limit")
        assert "100 tokens" in ending.error_message
        assert len(model.requests) == 1
        assert harness.results() == ["kept"]
        harness.assert_valid_history()

    async def test_an_answer_that_stands_counts_although_it_was_over_the_limit(self, harness):
        ending, _model = await harness.run(
            [text("Done."), Usage(input_tokens=500)], turn=self.turn()
        )

        assert ending.status is TurnStatus.COMPLETED

    async def test_an_answer_that_the_limit_cut_off_is_kept_and_said_to_be_one(self, harness):
        ending, _model = await harness.run(
            [
                text("The first half"),
                Usage(input_tokens=40, output_tokens=60),
                Stop(StopReason.LENGTH),
            ],
            turn=self.turn(),
        )

        assert ending.error_code == "token_limit"
        assert harness.journal.text == "The first half"

    async def test_a_cancel_comes_before_the_limit(self, harness):
        task, _model = harness.start(
            [call("c1", "hold", name="a"), Usage(input_tokens=100)], turn=self.turn()
        )
        await harness.until_begun("a")

        harness.runner.cancel_after_step(BY_USER)
        harness.release("a")

        assert (await ended(task)).status is TurnStatus.CANCELLED


class TestRepeatedSteps:
    """An answer that breaks off is asked for again; the turn gives up after three of them in a row."""

    async def test_an_answer_that_stands_ends_the_row(self, harness, monkeypatch):
        monkeypatch.setattr(runner, "REPEAT_PAUSE", 0.0)
        error = ChatModelError("chat_model_dropped", "It broke.")
        error.cut_off = "The connection broke"
        broken = [text("So"), failure(error)]

        ending, model = await harness.run(
            *[broken] * 3, [call("c1", "echo")], *[broken] * 3, [text("Done.")], repeats_steps=True
        )

        assert ending.status is TurnStatus.COMPLETED
        assert (len(model.requests), harness.runner.steps) == (8, 8)
        assert harness.journal.replies[-1].message.texts[0].text == "Done."
        assert harness.journal.names("notify") == ["retrying"] * 6


class TestAllowedTools:
    async def test_a_call_of_another_tool_is_refused_like_an_unknown_one(self, harness):
        ending, _model = await harness.run(
            [call("c1", "hold", name="a"), call("c2", "echo", text="mine"), call("c3", "nothing")],
            [text("Done.")],
            allowed={"echo"},
        )

        assert ending.status is TurnStatus.COMPLETED
        assert "a" not in harness.began
        outcomes = harness.journal.outcomes
        assert outcomes["c1"].error_type is outcomes["c3"].error_type is ErrorType.UNKNOWN_TOOL
        assert outcomes["c1"].result == outcomes["c3"].result.replace("nothing", "hold")
        assert outcomes["c2"].result == "mine"


class TestCallsAtOnce:
    async def test_no_more_calls_than_allowed_run_at_once_and_the_rest_waits(self, harness):
        task, _model = harness.start(THREE, [text("Done.")], max_parallel=2)
        await harness.until_begun("a", "b")
        third = harness.runner.find_call("c3")

        assert (third.status, third.elapsed) == (CallStatus.PENDING, 0.0)
        assert "c" not in harness.began
        harness.release("a")
        await harness.until_begun("c")
        harness.release("b", "c")
        assert (await ended(task)).status is TurnStatus.COMPLETED


class TestLoops:
    def detector(self, **limits):
        return LoopDetector(**{"window": 30, "warn_after": 2, "halt_after": 3, **limits})

    async def test_a_repeated_call_is_warned_in_its_one_result(self, harness):
        ending, model = await harness.run(
            [call("c1", "echo", text="same")],
            [call("c2", "echo", text="same")],
            [text("I stop.")],
            loops=self.detector(),
        )

        assert ending.status is TurnStatus.COMPLETED
        (first,) = model.requests[1].messages[-1].tool_results
        (second,) = model.requests[2].messages[-1].tool_results
        assert first.content == "same"
        assert second.content.startswith("same\n[LOOP]")
        assert harness.journal.outcomes["c2"].status is CallStatus.SUCCEEDED
        harness.assert_valid_history()

    async def test_a_loop_that_goes_on_halts_the_turn(self, harness):
        ending, model = await harness.run(
            [call("c1", "echo")], [call("c2", "echo")], [call("c3", "echo")], [text("never")],
            loops=self.detector(),
        )  # fmt: skip

        assert ending.status is TurnStatus.CANCELLED
        assert ending.cancellation.reason is CancelReason.LOOP
        assert "halted automatically" in harness.journal.outcomes["c3"].result
        assert len(model.requests) == 3
        harness.assert_valid_history()

    async def test_a_halt_in_mid_batch_gives_every_call_its_result(self, harness):
        last = [call("c3", "echo"), call("c4", "hold_alone", name="a"), call("c5", "echo")]
        ending, _model = await harness.run(
            [call("c1", "echo")], [call("c2", "echo")], last, [text("never")],
            loops=self.detector(),
        )  # fmt: skip

        assert ending.cancellation.reason is CancelReason.LOOP
        assert harness.journal.outcomes["c3"].status is CallStatus.SUCCEEDED
        assert harness.journal.outcomes["c4"].status is CallStatus.NOT_STARTED
        assert harness.journal.outcomes["c5"].status is CallStatus.NOT_STARTED
        assert "loop detector" in harness.journal.outcomes["c4"].result
        harness.assert_valid_history()

    async def test_refused_calls_escalate_too(self, harness):
        ending, _model = await harness.run(
            [call("c1", "no_such_tool")], [call("c2", "no_such_tool")], [call("c3", "no_such_tool")],
            loops=self.detector(),
        )  # fmt: skip

        assert ending.cancellation.reason is CancelReason.LOOP

    async def test_calls_that_a_person_cancelled_are_no_loop(self, harness):
        replies = [[call(f"c{n}", "hold", name=f"n{n}")] for n in range(1, 4)]
        task, _model = harness.start(*replies, [text("Done.")], loops=self.detector())
        for n in range(1, 4):
            await harness.until_begun(f"n{n}")
            harness.runner.find_call(f"c{n}").cancel(BY_USER)

        assert (await ended(task)).status is TurnStatus.COMPLETED
        assert not any("[LOOP]" in o.result for o in harness.journal.outcomes.values())

    async def test_calls_that_time_out_again_and_again_are_a_loop(self, harness):
        replies = [[call(f"c{n}", "hold", name="a", _meta={"timeout_ms": 10})] for n in range(1, 4)]

        ending, _model = await harness.run(*replies, loops=self.detector())

        assert ending.cancellation.reason is CancelReason.LOOP
        assert harness.journal.outcomes["c3"].status is CallStatus.TIMED_OUT


class TestBrokenStore:
    async def test_a_fenced_result_ends_the_other_tools_and_the_runner(self, harness):
        task, _model = harness.start(THREE, [text("never")])
        await harness.until_begun("a", "b", "c")
        others = [harness.runner.find_call(id) for id in ("c2", "c3")]

        harness.journal.fence()
        harness.release("a")
        with pytest.raises(Fenced):
            await ended(task)

        assert all(other.token.is_cancelled for other in others)
        assert harness.executor.live == ()
        assert harness.journal.outcomes == {}

    async def test_a_fenced_prompt_runs_nothing(self, harness):
        harness.journal.fence()

        with pytest.raises(Fenced):
            await harness.run([text("never")])

        assert harness.token.is_cancelled

    async def test_several_failed_writes_leave_no_error_unlooked_at(self, harness):
        task, _model = harness.start(THREE, [text("never")])
        await harness.until_begun("a", "b", "c")
        calls = [t for t in asyncio.all_tasks() if t.get_name().startswith("tool call")]
        harness.journal.fence()
        harness.release("a")
        with pytest.raises(Fenced):
            await ended(task)

        assert len(calls) == 3
        assert not any(call._log_traceback for call in calls)  # "never retrieved", once it is gone

    async def test_calls_whose_start_cannot_be_stored_do_not_run(self, harness):
        harness.journal.fail("call_started", OSError("disk full"))

        with pytest.raises(OSError, match="disk full"):
            await harness.run([call("c1", "hold", name="a"), call("c2", "hold", name="b")])

        assert harness.began == {}
        assert harness.executor.live == ()

    async def test_a_start_that_cannot_be_stored_ends_the_siblings_that_run(self, harness):
        held = harness.journal.hold("call_started", of="c2")
        task, model = harness.start(THREE, [text("never")])
        await harness.until_begun("a", "c")

        harness.journal.fail("call_started", OSError("disk full"), of="c2")
        held.set()
        with pytest.raises(OSError, match="disk full"):
            await ended(task)

        assert "b" not in harness.began
        assert harness.token.cancellation.reason is CancelReason.ERROR
        assert harness.journal.outcomes["c1"].status is CallStatus.CANCELLED
        assert "the server, after an error" in harness.journal.outcomes["c3"].result
        assert harness.executor.live == ()
        assert len(model.requests) == 1


class TestChatModelErrors:
    async def test_its_error_is_passed_on_and_what_was_said_is_kept(self, harness):
        overloaded = ChatModelError("overloaded", "The provider is busy. Try again.")

        with pytest.raises(ChatModelError) as raised:
            await harness.run([text("One mo"), failure(overloaded)])

        assert raised.value is overloaded
        (reply,) = harness.journal.replies
        assert reply.interrupted
        assert reply.message.texts[0].text == "One mo"

    async def test_calls_of_a_stream_that_broke_are_dropped(self, harness):
        with pytest.raises(ConnectionError):
            await harness.run([text("Well"), call("c1", "echo"), failure(ConnectionError("reset"))])

        blocks = [block for message in harness.journal.history for block in message.content]
        assert not any(isinstance(block, ToolUseBlock) for block in blocks)
        assert harness.journal.started == {}
        harness.assert_valid_history()

    async def test_an_error_after_a_cancel_is_a_cancel(self, harness):
        opening = asyncio.Event()
        deaf = gate(opening, ignores_cancel=True)
        task, _model = harness.start([text("One"), deaf, failure(ConnectionError("reset"))])
        await deaf.reached.wait()

        harness.token.cancel(BY_USER)
        opening.set()

        assert (await ended(task)).status is TurnStatus.CANCELLED

    async def test_the_stream_is_closed_when_its_text_cannot_be_stored(self, harness):
        harness.journal.fail("publish_text", OSError("disk full"))
        pause = asyncio.Event()
        task, model = harness.start([text("One"), gate(pause), text(" two"), text(" three")])
        await harness.journal.until("publish_text", 0)
        await eventually(lambda: not [t for t in asyncio.all_tasks() if "delta" in t.get_name()])
        pause.set()

        with pytest.raises(OSError, match="disk full"):
            await ended(task)

        assert model.closed == 1
