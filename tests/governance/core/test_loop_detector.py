"""A turn that goes in circles is warned, then halted; one that gets on is left alone (A4)."""

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from governance.core.loop_detector import LoopAction, LoopDetector, LoopKind

OK, WARN, HALT = LoopAction.OK, LoopAction.WARN, LoopAction.HALT
ESCALATES = [OK, OK, WARN, WARN, HALT]


def detector(**changes):
    return LoopDetector(**{"window": 20, "warn_after": 3, "halt_after": 5, **changes})


def actions(loops, calls, *, is_error=False):
    return [
        loops.observe(name, input, result, is_error=is_error).action
        for name, input, result in calls
    ]


Observed = tuple[str, dict[str, Any], str | None]  # name, input, result
A_B: list[Observed] = [("a", {}, "x"), ("b", {}, "y")]
A_B_C: list[Observed] = [*A_B, ("c", {}, "z")]
SAME: Observed = ("tool", {}, "same")
REFUSED: Observed = ("tool", {}, None)
KEYS = [{"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"d": 3, "c": 2}, "a": 1}]
# What is called with which input and result (None = refused), and what becomes of each call.
PATTERNS: dict[str, tuple[list[Observed], list[Any]]] = {
    "the same call": ([("read", {"path": "a"}, "text")] * 6, [OK, OK, WARN, WARN, HALT, HALT]),
    "other inputs": ([("read", {"path": str(n)}, "same") for n in range(20)], [OK] * 20),
    "other tools": ([(f"tool{n}", {}, "same") for n in range(20)], [OK] * 20),
    "keys in another order": (
        [("tool", KEYS[n % 2], "same") for n in range(5)],
        [OK, OK, WARN, WARN, HALT],
    ),
    "items in another order": (
        [("t", {"items": [n, n + 1]}, "same") for n in range(10)],
        [OK] * 10,
    ),
    "polling": ([("poll", {}, f"{n} % done") for n in range(30)], [OK] * 30),
    "polling that flips": ([("poll", {}, f"state {n % 2}") for n in range(30)], [OK] * 30),
    "polling that stands still, then moves": (
        [*[("poll", {}, "50 %")] * 4, *[("poll", {}, "60 %")] * 2],
        [OK, OK, WARN, WARN, OK, OK],
    ),
    "two in turn": (A_B * 5, [*[OK] * 5, *[WARN] * 4, HALT]),
    "two in turn, one with other inputs": (
        [
            ("edit", {"n": n // 2}, "ok") if n % 2 == 0 else ("test", {}, "1 failed")
            for n in range(20)
        ],
        [OK] * 20,
    ),
    "two in turn, one with other results": (
        [("a", {}, "same") if n % 2 == 0 else ("b", {}, f"{n} done") for n in range(20)],
        [OK] * 20,
    ),
    "three in turn": (A_B_C * 5, [*[OK] * 8, *[WARN] * 6, HALT]),
    "a call that is refused in the end": ([SAME, SAME, SAME, REFUSED, REFUSED], ESCALATES),
    "a call that is refused from the start": ([REFUSED] * 5, ESCALATES),
    "no valid Unicode": ([("tool", {"x": "\ud800"}, "\udfff")] * 5, ESCALATES),
}


@pytest.mark.parametrize(("calls", "expected"), PATTERNS.values(), ids=PATTERNS)
def test_what_goes_in_circles_is_warned_then_halted(calls, expected):
    assert actions(detector(), calls) == expected


def test_two_calls_in_turn_are_named():
    loops = detector()
    actions(loops, A_B * 5)
    verdict = loops.observe("a", {}, "x", is_error=False)
    assert verdict.kind is LoopKind.ALTERNATING_CALLS


def test_verdict_says_what_was_seen_and_what_comes():
    loops = detector()
    verdicts = [loops.observe("read", {}, "text", is_error=False) for _ in range(5)]
    assert verdicts[0].kind is None
    assert verdicts[0].text == ""
    assert (verdicts[2].kind, verdicts[2].count) == (LoopKind.REPEATED_CALL, 3)
    assert verdicts[2].text.startswith('[LOOP] Tool "read" was called 3 times')
    assert "After 2 more the turn is halted." in verdicts[2].text
    assert verdicts[4].text.endswith("The turn was halted automatically.")


def test_errors_in_a_row_are_warned_then_halted():
    loops = detector()
    seen = actions(loops, [("tool", {"n": n}, f"error {n}") for n in range(5)], is_error=True)
    assert seen == ESCALATES
    assert (
        loops.observe("tool", {"n": 9}, "error 9", is_error=True).kind is LoopKind.ERRORS_IN_A_ROW
    )


def test_a_success_ends_a_row_of_errors():
    loops = detector()
    errors = [("tool", {"n": n}, f"error {n}") for n in range(4)]
    assert actions(loops, errors, is_error=True)[-1] is WARN
    assert actions(loops, [("other", {}, "good")]) == [OK]
    assert actions(loops, [("tool", {"n": n}, f"error {n}") for n in (7, 8)], is_error=True) == [
        OK,
        OK,
    ]


@pytest.mark.parametrize(
    "nonce",
    [
        lambda n: str(UUID(int=n * 0x123456789ABCDEF0123456789ABCDEF)),
        lambda n: f"2026-11-21T11:50:{n:02d}.{n}23Z",
        lambda n: f"2026-11-21 11:50:{n:02d}+00:00",
        lambda n: f"Sat, 21 Nov 2026 11:50:{n:02d} GMT",
        lambda n: f"{1_795_000_000 + n}",
        lambda n: f"{1_795_000_000 + n}.{n}",
        lambda n: f"3f2a91b{n}c{n}",
        lambda n: f"<object at 0x7f00{n}a>",
        lambda n: f"0.12345678{n}",
        lambda n: f"3 failed in 0.{n}7s",
        lambda n: f"took {n} ms",
    ],
)
def test_a_nonce_in_the_result_does_not_hide_a_loop(nonce):
    seen = actions(detector(), [("tool", {}, f"start {nonce(n)} end") for n in range(1, 6)])
    assert seen[-1] is HALT


@pytest.mark.parametrize(
    "text", ["{} files", "line {}", "1{}3456 of 999999", "exit {}", "v1.{}", "facade{}"]
)
def test_a_count_in_the_result_is_progress(text):
    assert set(actions(detector(), [("tool", {}, text.format(n)) for n in range(9)])) == {OK}


def test_an_exempt_tool_never_triggers_and_hides_no_loop():
    loops = detector(exempt={"wait"})
    assert actions(loops, [("wait", {}, "same")] * 20, is_error=True) == [OK] * 20
    seen = actions(loops, [("poll", {}, "same"), ("wait", {}, "same")] * 5)
    assert seen[8] is HALT
    assert seen[9] is OK


def test_exemption_is_looked_up_at_each_call():
    exempt = {"tool"}
    loops = detector(exempt=exempt)
    assert actions(loops, [SAME] * 9)[-1] is OK
    exempt.clear()
    assert actions(loops, [SAME] * 5)[-1] is HALT


def test_parallel_calls_of_one_step_count_once():
    loops = detector()
    for step in range(5):
        verdicts = [loops.observe("tool", {}, "same", is_error=False, step=step) for _ in range(4)]
    assert verdicts[0].count == 5
    loops = detector()
    assert {
        loops.observe("t", {"n": n}, "bad", is_error=True, step=1).action for n in range(8)
    } == {OK}


def test_failing_parallel_steps_are_halted_whatever_the_window():
    loops = detector(window=5)
    for step in range(5):
        last = [
            loops.observe("t", {"n": (step, n)}, "bad", is_error=True, step=step) for n in range(8)
        ]
    assert last[-1].action is HALT


@pytest.mark.parametrize("loops", [LoopDetector.off(), detector(warn_after=None)])
def test_switched_off_it_finds_nothing(loops):
    assert set(actions(loops, [SAME] * 30, is_error=True)) == {OK}


def test_without_a_halt_it_only_warns():
    assert actions(detector(halt_after=None), [SAME] * 30)[-1] is WARN


@pytest.mark.parametrize(
    "limits",
    [
        {"warn_after": 1},
        {"warn_after": 5, "halt_after": 5},
        {"window": 4},
        {"window": 2, "halt_after": None},
    ],
)
def test_limits_that_cannot_work_are_refused(limits):
    with pytest.raises(ValueError, match="must"):
        detector(**limits)


def test_only_the_ends_of_a_long_result_are_searched_but_all_of_it_counts():
    body = "line\n" * 20_000
    assert (
        actions(detector(), [("tool", {}, f"0.{n}5s {body} 0.{n}7s") for n in range(5)])[-1] is HALT
    )
    assert set(actions(detector(), [("tool", {}, f"{body}{n}{body}") for n in range(5)])) == {OK}


def test_it_remembers_no_more_than_its_window_and_no_results():
    loops = detector(window=6)
    for n in range(100):
        loops.observe("tool", {"n": n}, "x" * 10_000, is_error=False)
    assert len(loops._recent) == 6
    assert all(len(seen.call) == len(seen.result) == 16 for seen in loops._recent)


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xy"), st.booleans()), max_size=60)
)
def test_a_halt_never_comes_without_a_warning_before(calls):
    loops = detector()
    warned = False
    for name, result, is_error in calls:
        action = loops.observe(name, {}, result, is_error=is_error).action
        assert warned or action is not HALT
        warned = warned or action is WARN


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xy")), max_size=40),
    st.sampled_from("abc"),
)
def test_any_past_followed_by_enough_repetitions_is_halted(past, name):
    loops = detector()
    actions(loops, [(tool, {}, result) for tool, result in past])
    assert actions(loops, [(name, {}, "z")] * 5)[-1] is HALT
