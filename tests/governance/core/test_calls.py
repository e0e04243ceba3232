"""A call moves along the table of allowed moves, and nothing comes after a terminal status."""

from itertools import product

import pytest

from governance.core.calls import ALLOWED_TRANSITIONS, OPEN_STATUSES, CallStatus, check_transition
from governance.core.exceptions import IllegalTransition

TERMINAL = [status for status in CallStatus if status.is_terminal]


def test_four_statuses_are_open():
    assert set(OPEN_STATUSES) == {"pending", "awaiting_approval", "running", "cancelling"}


def test_nothing_comes_after_a_terminal_status(subtests: pytest.Subtests):
    for before, after in product(TERMINAL, CallStatus):
        with subtests.test(before=before, after=after), pytest.raises(IllegalTransition):
            check_transition(before, after)


@pytest.mark.parametrize("after", ["succeeded", "timed_out", "abandoned"])
@pytest.mark.parametrize("before", ["pending", "awaiting_approval"])
def test_what_never_ran_has_no_ending_of_a_run(before, after):
    with pytest.raises(IllegalTransition):
        check_transition(CallStatus(before), CallStatus(after))


@pytest.mark.parametrize("decision", [CallStatus.DENIED, CallStatus.EXPIRED])
def test_only_a_call_that_awaits_approval_is_decided_on(decision):
    from_here = [status for status in CallStatus if decision in ALLOWED_TRANSITIONS.get(status, ())]

    assert from_here == [CallStatus.AWAITING_APPROVAL]


@pytest.mark.parametrize("status", [CallStatus(status) for status in OPEN_STATUSES])
def test_every_open_call_can_be_repaired_and_can_turn_out_not_to_have_started(status):
    check_transition(status, CallStatus.REPAIRED)
    check_transition(status, CallStatus.NOT_STARTED)


def test_cancelling_does_not_go_back_to_running():
    with pytest.raises(IllegalTransition):
        check_transition(CallStatus.CANCELLING, CallStatus.RUNNING)


def test_an_illegal_move_names_both_statuses():
    with pytest.raises(IllegalTransition, match=r"succeeded.*running"):
        check_transition(CallStatus.SUCCEEDED, CallStatus.RUNNING)
