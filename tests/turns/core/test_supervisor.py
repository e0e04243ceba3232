"""The owner of live turns: it claims in order, obeys stored requests, and sees every turn to its one ending."""

import asyncio
import contextvars
from uuid import uuid4

import pytest

from governance import CallStatus, CancelReason, Disposition
from tests.support import PATIENCE, eventually
from tests.turns.core.memory_store import MemoryStore
from tests.turns.core.stage import BY_USER, Stage, claimed
from tests.turns.journals import RecordingJournal
from turns.core import supervisor
from turns.core.chat_model import Usage
from turns.core.exceptions import ChatModelError, Fenced
from turns.core.ports import PendingCancel
from turns.core.supervisor import TurnSupervisor
from turns.core.turns import TurnStatus
from turns.testing import ScriptedChatModel, call, failure, gate, text

REQUEST_ID = contextvars.ContextVar("request_id", default="none")


class House:
    """A supervisor over a store in memory; `plays` says which script each turn follows, by its user message."""

    def __init__(self, **options):
        self.store = MemoryStore()
        self.stage = Stage()
        self.plays: dict[str, ScriptedChatModel] = {}
        self.journals: dict[str, RecordingJournal] = {}
        self.may_cast = asyncio.Event()
        self.may_cast.set()
        self.contexts: list[str] = []
        self.supervisor = TurnSupervisor(
            store=self.store,
            make_runner=self._make_runner,
            **{"poll_interval": 60.0, "cancel_bound": 0.05, **options},
        )

    def queue(self, message, *replies, conversation_id=None):
        """Queue a turn that follows this script."""
        turn = claimed(message, conversation_id=conversation_id or uuid4())
        self.plays[message] = ScriptedChatModel(*replies)
        self.journals[message] = RecordingJournal(message)
        self.store.add(turn)
        return turn

    def order(self, turn, **values):
        """Store a request to cancel."""
        self.store.orders.append(PendingCancel(turn_id=turn.id, cancellation=BY_USER, **values))

    async def close(self):
        self.stage.let_go.set()
        self.store.failures.clear()
        await self.supervisor.drain(grace=0)
        await self.stage.close()

    async def _make_runner(self, turn, token):
        self.contexts.append(REQUEST_ID.get())
        await self.may_cast.wait()
        self.stage.journal = self.journals[turn.user_message]
        return self.stage.make_runner(self.plays[turn.user_message], turn=turn, token=token)


@pytest.fixture
async def make_house():
    houses = []

    def make(**options):
        houses.append(House(**options))
        return houses[-1]

    yield make
    for house in houses:
        await house.close()


@pytest.fixture
def house(make_house):
    return make_house()


class TestClaims:
    async def test_a_turn_runs_and_its_ending_is_stored_with_its_totals(self, house):
        turn = house.queue("hello", [text("Hi."), Usage(input_tokens=4, output_tokens=1)])

        house.supervisor.wake(turn.conversation_id)
        (ending,) = await house.store.until_ended(turn)

        assert ending.status is TurnStatus.COMPLETED
        assert house.store.totals[turn.id] == (1, {"input_tokens": 4, "output_tokens": 1})
        await eventually(lambda: house.supervisor.live_turns == ())

    async def test_turns_of_one_conversation_run_one_after_the_other_in_order(self, house):
        pause = asyncio.Event()
        conversation_id = uuid4()
        turns = [
            house.queue("first", [gate(pause), text("1")], conversation_id=conversation_id),
            house.queue("second", [text("2")], conversation_id=conversation_id),
            house.queue("third", [text("3")], conversation_id=conversation_id),
        ]
        for _ in turns:
            house.supervisor.wake(conversation_id)
        await eventually(lambda: house.plays["first"].requests)

        assert house.store.claims == [turns[0].id]
        house.supervisor.wake(conversation_id)
        pause.set()
        await house.store.until_ended(*turns)

        assert house.store.claims == [turn.id for turn in turns]
        assert list(house.store.endings) == [turn.id for turn in turns]

    async def test_conversations_do_not_wait_for_each_other(self, house):
        slow, quick = house.queue("slow", [gate()]), house.queue("quick", [text("Here.")])

        house.supervisor.wake(slow.conversation_id)
        house.supervisor.wake(quick.conversation_id)
        await house.store.until_ended(quick)

        assert [live.turn for live in house.supervisor.live_turns] == [slow]

    async def test_a_wake_that_comes_during_an_empty_claim_is_not_lost(self, house):
        conversation_id = uuid4()
        answering = house.store.hold_next_answer()
        house.supervisor.wake(conversation_id)
        await house.store.claiming.wait()

        turn = house.queue("late", [text("Here.")], conversation_id=conversation_id)
        house.supervisor.wake(conversation_id)
        answering.set()

        (ending,) = await house.store.until_ended(turn)
        assert ending.status is TurnStatus.COMPLETED

    async def test_a_turn_does_not_carry_the_context_of_the_request_that_woke_it(self, house):
        REQUEST_ID.set("request 7")
        turn = house.queue("hello", [text("Hi.")])

        house.supervisor.wake(turn.conversation_id)
        await house.store.until_ended(turn)

        assert house.contexts == ["none"]

    async def test_a_claim_that_fails_is_tried_again_by_the_sweep(self, make_house, caplog):
        house = make_house(sweep_interval=0.001)
        turn = house.queue("hello", [text("Hi.")])
        house.store.failures.append(OSError("away"))

        house.supervisor.wake(turn.conversation_id)
        house.supervisor.start()
        (ending,) = await house.store.until_ended(turn)

        assert ending.status is TurnStatus.COMPLETED
        assert "could not be claimed" in caplog.text


class TestCancel:
    async def test_a_nudge_makes_a_stored_request_take_effect(self, house):
        pause = gate()
        turn = house.queue("hello", [text("One"), pause])
        house.supervisor.wake(turn.conversation_id)
        await pause.reached.wait()

        house.order(turn)
        await house.supervisor.check_requests()
        (ending,) = await house.store.until_ended(turn)

        assert ending.status is TurnStatus.CANCELLED
        assert ending.cancellation is BY_USER
        assert house.journals["hello"].replies[0].interrupted

    async def test_a_request_whose_nudge_was_lost_is_found_by_the_poll(self, make_house):
        house = make_house(poll_interval=0.001)
        house.supervisor.start()
        pause = gate()
        turn = house.queue("hello", [pause])
        house.supervisor.wake(turn.conversation_id)
        await pause.reached.wait()

        house.order(turn)

        (ending,) = await house.store.until_ended(turn)
        assert ending.status is TurnStatus.CANCELLED

    async def test_a_poll_that_hangs_does_not_hold_up_a_request_whose_nudge_was_lost(
        self, make_house
    ):
        hangs = asyncio.Event()

        async def on_poll():
            hangs.set()
            await asyncio.Event().wait()

        house = make_house(poll_interval=0.001, on_poll=on_poll)
        house.supervisor.start()
        pause = gate()
        turn = house.queue("hello", [pause])
        house.supervisor.wake(turn.conversation_id)
        await pause.reached.wait()
        await hangs.wait()

        house.order(turn)

        (ending,) = await house.store.until_ended(turn)
        assert ending.status is TurnStatus.CANCELLED

    async def test_a_request_from_before_the_start_counts(self, house):
        turn = house.queue("hello", [text("never")])
        house.order(turn)

        house.supervisor.wake(turn.conversation_id)
        (ending,) = await house.store.until_ended(turn)

        assert ending.status is TurnStatus.CANCELLED
        assert house.plays["hello"].requests == []

    async def test_a_request_reaches_its_turn_only(self, house):
        first, second = gate(), gate()
        turn, other = house.queue("one", [first]), house.queue("two", [second])
        for each in (turn, other):
            house.supervisor.wake(each.conversation_id)
        await first.reached.wait()
        await second.reached.wait()

        house.order(turn)
        await house.supervisor.check_requests()
        await house.store.until_ended(turn)

        assert other.id not in house.store.endings

    async def test_a_request_for_one_call_leaves_the_turn_going(self, house):
        turn = house.queue("hello", [call("c1", "hold", name="a")], [text("Fine.")])
        house.supervisor.wake(turn.conversation_id)
        await house.stage.until_begun("a")
        assert house.supervisor.find_call(turn.id, "c1").status is CallStatus.RUNNING

        house.order(turn, tool_id="c1")
        await house.supervisor.check_requests()
        (ending,) = await house.store.until_ended(turn)

        assert ending.status is TurnStatus.COMPLETED
        assert house.journals["hello"].outcomes["c1"].status is CallStatus.CANCELLED
        assert house.supervisor.find_call(turn.id, "c1") is None

    async def test_a_request_for_the_end_of_the_step_lets_the_step_end(self, house):
        turn = house.queue("hello", [call("c1", "hold", name="a")], [text("never")])
        house.supervisor.wake(turn.conversation_id)
        await house.stage.until_begun("a")

        house.order(turn, mode="after_step")
        await house.supervisor.check_requests()
        house.stage.release("a")
        (ending,) = await house.store.until_ended(turn)

        assert ending.status is TurnStatus.CANCELLED
        assert house.journals["hello"].outcomes["c1"].status is CallStatus.SUCCEEDED

    async def test_a_runner_that_does_not_end_is_ended_without_it(self, house, caplog):
        turn = house.queue("hello", [text("One")])
        held = house.journals["hello"].hold("save_reply")
        house.supervisor.wake(turn.conversation_id)
        await house.journals["hello"].until("save_reply", 1)

        house.order(turn)
        await house.supervisor.check_requests()
        (ending,) = await house.store.until_ended(turn)

        assert ending.status is TurnStatus.CANCELLED
        assert ending.cancellation is BY_USER
        assert "left behind" in caplog.text
        held.set()
        await eventually(
            lambda: not [t for t in asyncio.all_tasks() if t.get_name() == f"turn {turn.id}"]
        )
        assert len(house.store.endings) == 1

    async def test_what_calls_came_to_is_stored_with_the_end_where_their_own_writes_are_late(
        self, house
    ):
        turn = house.queue(
            "do it", [call("a", "hold", name="a"), call("b", "hang", name="b")], [text("never")]
        )
        journal = house.journals["do it"]
        journal.hold("call_ended")
        house.supervisor.wake(turn.conversation_id)
        await house.stage.until_begun("a", "b")

        house.order(turn)
        await house.supervisor.check_requests()
        (ending,) = await house.store.until_ended(turn)

        assert ending.status is TurnStatus.CANCELLED
        outcome = house.store.outcomes[turn.id]["a"]
        assert (outcome.status, outcome.disposition) == (
            CallStatus.CANCELLED,
            Disposition.SETTLED,
        )
        assert journal.outcomes == {}

    async def test_an_outcome_that_cannot_be_stored_does_not_keep_the_turn_from_its_end(
        self, house, monkeypatch
    ):
        monkeypatch.setattr(supervisor, "END_PAUSE", 0.01)
        turn = house.queue("do it", [call("a", "hold", name="a")], [text("never")])
        house.journals["do it"].hold("call_ended")
        house.supervisor.wake(turn.conversation_id)
        await house.stage.until_begun("a")
        house.store.failures += [OSError("no such outcome")] * supervisor.END_ATTEMPTS

        house.order(turn)
        await house.supervisor.check_requests()
        await house.store.until_ended(turn)

        assert house.store.outcomes[turn.id] == {}

    async def test_a_cancel_while_the_runner_is_made_is_bounded_too(self, house):
        house.may_cast.clear()
        turn = house.queue("hello", [text("never")])
        house.supervisor.wake(turn.conversation_id)
        await eventually(lambda: house.contexts)

        house.order(turn)
        await house.supervisor.check_requests()
        (ending,) = await house.store.until_ended(turn)

        assert ending.status is TurnStatus.CANCELLED
        assert house.store.totals[turn.id] == (0, {})

    async def test_after_a_cancel_the_next_turn_of_the_conversation_begins(self, house):
        pause = gate()
        turn = house.queue("one", [pause])
        following = house.queue("two", [text("Hi.")], conversation_id=turn.conversation_id)
        house.supervisor.wake(turn.conversation_id)
        await pause.reached.wait()

        house.order(turn)
        await house.supervisor.check_requests()
        endings = await house.store.until_ended(turn, following)

        assert [ending.status for ending in endings] == [
            TurnStatus.CANCELLED,
            TurnStatus.COMPLETED,
        ]


class TestEndings:
    async def test_a_chat_models_error_fails_the_turn_with_its_code_and_sentence(self, house):
        error = ChatModelError("overloaded", "The provider is busy.")
        turn = house.queue("hello", [failure(error)])

        house.supervisor.wake(turn.conversation_id)
        (ending,) = await house.store.until_ended(turn)

        assert ending.status is TurnStatus.FAILED
        assert (ending.error_code, ending.error_message) == ("overloaded", "The provider is busy.")

    async def test_an_unexpected_error_fails_the_turn_without_its_text(self, house, caplog):
        turn = house.queue("hello", [failure(RuntimeError("password=hunter2"))])

        house.supervisor.wake(turn.conversation_id)
        (ending,) = await house.store.until_ended(turn)

        assert ending.status is TurnStatus.FAILED
        assert ending.error_code == "internal_error"
        assert "hunter2" not in ending.error_message
        assert "A turn failed" in caplog.text

    async def test_a_fenced_turn_is_left_alone(self, house, caplog):
        turn = house.queue("hello", [text("One")])
        house.journals["hello"].fail("save_reply", Fenced("gone"))

        house.supervisor.wake(turn.conversation_id)
        await eventually(lambda: "fenced" in caplog.text and not house.supervisor.live_turns)

        assert house.store.attempts == 0

    async def test_an_ending_is_stored_again_when_the_store_was_away(self, house, caplog):
        pause = asyncio.Event()
        turn = house.queue("hello", [gate(pause), text("Hi.")])
        house.supervisor.wake(turn.conversation_id)
        await eventually(lambda: house.plays["hello"].requests)
        house.store.failures.append(OSError("away"))

        pause.set()
        (ending,) = await house.store.until_ended(turn)

        assert ending.status is TurnStatus.COMPLETED
        assert house.store.attempts == 2
        assert "was not stored" in caplog.text

    async def test_an_ending_is_stored_however_often_the_store_was_away(self, house, monkeypatch):
        monkeypatch.setattr(supervisor, "END_PAUSE", 0.001)
        pause = asyncio.Event()
        turn = house.queue("hello", [gate(pause), text("Hi.")])
        house.queue("next", [text("Me too.")], conversation_id=turn.conversation_id)
        house.supervisor.wake(turn.conversation_id)
        await eventually(lambda: house.plays["hello"].requests)
        house.store.failures.extend(OSError("away") for _ in range(20))

        pause.set()
        (ending,) = await house.store.until_ended(turn)

        assert ending.status is TurnStatus.COMPLETED
        assert house.store.attempts == 21
        await eventually(lambda: house.plays["next"].requests)

    async def test_a_process_that_goes_down_leaves_what_it_cannot_store(self, house, monkeypatch):
        monkeypatch.setattr(supervisor, "END_PAUSE", 0.001)
        turn = house.queue("hello", [gate()])
        house.supervisor.wake(turn.conversation_id)
        await eventually(lambda: house.plays["hello"].requests)
        house.store.failures.extend(OSError("away") for _ in range(100))

        await house.supervisor.drain(grace=0)

        assert turn.id not in house.store.endings
        assert not house.supervisor.live_turns


class TestFence:
    async def test_drops_what_is_live_ends_its_tools_and_stores_nothing(self, house):
        turn = house.queue("one", [call("c1", "hold", name="a")])
        house.queue("two", [text("never")], conversation_id=turn.conversation_id)
        house.supervisor.wake(turn.conversation_id)
        await house.stage.until_begun("a")

        await house.supervisor.fence()
        house.supervisor.wake(turn.conversation_id)

        assert house.supervisor.live_turns == ()
        assert house.journals["one"].outcomes["c1"].status is CallStatus.CANCELLED
        assert (house.store.attempts, house.store.claims) == (0, [turn.id])

    async def test_leaves_a_runner_behind_that_does_not_end(self, house):
        turn = house.queue("one", [text("One")])
        held = house.journals["one"].hold("save_reply")
        house.supervisor.wake(turn.conversation_id)
        await house.journals["one"].until("save_reply", 1)

        await house.supervisor.fence()

        assert house.supervisor.live_turns == ()
        assert house.store.attempts == 0
        held.set()

    async def test_gives_up_an_ending_that_the_store_does_not_take(self, house, monkeypatch):
        monkeypatch.setattr(supervisor, "END_PAUSE", 0.001)
        pause = asyncio.Event()
        turn = house.queue("one", [gate(pause), text("Hi.")])
        house.supervisor.wake(turn.conversation_id)
        await eventually(lambda: house.plays["one"].requests)
        house.store.failures.extend(OSError("away") for _ in range(1_000_000))
        pause.set()
        await eventually(lambda: house.store.attempts > 3)

        await house.supervisor.fence()

        assert house.supervisor.live_turns == ()
        assert turn.id not in house.store.endings

    async def test_a_process_that_drains_begins_nothing_after_the_return(self, house):
        house.supervisor.close()
        await house.supervisor.fence()
        house.supervisor.resume()
        turn = house.queue("one", [text("never")])

        house.supervisor.wake(turn.conversation_id)
        await asyncio.sleep(0)

        assert house.supervisor.is_draining
        assert not house.store.claiming.is_set()

    async def test_a_claim_that_was_under_way_is_dropped_and_others_begin_after_the_return(
        self, house
    ):
        turn = house.queue("one", [text("never")])
        answering = house.store.hold_next_answer()
        house.supervisor.wake(turn.conversation_id)
        await house.store.claiming.wait()

        fencing = asyncio.create_task(house.supervisor.fence())
        await asyncio.sleep(0)
        answering.set()
        await fencing
        assert house.supervisor.live_turns == ()
        assert house.contexts == []

        other = house.queue("two", [text("Hi.")])
        house.supervisor.resume()
        house.supervisor.wake(other.conversation_id)
        (ending,) = await house.store.until_ended(other)
        assert ending.status is TurnStatus.COMPLETED


class TestDrain:
    async def test_lets_a_live_turn_end_within_the_grace_and_starts_no_other(self, house):
        pause = asyncio.Event()
        turn = house.queue("one", [gate(pause), text("Hi.")])
        house.queue("two", [text("never")], conversation_id=turn.conversation_id)
        house.supervisor.wake(turn.conversation_id)
        await eventually(lambda: house.plays["one"].requests)

        draining = asyncio.create_task(house.supervisor.drain(grace=10))
        await eventually(lambda: house.supervisor.is_draining)
        pause.set()
        await draining

        assert house.store.endings[turn.id].status is TurnStatus.COMPLETED
        assert house.store.claims == [turn.id]

    async def test_cancels_what_does_not_end_as_shutdown(self, house):
        turn = house.queue("one", [call("c1", "hold", name="a")])
        house.supervisor.wake(turn.conversation_id)
        await house.stage.until_begun("a")

        await house.supervisor.drain(grace=0)

        ending = house.store.endings[turn.id]
        assert ending.status is TurnStatus.INTERRUPTED
        assert ending.cancellation.reason is CancelReason.SHUTDOWN
        assert house.journals["one"].outcomes["c1"].status is CallStatus.CANCELLED

    async def test_cancels_a_turn_whose_claim_was_under_way(self, house):
        turn = house.queue("one", [gate()])
        answering = house.store.hold_next_answer()
        house.supervisor.wake(turn.conversation_id)
        await house.store.claiming.wait()

        draining = asyncio.create_task(house.supervisor.drain(grace=0))
        await eventually(lambda: house.supervisor.is_draining)
        answering.set()
        await draining

        assert house.store.endings[turn.id].status is TurnStatus.INTERRUPTED

    async def test_ends_the_poll(self, make_house):
        polled = asyncio.Event()

        async def on_poll():
            polled.set()

        house = make_house(poll_interval=0.001, on_poll=on_poll)
        house.supervisor.start()
        await polled.wait()

        await house.supervisor.drain(grace=0)

        assert not [t for t in asyncio.all_tasks() if "poll" in t.get_name()]

    async def test_a_poll_that_fails_goes_on(self, make_house, caplog):
        polls = []
        again = asyncio.Event()

        async def on_poll():
            polls.append(None)
            if len(polls) == 1:
                raise OSError("away")
            again.set()

        house = make_house(poll_interval=0.001, on_poll=on_poll)
        house.supervisor.start()
        async with asyncio.timeout(PATIENCE):
            await again.wait()

        assert "A round failed: turn supervisor poll" in caplog.text
