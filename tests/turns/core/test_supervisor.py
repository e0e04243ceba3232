"""The owner of live turns: it claims in order, obeys stored requests, and sees every turn to its one ending."""

import asyncio
import contextvars
import gc
import weakref
from uuid import uuid4

import pytest

from governance import CallStatus, CancelReason, Disposition
from tests.support import PATIENCE, eventually, pass_time
from tests.turns.core.memory_store import MemoryStore
from tests.turns.core.runner_harness import BY_USER, RunnerHarness, claimed
from tests.turns.journals import RecordingJournal
from turns.core import supervisor
from turns.core.chat_model import Usage
from turns.core.exceptions import ChatModelError, Fenced
from turns.core.supervisor import TurnSupervisor
from turns.core.turns import PendingCancel, TurnStatus
from turns.testing import ScriptedChatModel, call, failure, gate, text

REQUEST_ID = contextvars.ContextVar("request_id", default="none")


class SupervisorHarness:
    """A supervisor over a store in memory; `plays` says which script each turn follows, by its user message."""

    def __init__(self, **options):
        self.store = MemoryStore()
        self.harness = RunnerHarness()
        self.plays: dict[str, ScriptedChatModel] = {}
        self.journals: dict[str, RecordingJournal] = {}
        self.may_cast = asyncio.Event()
        self.may_cast.set()
        self.contexts: list[str] = []
        self.supervisor = TurnSupervisor(
            store=self.store,
            make_runner=self._make_runner,
            **{"poll_interval": 60.0, "cancel_bound": PATIENCE, **options},
        )

    def queue(self, message, *replies, conversation_id=None, turn_timeout=None):
        """Queue a turn that follows this script."""
        turn = claimed(
            message, conversation_id=conversation_id or uuid4(), turn_timeout=turn_timeout
        )
        self.plays[message] = ScriptedChatModel(*replies)
        self.journals[message] = RecordingJournal(message)
        self.store.add(turn)
        return turn

    def order(self, turn, **values):
        """Store a request to cancel."""
        self.store.orders.append(PendingCancel(turn_id=turn.id, cancellation=BY_USER, **values))

    async def close(self):
        self.harness.let_go.set()
        self.store.failures.clear()
        await self.supervisor.drain(grace=0)
        await self.harness.close()

    async def _make_runner(self, live):
        turn = live.turn
        self.contexts.append(REQUEST_ID.get())
        await self.may_cast.wait()
        self.harness.journal = self.journals[turn.user_message]
        return self.harness.make_runner(self.plays[turn.user_message], turn=turn, token=live.token)


@pytest.fixture
async def make_harness():
    houses = []

    def make(**options):
        houses.append(SupervisorHarness(**options))
        return houses[-1]

    yield make
    for harness in houses:
        await harness.close()


@pytest.fixture
def harness(make_harness):
    return make_harness()


class TestClaims:
    async def test_a_turn_runs_and_its_ending_is_stored_with_its_totals(self, harness):
        turn = harness.queue("hello", [text("Hi."), Usage(input_tokens=4, output_tokens=1)])

        harness.supervisor.wake(turn.conversation_id)
        (ending,) = await harness.store.until_ended(turn)

        assert ending.status is TurnStatus.COMPLETED
        assert harness.store.totals[turn.id] == (1, {"input_tokens": 4, "output_tokens": 1})
        await eventually(lambda: harness.supervisor.live_turns == ())

    async def test_turns_of_one_conversation_run_one_after_the_other_in_order(self, harness):
        pause = asyncio.Event()
        conversation_id = uuid4()
        turns = [
            harness.queue("first", [gate(pause), text("1")], conversation_id=conversation_id),
            harness.queue("second", [text("2")], conversation_id=conversation_id),
            harness.queue("third", [text("3")], conversation_id=conversation_id),
        ]
        for _ in turns:
            harness.supervisor.wake(conversation_id)
        await eventually(lambda: harness.plays["first"].requests)

        assert harness.store.claims == [turns[0].id]
        harness.supervisor.wake(conversation_id)
        pause.set()
        await harness.store.until_ended(*turns)

        assert harness.store.claims == [turn.id for turn in turns]
        assert list(harness.store.endings) == [turn.id for turn in turns]

    async def test_a_wake_for_a_conversation_whose_turn_runs_claims_nothing(self, harness):
        turn = harness.queue("one", [gate()])
        harness.supervisor.wake(turn.conversation_id)
        await eventually(lambda: harness.plays["one"].requests)
        tasks = asyncio.all_tasks()

        harness.supervisor.wake(turn.conversation_id)

        assert asyncio.all_tasks() == tasks

    async def test_a_turn_that_is_queued_as_another_one_ends_is_not_missed(self, harness):
        first = harness.queue("first", [text("1")])

        def queue_second():  # its conversation's turn is stored as ended, and still lives here
            harness.store.after_end = lambda: None
            harness.queue("second", [text("2")], conversation_id=first.conversation_id)
            harness.supervisor.wake(first.conversation_id)

        harness.store.after_end = queue_second
        harness.supervisor.wake(first.conversation_id)
        await eventually(lambda: len(harness.store.endings) == 2)

    async def test_conversations_do_not_wait_for_each_other(self, harness):
        slow, quick = harness.queue("slow", [gate()]), harness.queue("quick", [text("Here.")])

        harness.supervisor.wake(slow.conversation_id)
        harness.supervisor.wake(quick.conversation_id)
        await harness.store.until_ended(quick)

        assert [live.turn for live in harness.supervisor.live_turns] == [slow]

    async def test_a_wake_that_comes_during_an_empty_claim_is_not_lost(self, harness):
        conversation_id = uuid4()
        answering = harness.store.hold_next_answer()
        harness.supervisor.wake(conversation_id)
        await harness.store.claiming.wait()

        turn = harness.queue("late", [text("Here.")], conversation_id=conversation_id)
        harness.supervisor.wake(conversation_id)
        answering.set()

        (ending,) = await harness.store.until_ended(turn)
        assert ending.status is TurnStatus.COMPLETED

    async def test_a_turn_does_not_carry_the_context_of_the_request_that_woke_it(self, harness):
        REQUEST_ID.set("request 7")
        turn = harness.queue("hello", [text("Hi.")])

        harness.supervisor.wake(turn.conversation_id)
        await harness.store.until_ended(turn)

        assert harness.contexts == ["none"]

    async def test_a_claim_that_fails_is_tried_again_by_the_sweep(self, make_harness, caplog):
        harness = make_harness(sweep_interval=0.001)
        turn = harness.queue("hello", [text("Hi.")])
        harness.store.failures.append(OSError("away"))

        harness.supervisor.wake(turn.conversation_id)
        harness.supervisor.start()
        (ending,) = await harness.store.until_ended(turn)

        assert ending.status is TurnStatus.COMPLETED
        assert "could not be claimed" in caplog.text

    async def test_a_turn_that_begins_while_a_sweep_waits_counts_as_live(self, make_harness):
        harness = make_harness(sweep_interval=0.001)
        turn = harness.queue("hello", [gate()])
        harness.store.may_sweep.clear()
        harness.supervisor.start()
        await harness.store.sweeping.wait()

        harness.supervisor.wake(turn.conversation_id)
        await eventually(lambda: harness.supervisor.find_turn(turn.id))
        harness.store.may_sweep.set()
        await eventually(lambda: harness.store.swept)

        assert harness.store.swept[0] == (turn.id,)


class TestCancel:
    async def test_a_nudge_makes_a_stored_request_take_effect(self, harness):
        pause = gate()
        turn = harness.queue("hello", [text("One"), pause])
        harness.supervisor.wake(turn.conversation_id)
        await pause.reached.wait()

        harness.order(turn)
        await harness.supervisor.check_requests()
        (ending,) = await harness.store.until_ended(turn)

        assert ending.status is TurnStatus.CANCELLED
        assert ending.cancellation is BY_USER
        assert harness.journals["hello"].replies[0].interrupted

    async def test_a_poll_that_hangs_does_not_hold_up_a_request_whose_nudge_was_lost(
        self, make_harness
    ):
        hangs = asyncio.Event()

        async def on_poll():
            hangs.set()
            await asyncio.Event().wait()

        harness = make_harness(poll_interval=0.001, on_poll=on_poll)
        harness.supervisor.start()
        pause = gate()
        turn = harness.queue("hello", [pause])
        harness.supervisor.wake(turn.conversation_id)
        await pause.reached.wait()
        await hangs.wait()

        harness.order(turn)

        (ending,) = await harness.store.until_ended(turn)
        assert ending.status is TurnStatus.CANCELLED

    async def test_a_request_reaches_its_turn_only(self, harness):
        first, second = gate(), gate()
        turn, other = harness.queue("one", [first]), harness.queue("two", [second])
        for each in (turn, other):
            harness.supervisor.wake(each.conversation_id)
        await first.reached.wait()
        await second.reached.wait()

        harness.order(turn)
        await harness.supervisor.check_requests()
        await harness.store.until_ended(turn)

        assert other.id not in harness.store.endings

    async def test_a_runner_that_does_not_end_is_ended_without_it(self, make_harness, caplog):
        harness = make_harness(cancel_bound=0.05)
        turn = harness.queue("hello", [text("One")])
        held = harness.journals["hello"].hold("save_reply")
        harness.supervisor.wake(turn.conversation_id)
        await harness.journals["hello"].until("save_reply", 1)

        harness.order(turn)
        await harness.supervisor.check_requests()
        (ending,) = await harness.store.until_ended(turn)

        assert ending.status is TurnStatus.CANCELLED
        assert ending.cancellation is BY_USER
        assert "left behind" in caplog.text
        held.set()
        await eventually(
            lambda: not [t for t in asyncio.all_tasks() if t.get_name() == f"turn {turn.id}"]
        )
        assert len(harness.store.endings) == 1

    async def test_what_calls_came_to_is_stored_with_the_end_where_their_own_writes_are_late(
        self, harness
    ):
        turn = harness.queue(
            "do it", [call("a", "hold", name="a"), call("b", "hang", name="b")], [text("never")]
        )
        journal = harness.journals["do it"]
        journal.hold("call_ended")
        harness.supervisor.wake(turn.conversation_id)
        await harness.harness.until_begun("a", "b")

        harness.order(turn)
        await harness.supervisor.check_requests()
        await journal.until("call_ended", "a")
        pass_time(PATIENCE)
        (ending,) = await harness.store.until_ended(turn)

        assert ending.status is TurnStatus.CANCELLED
        outcome = harness.store.outcomes[turn.id]["a"]
        assert (outcome.status, outcome.disposition) == (
            CallStatus.CANCELLED,
            Disposition.SETTLED,
        )
        assert journal.outcomes == {}

    async def test_an_outcome_that_cannot_be_stored_does_not_keep_the_turn_from_its_end(
        self, harness, monkeypatch
    ):
        monkeypatch.setattr(supervisor, "END_PAUSE", 0.01)
        turn = harness.queue("do it", [call("a", "hold", name="a")], [text("never")])
        harness.journals["do it"].hold("call_ended")
        harness.supervisor.wake(turn.conversation_id)
        await harness.harness.until_begun("a")
        harness.store.failures += [OSError("no such outcome")] * supervisor.END_ATTEMPTS

        harness.order(turn)
        await harness.supervisor.check_requests()
        await harness.journals["do it"].until("call_ended", "a")
        pass_time(PATIENCE)
        await harness.store.until_ended(turn)

        assert harness.store.outcomes[turn.id] == {}

    async def test_a_cancel_while_the_runner_is_made_is_bounded_too(self, make_harness):
        harness = make_harness(cancel_bound=0.05)
        harness.may_cast.clear()
        turn = harness.queue("hello", [text("never")])
        harness.supervisor.wake(turn.conversation_id)
        await eventually(lambda: harness.contexts)

        harness.order(turn)
        await harness.supervisor.check_requests()
        (ending,) = await harness.store.until_ended(turn)

        assert ending.status is TurnStatus.CANCELLED
        assert harness.store.totals[turn.id] == (0, {})

    async def test_a_runner_that_is_left_behind_before_it_runs_is_forgotten(self, make_harness):
        """Its clock, which it could not close, would keep it until the turn's time is up."""
        harness = make_harness(cancel_bound=0.05)
        harness.store.may_read_cancels.clear()
        turn = harness.queue("hello", [text("never")], turn_timeout=600)
        harness.supervisor.wake(turn.conversation_id)
        await eventually(lambda: harness.harness.runner)
        runner, harness.harness.runner = weakref.ref(harness.harness.runner), None

        harness.order(turn)
        await harness.supervisor.check_requests()
        await harness.store.until_ended(turn)

        def is_forgotten():
            gc.collect()
            return runner() is None

        await eventually(is_forgotten)


class TestEndings:
    async def test_a_chat_models_error_fails_the_turn_with_its_code_and_sentence(self, harness):
        error = ChatModelError("overloaded", "The provider is busy.")
        turn = harness.queue("hello", [failure(error)])

        harness.supervisor.wake(turn.conversation_id)
        (ending,) = await harness.store.until_ended(turn)

        assert ending.status is TurnStatus.FAILED
        assert (ending.error_code, ending.error_message) == ("overloaded", "The provider is busy.")

    async def test_an_unexpected_error_fails_the_turn_without_its_text(self, harness, caplog):
        turn = harness.queue("hello", [failure(RuntimeError("password=hunter2"))])

        harness.supervisor.wake(turn.conversation_id)
        (ending,) = await harness.store.until_ended(turn)

        assert ending.status is TurnStatus.FAILED
        assert ending.error_code == "internal_error"
        assert "hunter2" not in ending.error_message
        assert "A turn failed" in caplog.text

    async def test_a_fenced_turn_is_left_alone(self, harness, caplog):
        turn = harness.queue("hello", [text("One")])
        harness.journals["hello"].fail("save_reply", Fenced("gone"))

        harness.supervisor.wake(turn.conversation_id)
        await eventually(lambda: "fenced" in caplog.text and not harness.supervisor.live_turns)

        assert harness.store.attempts == 0

    async def test_an_ending_is_stored_again_when_the_store_was_away(self, harness, caplog):
        pause = asyncio.Event()
        turn = harness.queue("hello", [gate(pause), text("Hi.")])
        harness.supervisor.wake(turn.conversation_id)
        await eventually(lambda: harness.plays["hello"].requests)
        harness.store.failures.append(OSError("away"))

        pause.set()
        (ending,) = await harness.store.until_ended(turn)

        assert ending.status is TurnStatus.COMPLETED
        assert harness.store.attempts == 2
        assert "was not stored" in caplog.text

    async def test_an_ending_is_stored_however_often_the_store_was_away(self, harness, monkeypatch):
        monkeypatch.setattr(supervisor, "END_PAUSE", 0.001)
        pause = asyncio.Event()
        turn = harness.queue("hello", [gate(pause), text("Hi.")])
        harness.queue("next", [text("Me too.")], conversation_id=turn.conversation_id)
        harness.supervisor.wake(turn.conversation_id)
        await eventually(lambda: harness.plays["hello"].requests)
        harness.store.failures.extend(OSError("away") for _ in range(20))

        pause.set()
        (ending,) = await harness.store.until_ended(turn)

        assert ending.status is TurnStatus.COMPLETED
        assert harness.store.attempts == 21
        await eventually(lambda: harness.plays["next"].requests)

    async def test_a_process_that_goes_down_leaves_what_it_cannot_store(self, harness, monkeypatch):
        monkeypatch.setattr(supervisor, "END_PAUSE", 0.001)
        turn = harness.queue("hello", [gate()])
        harness.supervisor.wake(turn.conversation_id)
        await eventually(lambda: harness.plays["hello"].requests)
        harness.store.failures.extend(OSError("away") for _ in range(100))

        await harness.supervisor.drain(grace=0)

        assert turn.id not in harness.store.endings
        assert not harness.supervisor.live_turns


class TestFence:
    async def test_drops_what_is_live_ends_its_tools_and_stores_nothing(self, harness):
        turn = harness.queue("one", [call("c1", "hold", name="a")])
        harness.queue("two", [text("never")], conversation_id=turn.conversation_id)
        harness.supervisor.wake(turn.conversation_id)
        await harness.harness.until_begun("a")

        await harness.supervisor.fence()
        harness.supervisor.wake(turn.conversation_id)

        assert harness.supervisor.live_turns == ()
        assert harness.journals["one"].outcomes["c1"].status is CallStatus.CANCELLED
        assert (harness.store.attempts, harness.store.claims) == (0, [turn.id])

    async def test_drops_a_turn_that_is_stored_nowhere_any_more(self, make_harness):
        harness = make_harness(sweep_interval=0.001)
        turn = harness.queue("one", [call("c1", "hold", name="a")])
        other = harness.queue("two", [call("c2", "hold", name="b")])
        for each in (turn, other):
            harness.supervisor.wake(each.conversation_id)
        harness.supervisor.start()
        await harness.harness.until_begun("a", "b")

        harness.store.deleted.add(turn.id)
        await eventually(lambda: harness.supervisor.find_turn(turn.id) is None)

        assert harness.journals["one"].outcomes["c1"].status is CallStatus.CANCELLED
        assert harness.store.attempts == 0
        assert harness.supervisor.find_turn(other.id) is not None

    async def test_leaves_a_runner_behind_that_does_not_end(self, make_harness):
        harness = make_harness(cancel_bound=0.05)
        turn = harness.queue("one", [text("One")])
        held = harness.journals["one"].hold("save_reply")
        harness.supervisor.wake(turn.conversation_id)
        await harness.journals["one"].until("save_reply", 1)

        await harness.supervisor.fence()

        assert harness.supervisor.live_turns == ()
        assert harness.store.attempts == 0
        held.set()

    async def test_gives_up_an_ending_that_the_store_does_not_take(self, harness, monkeypatch):
        monkeypatch.setattr(supervisor, "END_PAUSE", 0.001)
        pause = asyncio.Event()
        turn = harness.queue("one", [gate(pause), text("Hi.")])
        harness.supervisor.wake(turn.conversation_id)
        await eventually(lambda: harness.plays["one"].requests)
        harness.store.failures.extend(OSError("away") for _ in range(1_000_000))
        pause.set()
        await eventually(lambda: harness.store.attempts > 3)

        await harness.supervisor.fence()

        assert harness.supervisor.live_turns == ()
        assert turn.id not in harness.store.endings

    async def test_a_process_that_drains_begins_nothing_after_the_return(self, harness):
        harness.supervisor.close()
        await harness.supervisor.fence()
        harness.supervisor.resume()
        turn = harness.queue("one", [text("never")])

        harness.supervisor.wake(turn.conversation_id)
        await asyncio.sleep(0)

        assert harness.supervisor.is_draining
        assert not harness.store.claiming.is_set()

    async def test_a_claim_that_was_under_way_is_dropped_and_others_begin_after_the_return(
        self, harness
    ):
        turn = harness.queue("one", [text("never")])
        answering = harness.store.hold_next_answer()
        harness.supervisor.wake(turn.conversation_id)
        await harness.store.claiming.wait()

        fencing = asyncio.create_task(harness.supervisor.fence())
        await asyncio.sleep(0)
        answering.set()
        await fencing
        assert harness.supervisor.live_turns == ()
        assert harness.contexts == []

        other = harness.queue("two", [text("Hi.")])
        harness.supervisor.resume()
        harness.supervisor.wake(other.conversation_id)
        (ending,) = await harness.store.until_ended(other)
        assert ending.status is TurnStatus.COMPLETED


def drain_of(harness):
    return lambda: harness.supervisor.drain(grace=0)


class TestDrain:
    async def test_lets_a_live_turn_end_within_the_grace_and_starts_no_other(self, harness):
        pause = asyncio.Event()
        turn = harness.queue("one", [gate(pause), text("Hi.")])
        harness.queue("two", [text("never")], conversation_id=turn.conversation_id)
        harness.supervisor.wake(turn.conversation_id)
        await eventually(lambda: harness.plays["one"].requests)

        draining = asyncio.create_task(harness.supervisor.drain(grace=PATIENCE))
        await eventually(lambda: harness.supervisor.is_draining)
        pause.set()
        await draining

        assert harness.store.endings[turn.id].status is TurnStatus.COMPLETED
        assert harness.store.claims == [turn.id]

    async def test_cancels_what_does_not_end_as_shutdown(self, harness):
        turn = harness.queue("one", [call("c1", "hold", name="a")])
        harness.supervisor.wake(turn.conversation_id)
        await harness.harness.until_begun("a")

        await harness.supervisor.drain(grace=0)

        ending = harness.store.endings[turn.id]
        assert ending.status is TurnStatus.INTERRUPTED
        assert ending.cancellation.reason is CancelReason.SHUTDOWN
        assert harness.journals["one"].outcomes["c1"].status is CallStatus.CANCELLED

    async def test_does_not_reach_a_turn_that_has_ended(self, harness):
        pause = asyncio.Event()
        turn = harness.queue("one", [gate(pause), text("Hi.")])
        harness.supervisor.wake(turn.conversation_id)
        await eventually(lambda: harness.supervisor.live_turns)
        (live,) = harness.supervisor.live_turns
        pause.set()
        await eventually(lambda: harness.supervisor.live_turns == ())

        await harness.supervisor.drain(grace=0)

        assert not live.token.is_cancelled

    async def test_cancels_a_turn_whose_claim_was_under_way(self, harness):
        turn = harness.queue("one", [gate()])
        answering = harness.store.hold_next_answer()
        harness.supervisor.wake(turn.conversation_id)
        await harness.store.claiming.wait()

        draining = asyncio.create_task(harness.supervisor.drain(grace=0))
        await eventually(lambda: harness.supervisor.is_draining)
        answering.set()
        await draining

        assert harness.store.endings[turn.id].status is TurnStatus.INTERRUPTED

    @pytest.mark.parametrize("is_fenced_first", [True, False])
    async def test_a_claim_under_a_lease_that_is_lost_is_dropped_though_the_process_drains(
        self, harness, is_fenced_first
    ):
        turn = harness.queue("one", [text("never")])
        answering = harness.store.hold_next_answer()
        harness.supervisor.wake(turn.conversation_id)
        await harness.store.claiming.wait()

        first = harness.supervisor.fence if is_fenced_first else drain_of(harness)
        second = drain_of(harness) if is_fenced_first else harness.supervisor.fence
        ending = [asyncio.create_task(first())]
        await asyncio.sleep(0)
        ending.append(asyncio.create_task(second()))
        await eventually(lambda: harness.supervisor.is_draining)
        answering.set()
        await asyncio.gather(*ending)

        assert harness.supervisor.live_turns == ()
        assert (harness.contexts, harness.store.endings) == ([], {})

    async def test_ends_the_poll(self, make_harness):
        polled = asyncio.Event()

        async def on_poll():
            polled.set()

        harness = make_harness(poll_interval=0.001, on_poll=on_poll)
        harness.supervisor.start()
        await polled.wait()

        await harness.supervisor.drain(grace=0)

        assert not [t for t in asyncio.all_tasks() if "poll" in t.get_name()]

    async def test_a_poll_that_fails_goes_on(self, make_harness, caplog):
        polls = []
        again = asyncio.Event()

        async def on_poll():
            polls.append(None)
            if len(polls) == 1:
                raise OSError("away")
            again.set()

        harness = make_harness(poll_interval=0.001, on_poll=on_poll)
        harness.supervisor.start()
        async with asyncio.timeout(PATIENCE):
            await again.wait()

        assert "A round failed: turn supervisor poll" in caplog.text
