"""What breaks the site of a soak keeps to its plan: else a run that passed might have broken little."""

import random
from itertools import islice

import pytest

from tests.faults.fault_injection import FaultInjector, Pace, persist, shuffled


def test_every_fault_comes_once_before_one_comes_again_in_an_order_that_follows_from_the_seed():
    first, same, other = (
        [*islice(shuffled("abcde", rng=random.Random(seed)), 15)] for seed in (1, 1, 2)
    )
    assert first == same != other
    assert [sorted(first[at : at + 5]) for at in (0, 5, 10)] == [[*"abcde"]] * 3


def test_faults_are_spread_over_the_turns_and_one_without_harm_is_made_up_for():
    pace = Pace(turns=6, faults=2)
    for _ in range(3):
        pace.note_turn()
    assert pace.until_due()
    pace.note_fault(has_harmed=False)
    assert pace.until_due()  # the same one again
    pace.note_fault(has_harmed=True)
    for _ in range(3):
        pace.note_turn()
    assert not pace.is_over.is_set()  # so many turns, but not so many faults
    assert pace.until_due()
    pace.note_fault(has_harmed=True)
    pace.note_turn()
    assert pace.is_over.is_set()
    assert not pace.until_due()


def test_a_promise_that_breaks_under_a_breaker_ends_the_soak():
    def fail() -> bool:
        raise AssertionError("it lives")

    pace = Pace(turns=1, faults=1)
    injector = FaultInjector("one", [fail], rng=random.Random(1), longest_pause=1.0, pace=pace)
    pace.note_turn()
    injector.run()
    assert str(injector.problem) == "it lives"
    assert (pace.is_over.is_set(), injector.done) == (True, [])


def test_a_process_that_fell_at_the_last_moment_is_tended_while_no_fault_is_due():
    pace, is_alive = Pace(turns=1, faults=1), [False]

    def tend() -> None:
        is_alive[0] = True
        pace.note_turn()  # which only a process that is there takes

    def break_it() -> bool:
        assert is_alive == [True]
        return True

    injector = FaultInjector(
        "one", [break_it], rng=random.Random(1), longest_pause=1.0, pace=pace, tend=tend
    )
    injector.run()
    assert (injector.problem, injector.done) == (None, ["break_it one"])


def test_whoever_asks_the_dying_hears_the_last_reason_in_the_end():
    answers = iter([False, False, True])

    def ask() -> str:
        assert next(answers)
        return "here"

    assert persist(ask) == "here"

    def never() -> str:
        raise AssertionError("away")

    with pytest.raises(AssertionError, match=r"no answer in 0\.1 s: away"):
        persist(never, within=0.1)
