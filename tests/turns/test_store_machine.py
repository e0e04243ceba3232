"""Any order of finish, timeout, cancel, late result, crash and recovery on real rows: one ending for each (B6, H1)."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.utils import timezone
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from governance import (
    CallStatus,
    Cancellation,
    CancellationToken,
    CancelReason,
    CancelSource,
    Disposition,
    ErrorType,
    LateSettlement,
    LiveCall,
    ToolCall,
    ToolOutcome,
    selectors,
)
from governance.models import ToolCall as CallRow
from tests.turns.support import TERMINAL, assert_protocol
from turns.cancelling import commands
from turns.core.chat_model import message_of
from turns.core.exceptions import Fenced
from turns.core.ports import Answer, ClaimedTurn
from turns.core.repairs import violations
from turns.core.turns import TurnEnding, TurnStatus, ending_of
from turns.endings import recovery, turn_endings
from turns.events import log
from turns.events.notifications import Notifications
from turns.exceptions import AlreadyReplaced, ConversationBusy
from turns.history import histories
from turns.models import CancelRequest, Conversation, Process, Turn
from turns.processes import process_registry
from turns.queueing import queue
from turns.running.journal import DatabaseJournal, ProgressReport, store_progress

pytestmark = pytest.mark.django_db(transaction=True)

OUTCOMES = {
    CallStatus.SUCCEEDED: (None, Disposition.SETTLED),
    CallStatus.FAILED: (ErrorType.EXECUTION_ERROR, Disposition.SETTLED),
    CallStatus.TIMED_OUT: (ErrorType.TIMEOUT, Disposition.SETTLED),
    CallStatus.ABANDONED: (ErrorType.TIMEOUT, Disposition.INDETERMINATE),
    CallStatus.CANCELLED: (ErrorType.CANCELLED, Disposition.SETTLED),
}
RUNNING = ("running", "cancelling")
NTH = st.integers(0, 5)  # the place of something in a list, counted around
ENDINGS = [
    TurnEnding(status=TurnStatus.COMPLETED),
    TurnEnding(status=TurnStatus.FAILED, error_code="internal_error"),
    *(
        ending_of(Cancellation(reason=reason))
        for reason in (CancelReason.TIMEOUT, CancelReason.LOOP, CancelReason.SHUTDOWN)
    ),
]


class OneConversation(RuleBasedStateMachine):
    """Moves of an owner, of clients, and of the processes that die under them."""

    user: Any

    def __init__(self) -> None:
        super().__init__()
        self.process = process_registry.register()
        self.conversation = Conversation.objects.create(owner=self.user)
        self.journal: DatabaseJournal | None = None
        self.claimed: Any = None
        self.old_journals: list[DatabaseJournal] = []
        self.live: dict[str, LiveCall] = {}
        self.step = self.names = 0
        self.ended: dict[Any, tuple[Any, ...]] = {}

    def teardown(self) -> None:
        Conversation.objects.all().delete()
        CallRow.objects.all().delete()
        Process.objects.all().delete()

    # What clients do

    @precondition(lambda self: self.conversation.turns.count() < 4)
    @rule()
    def say(self) -> None:
        queue.enqueue(self.conversation.pk, text="go", source="typed", client_id=None)

    @precondition(lambda self: 0 < self.conversation.turns.count() < 6)
    @rule(nth=NTH)
    def edit(self, nth: int) -> None:
        """A message is sent again in another form: everything from there on is replaced, or nothing is."""
        turns = list(self.conversation.turns.order_by("number"))
        chosen = turns[nth % len(turns)]
        before = self._rows()
        try:
            made = queue.enqueue(
                self.conversation.pk,
                text="anew",
                source="typed",
                client_id=None,
                replaces=chosen.pk,
            ).turn
        except (AlreadyReplaced, ConversationBusy):
            assert chosen.replaced_by_id or any(turn.status not in TERMINAL for turn in turns)
            assert self._rows() == before
            return
        assert made.version == chosen.version + 1
        for turn in turns:
            known, turn.replaced_by_id = turn.replaced_by_id, None
            turn.refresh_from_db()
            is_behind = turn.number >= chosen.number
            assert turn.replaced_by_id == (known or (made.pk if is_behind else None))

    @rule(mode=st.sampled_from(["now", "after_step"]))
    def cancel_turn(self, mode: str) -> None:
        turn = commands.active_turn(self.conversation.pk)
        if turn is not None:
            command = commands.CancelCommand(user=self.user, source=CancelSource.BUTTON, mode=mode)
            commands.request_turn_cancel(turn.pk, command)

    @precondition(lambda self: self.live)
    @rule(nth=NTH)
    def cancel_call(self, nth: int) -> None:
        command = commands.CancelCommand(user=self.user, source=CancelSource.BUTTON)
        call_id = self._live_call(nth)
        commands.request_call_cancel(self.claimed.id, call_id, command)

    # What the owner does

    @rule()
    def claim(self) -> None:
        self._claim()

    @precondition(lambda self: self.journal and not self.live)
    @rule(calls=st.integers(1, 3))
    def ask_for_tools(self, calls: int) -> None:
        self.step += 1
        made = []
        for position in range(calls):
            self.names += 1
            made.append(
                ToolCall(
                    id=f"c{self.names}",
                    tool_name="quick",
                    scope=str(self.conversation.pk),
                    position=position,
                )
            )

        async def write() -> None:
            message = message_of("hm", tuple(made), turn_id=str(self.claimed.id))
            await self.owner.save_reply(self.step, message, made)
            await self.owner.flush()
            token = CancellationToken()
            self.live = {call.id: LiveCall(call, token=token) for call in made}

        self._write(write)

    @precondition(lambda self: self.journal and not self.live)
    @rule()
    def say_something(self) -> None:
        """The message of the next step is there as far as it was said."""

        async def write() -> None:
            await self.owner.save_text(self.step + 1, "h")
            await self.owner.save_text(self.step + 1, "hm")

        self._write(write)

    @precondition(lambda self: self.journal and self.live)
    @rule(nth=NTH)
    def start_call(self, nth: int) -> None:
        live = self.live[self._live_call(nth)]
        self._write(lambda: self.owner.call_started(live))

    @precondition(lambda self: self.journal and self.live)
    @rule(nth=NTH, status=st.sampled_from(sorted(OUTCOMES)))
    def end_call(self, nth: int, status: CallStatus) -> None:
        call_id = self._live_call(nth)
        row = selectors.call(str(self.claimed.id), call_id)
        if row.status == "pending" and status not in (CallStatus.FAILED, CallStatus.CANCELLED):
            return
        self._write(lambda: self.owner.call_ended(self.live[call_id], _outcome(status)))
        self.live.pop(call_id, None)

    @precondition(lambda self: self.journal and self.live)
    @rule(status=st.sampled_from(sorted(OUTCOMES)))
    def write_all_at_once(self, status: CallStatus) -> None:
        """What waits together is one transaction, whatever it is."""
        rows = {row.call_id: row.status for row in selectors.calls_of_group(str(self.claimed.id))}
        starting = [call for id, call in self.live.items() if rows[id] == "pending"]
        ending = [call for id, call in self.live.items() if rows[id] in ("running", "cancelling")]

        async def write() -> None:
            owner = self.owner
            writes = [owner.call_started(call) for call in starting]
            writes += [owner.call_cancelling(call) for call in self.live.values()]
            writes += [owner.call_ended(call, _outcome(status)) for call in ending]
            await asyncio.gather(*writes)

        self._write(write)
        for call in ending:
            self.live.pop(call.id)

    @precondition(lambda self: self.claimed)
    @rule(places=st.sets(st.integers(0, 5)))
    def report_progress(self, places: set[int]) -> None:
        """Of whatever call, at whatever time: what has no right to be told is left out."""
        known = [row.call_id for row in self._calls()]
        reports = [
            ProgressReport(
                turn=self.claimed, tool_id=id, tool_name="quick", progress={}, elapsed_ms=1
            )
            for place, id in enumerate(known)
            if place in places
        ]
        store_progress(reports)

    @precondition(lambda self: self.journal)
    @rule(nth=NTH)
    def settle_late(self, nth: int) -> None:
        rows = self._calls()
        if not rows:
            return
        row = rows[nth % len(rows)]
        late = LateSettlement(kind="returned", text="too late", after=1.0)

        async def settle() -> None:
            call = ToolCall(id=row.call_id, tool_name="quick")
            await self.owner.call_settled_late(LiveCall(call, token=CancellationToken()), late)

        self._write(settle)

    @precondition(lambda self: self.journal)
    @rule(
        ending=st.sampled_from(ENDINGS),
        status=st.sampled_from(sorted(OUTCOMES)),
        said=st.sampled_from([None, "", "Done."]),
    )
    def end_turn(self, ending: TurnEnding, status: CallStatus, said: str | None) -> None:
        """Its calls end with it; what they came to as far as the owner knows counts, where that may be."""
        message = message_of(said or "", (), turn_id=str(self.claimed.id))
        answer = None if said is None else Answer(step=self.step + 1, message=message)
        outcomes = {id: _outcome(status) for id in self.live}
        group = str(self.claimed.id)
        running = {
            row.call_id for row in selectors.calls_of_group(group) if row.status in RUNNING
        } & outcomes.keys()
        turn_endings.end_turn(
            self.claimed.id,
            ending,
            epoch=self.claimed.epoch,
            outcomes=outcomes,
            answer=None if self.live else answer,
        )
        for row in selectors.calls_of_group(group):
            if row.call_id in running:
                assert (row.status, row.result) == (status, outcomes[row.call_id].result)
                assert not row.is_synthetic
        self._drop_journal()

    # What goes wrong

    @rule()
    def crash_and_recover(self) -> None:
        process_registry.retire(self.process)
        self.process = process_registry.register()
        self._drop_journal()
        recovery.recover()
        before = self._rows()
        assert recovery.recover() == Notifications()
        assert self._rows() == before

    @precondition(lambda self: self.old_journals)
    @rule(nth=NTH)
    def write_by_an_earlier_owner(self, nth: int) -> None:
        journal = self.old_journals[nth % len(self.old_journals)]
        before = self._rows()

        async def write() -> None:
            await journal.save_text(99, "hm")

        with pytest.raises(Fenced):
            async_to_sync(write)()
        assert self._rows() == before

    # What always holds

    @invariant()
    def the_log_follows_the_protocol(self) -> None:
        assert_protocol(log.read(self.conversation.pk, after=0))

    @invariant()
    def the_history_is_valid_without_a_repair(self) -> None:
        history = histories.load(self.conversation.pk, found_when="test")
        assert violations(history.messages) == []
        assert history.repairs == ()

    @invariant()
    def what_was_replaced_is_in_no_history(self) -> None:
        told = {m.turn_id for m in histories.load(self.conversation.pk, found_when="test").messages}
        replaced = self.conversation.turns.exclude(replaced_by=None).values_list("pk", flat=True)
        assert told.isdisjoint(map(str, replaced))
        shown = self.conversation.messages.filter(is_streaming=False, turn__replaced_by=None)
        ended = shown.filter(turn__status__in=TERMINAL).values_list("turn_id", flat=True)
        assert {str(pk) for pk in ended} <= told

    @invariant()
    def an_ending_stays_as_it_is(self) -> None:
        for turn in Turn.objects.filter(conversation=self.conversation):
            if turn.status in TERMINAL:
                end = (turn.status, turn.ended_at, turn.ended_by_reason)
                assert self.ended.setdefault(turn.pk, end) == end
                assert not CancelRequest.objects.filter(turn=turn, settled_at=None).exists()
            for call in selectors.calls_of_group(str(turn.pk)):
                is_terminal = CallStatus(call.status).is_terminal
                assert is_terminal or turn.status not in TERMINAL
                if is_terminal:
                    fact = (call.status, call.result, call.ended_at)
                    assert self.ended.setdefault(call.pk, fact) == fact

    @invariant()
    def at_most_one_turn_is_live(self) -> None:
        assert self.conversation.turns.filter(status__in=["running", "cancelling"]).count() <= 1

    @invariant()
    def nothing_queued_before_a_cancel_has_started_after_it(self) -> None:
        for request in CancelRequest.objects.filter(
            turn__conversation=self.conversation, tool_id=""
        ):
            overtaken = self.conversation.turns.filter(
                number__gt=request.turn.number, queued_at__lt=request.requested_at
            )
            assert not overtaken.exclude(started_at=None).exists()

    @property
    def owner(self) -> DatabaseJournal:
        """The journal of the turn."""
        assert self.journal is not None
        return self.journal

    def _claim(self) -> None:
        claimed = queue.claim(self.conversation.pk, process=self.process)
        if claimed is not None:
            self._own(claimed[0])

    def _own(self, claimed: ClaimedTurn) -> None:
        self._drop_journal()
        self.claimed = claimed
        self.journal = DatabaseJournal(claimed, token=CancellationToken())
        self.step = 0

    def _live_call(self, nth: int) -> str:
        known = sorted(self.live)
        return known[nth % len(known)]

    def _write(self, write: Any) -> None:
        """A write of the owner may find that the turn is not its own any more."""

        async def attempt() -> None:
            with suppress(Fenced):
                await write()

        async_to_sync(attempt)()

    def _drop_journal(self) -> None:
        if self.journal is not None:
            self.old_journals.append(self.journal)
        self.journal, self.live = None, {}

    def _calls(self) -> list[CallRow]:
        """Return the calls of the turn by their ids: those of a step may have come in any order."""
        calls = selectors.calls_of_group(str(self.claimed.id))
        return sorted(calls, key=lambda call: call.call_id)

    def _rows(self) -> Any:
        groups = [str(pk) for pk in self.conversation.turns.values_list("pk", flat=True)]
        calls = [(c.call_id, c.status, c.result) for c in selectors.calls_of_groups(groups)]
        turns = list(self.conversation.turns.order_by("number").values())
        return calls, turns, list(self.conversation.messages.order_by("pk").values())


def _outcome(status: CallStatus) -> ToolOutcome:
    error_type, disposition = OUTCOMES[status]
    return ToolOutcome(
        status=status,
        result=f"{status} at {timezone.now().isoformat()}",
        is_error=error_type is not None,
        error_type=error_type,
        disposition=disposition,
    )


def test_any_order_of_events_leaves_one_ending_each(ada, settings):
    settings.TURNS_PARK_AFTER = 50  # more crashes than a story has

    class Machine(OneConversation):
        user = ada

    run_state_machine_as_test(
        Machine,
        settings=hypothesis_settings(max_examples=8, stateful_step_count=25),
    )
