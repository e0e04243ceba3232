"""Any order of starts, cancels, endings, crashes and deliveries in a family of turns: nobody is forgotten (C10, C7)."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import Phase, example, given, note
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from governance import Cancellation, CancelReason, CancelSource
from tests.turns.support import TERMINAL, assert_protocol
from turns.cancelling import commands, descendants
from turns.core.turns import ACTIVE_STATUSES, LIVE_STATUSES, TurnEnding, TurnStatus, ending_of
from turns.endings import recovery, report_delivery, turn_endings
from turns.events import log
from turns.models import CancelRequest, Conversation, Message, Process, Turn
from turns.processes import process_registry
from turns.queueing import queue
from turns.tools import children
from turns.tools.children import ChildRefused, Origin

pytestmark = pytest.mark.django_db(transaction=True)

DEPTH, CHILDREN = 2, 2
ENDINGS = [
    TurnEnding(status=TurnStatus.COMPLETED),
    TurnEnding(status=TurnStatus.COMPLETED),
    TurnEnding(status=TurnStatus.FAILED, error_code="internal_error"),
    *(
        ending_of(Cancellation(reason=reason))
        for reason in (CancelReason.TIMEOUT, CancelReason.LOOP, CancelReason.SHUTDOWN)
    ),
]


class Chance:
    """Chooses by numbers that were drawn before anything happened: what there is to choose from depends on the clock."""

    def __init__(self, numbers: Sequence[int]) -> None:
        self._numbers = iter(numbers)

    def of(self, things: Sequence[Any]) -> Any:
        return things[next(self._numbers) % len(things)]


class Family:
    """Moves of a person, of owners, and of what dies under them, in one conversation and all below it."""

    def __init__(self, user: Any) -> None:
        self.user = user
        self.process = process_registry.register()
        self.top = Conversation.objects.create(owner=user)
        self.calls = 0
        self.ends: dict[Any, tuple[Any, ...]] = {}

    def close(self) -> None:
        Conversation.objects.all().delete()
        Process.objects.all().delete()

    def begin(self) -> None:
        """A turn with a sub-agent that it waits for, which has one, too, and with a detached one."""
        self.say()
        turn = self._claimed(self.top.pk)
        waited_for = self._claimed(self._started(turn, is_detached=False).conversation_id)
        self._started(waited_for, is_detached=True)
        self._claimed(self._started(turn, is_detached=True).conversation_id)

    # What happens

    def say(self, _chance: Any = None) -> None:
        queue.enqueue(self.top.pk, text="go", source="typed", client_id=None)

    def claim(self, chance: Chance) -> None:
        turn = self._one(chance, [TurnStatus.QUEUED])
        if turn is not None:
            queue.claim(turn.conversation_id, process=self.process)

    def start_child(self, chance: Chance) -> None:
        turn = self._one(chance, LIVE_STATUSES)
        if turn is not None and Turn.objects.count() < 12:
            with suppress(ChildRefused):
                self._started(turn, is_detached=chance.of([True, False]))
                assert turn.status == TurnStatus.RUNNING

    def cancel(self, chance: Chance) -> None:
        mode = chance.of(["now", "now", "after_step"])
        turn = self._one(chance, ACTIVE_STATUSES)
        if turn is not None:
            command = commands.CancelCommand(user=self.user, source=CancelSource.BUTTON, mode=mode)
            below = sum(1 for child in self._below(turn) if child.status in ACTIVE_STATUSES)
            receipt = commands.request_turn_cancel(turn.pk, command)
            if mode == "now":
                assert receipt.descendants == below

    def give_up_a_call(self, chance: Chance) -> None:
        turn = self._one(chance, LIVE_STATUSES)
        if turn is None:
            return
        if chance.of([True, False]):
            children.request_reports_of(turn.pk, self._call_of(turn))
        else:
            user = Cancellation(reason=CancelReason.USER)
            children.cancel_started_by(turn.pk, self._call_of(turn), user)

    def end(self, chance: Chance) -> None:
        ending = chance.of(ENDINGS)
        turn = self._one(chance, LIVE_STATUSES)
        if (
            turn is not None
            and turn_endings.end_turn(turn.pk, ending, epoch=turn.epoch) is not None
        ):
            report_delivery.enqueue_due_after(turn.pk)

    def end_a_session(self, chance: Chance) -> None:
        turn = self._one(chance, ACTIVE_STATUSES)
        if turn is not None and turn.parent is not None:
            children.cancel_session(turn.parent.conversation_id, turn.pk)

    def crash_and_recover(self, _chance: Any) -> None:
        process_registry.retire(self.process)
        self.process = process_registry.register()
        recovery.recover()
        assert not Turn.objects.filter(status__in=LIVE_STATUSES).exists()

    def sweep(self, _chance: Any) -> None:
        assert descendants.complete().cancelled == 0  # a cascade leaves nothing to the sweep
        recovery.complete_endings()

    # What always holds

    def nobody_works_for_what_was_cut_off(self) -> None:
        for turn in Turn.objects.filter(status__in=ACTIVE_STATUSES, parent__isnull=False):
            if turn.parent.status in descendants.CUT_OFF:
                assert turn.status in LIVE_STATUSES
                open_requests = turn.cancel_requests.filter(tool_id="", mode="now", settled_at=None)
                assert open_requests.exists()

    def an_ending_stays_as_it_is(self) -> None:
        for turn in Turn.objects.all():
            if turn.status in TERMINAL:
                end = (turn.status, turn.ended_at, turn.ended_by_reason)
                assert self.ends.setdefault(turn.pk, end) == end
                assert not CancelRequest.objects.filter(turn=turn, settled_at=None).exists()

    def the_limits_hold(self) -> None:
        for turn in Turn.objects.all():
            assert turn.depth <= DEPTH
            assert turn.children.filter(status__in=ACTIVE_STATUSES).count() <= CHILDREN
            if turn.parent is not None and turn.source != queue.REPORT_SOURCE:
                assert turn.depth == turn.parent.depth + 1
                assert turn.turn_timeout_ms <= 60_000
        for place in Conversation.objects.all():
            assert place.turns.filter(status__in=LIVE_STATUSES).count() <= 1

    def each_report_is_delivered_once_at_most_and_to_whom_it_is_due(self) -> None:
        delivered: list[str] = []
        for message in Message.objects.filter(role="user"):
            for block in message.content:
                if "sub_agent" in block:
                    delivered.append(block["sub_agent"]["turn_id"])
                    child = Turn.objects.get(pk=delivered[-1])
                    assert child.parent.conversation_id == message.conversation_id
                    assert child.is_detached
                    assert child.delivered_at is not None
                    assert child.parent.status == TurnStatus.COMPLETED
        assert len(delivered) == len(set(delivered))

    def nothing_begins_by_itself_after_a_cancel(self) -> None:
        carriers = Turn.objects.filter(source=queue.REPORT_SOURCE, status=TurnStatus.QUEUED)
        for carrier in carriers:
            asked = CancelRequest.objects.filter(
                turn__conversation=carrier.conversation, tool_id=""
            )
            assert not asked.filter(requested_at__gt=carrier.queued_at).exists()

    def every_log_follows_the_protocol(self) -> None:
        for place in Conversation.objects.all():
            events = log.read(place.pk, after=0)
            for event in events:  # the calls themselves are not played here
                event.pop("tool_id", None)
            assert_protocol(events)

    def _started(self, turn: Turn, *, is_detached: bool) -> Turn:
        self.calls += 1
        origin = Origin(turn_id=turn.pk, epoch=turn.epoch, tool_id=f"c{self.calls}", time_left=60.0)
        made = children.start(origin, agent="", message="dig", is_detached=is_detached)
        child = Turn.objects.select_related("conversation").get(pk=made.turn_id)
        assert child.conversation.parent_id == turn.conversation_id
        assert child.conversation.owner_id == self.user.pk
        return child

    def _claimed(self, conversation_id: Any) -> Turn:
        found = queue.claim(conversation_id, process=self.process)
        assert found is not None
        claimed, _ = found
        return Turn.objects.get(pk=claimed.id)

    def _call_of(self, turn: Turn) -> str:
        child = turn.children.first()
        return child.parent_tool_id if child else "none"

    def _one(self, chance: "Chance", statuses: Any) -> Turn | None:
        turns = Turn.objects.filter(status__in=statuses)
        listed = list(turns.order_by("depth", "parent_tool_id", "number"))
        return chance.of(listed) if listed else None

    def _below(self, turn: Turn) -> list[Turn]:
        found = list(turn.children.all())
        return found + [one for child in found for one in self._below(child)]


MOVES = [
    Family.say,
    Family.claim,
    Family.claim,
    Family.start_child,
    Family.cancel,
    Family.give_up_a_call,
    Family.end,
    Family.end,
    Family.end,
    Family.end_a_session,
    Family.crash_and_recover,
    Family.sweep,
]
# A report to a sub-agent that has ended once began a third turn below a parent of two.
CARRIED_BESIDE_TWO = [
    (Family.end, [673, 88, 145, 168]),
    (Family.end_a_session, [477, 324, 40, 0]),
    (Family.claim, [403, 178, 595, 609]),
    (Family.end_a_session, [789, 223, 577, 609]),
    (Family.end_a_session, [498, 166, 793, 207]),
    (Family.start_child, [240, 71, 69, 301]),
    (Family.give_up_a_call, [197, 342, 864, 770]),
    (Family.end, [371, 428, 418, 6]),
]
RULES = [
    Family.nobody_works_for_what_was_cut_off,
    Family.an_ending_stays_as_it_is,
    Family.the_limits_hold,
    Family.each_report_is_delivered_once_at_most_and_to_whom_it_is_due,
    Family.nothing_begins_by_itself_after_a_cancel,
    Family.every_log_follows_the_protocol,
]


def test_any_order_of_events_leaves_nobody_behind(ada, settings):
    settings.TURNS_MAX_DEPTH, settings.TURNS_MAX_CHILDREN = DEPTH, CHILDREN
    settings.TURNS_PARK_AFTER = None

    numbers = st.lists(st.integers(0, 999), min_size=4, max_size=4)
    plays = st.lists(st.tuples(st.sampled_from(MOVES), numbers), min_size=8, max_size=8)

    @hypothesis_settings(max_examples=15, phases=[Phase.explicit, Phase.generate])
    @example(CARRIED_BESIDE_TWO)
    @given(plays)
    def use_script(moves: Any) -> None:
        family = Family(ada)
        try:
            family.begin()
            for move, drawn in moves:
                note(move.__name__)
                move(family, Chance(drawn))
                for rule in RULES:
                    rule(family)
        finally:
            family.close()

    use_script()
