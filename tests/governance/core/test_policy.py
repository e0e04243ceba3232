"""The first limit that is set wins, and it is known where it came from (T2, A3)."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from governance.core.policy import (
    BUILT_IN_CEILING,
    BUILT_IN_TIMEOUT,
    ApprovalRule,
    Hint,
    PolicyLevels,
    TimeoutSource,
    ToolLimits,
    cap,
    resolve,
    source_of,
)

LEVELS = ("hint", "override", "tool_setting", "declared", "default", "setting")
SOURCES = dict(
    zip(
        LEVELS,
        (
            TimeoutSource.HINT,
            TimeoutSource.OVERRIDE,
            TimeoutSource.SETTING,
            TimeoutSource.TOOL,
            TimeoutSource.DEFAULT,
            TimeoutSource.SETTING,
        ),
        strict=True,
    )
)


def resolved(**timeouts):
    hint = timeouts.pop("hint", None)
    levels = {level: ToolLimits(timeout=timeout) for level, timeout in timeouts.items()}
    return resolve(PolicyLevels(**levels), hint=None if hint is None else Hint(timeout=hint))


@pytest.mark.parametrize(("stronger", "weaker"), list(combinations(LEVELS, 2)))
def test_the_stronger_level_wins(stronger, weaker):
    policy = resolved(**{stronger: 11.0, weaker: 22.0})
    assert (policy.timeout, policy.timeout_source) == (11.0, SOURCES[stronger])
    policy = resolved(**{stronger: 11.0})
    assert (policy.timeout, policy.timeout_source) == (11.0, SOURCES[stronger])
    policy = resolved(**{weaker: 22.0})
    assert (policy.timeout, policy.timeout_source) == (22.0, SOURCES[weaker])


def test_where_nobody_says_anything_the_built_in_default_holds():
    policy = resolve(PolicyLevels())
    assert (policy.timeout, policy.timeout_source) == (120.0, TimeoutSource.BUILT_IN)


@pytest.mark.parametrize("nothing", [0, 0.0, -1.0])
@pytest.mark.parametrize("level", LEVELS[1:])
def test_zero_or_less_means_no_limit_and_is_not_passed_over(level, nothing):
    policy = resolved(**{level: nothing})

    assert (policy.timeout, policy.timeout_source) == (None, SOURCES[level])


@pytest.mark.parametrize(
    ("ceilings", "hint", "timeout", "capped_from"),
    [
        ({"default": 60.0}, 7200.0, 60.0, 7200.0),
        ({}, 1800.0, 1800.0, None),
        ({}, BUILT_IN_CEILING + 1, BUILT_IN_CEILING, BUILT_IN_CEILING + 1),
        ({"override": 60.0}, 0.0, 60.0, 0.0),
        ({"default": 0.0}, 0.0, None, None),
    ],
)
def test_a_hint_is_capped_by_the_ceiling_and_the_cap_is_told(ceilings, hint, timeout, capped_from):
    levels = PolicyLevels(**{name: ToolLimits(ceiling=most) for name, most in ceilings.items()})
    policy = resolve(levels, hint=Hint(timeout=hint))
    assert (policy.timeout, policy.capped_from) == (timeout, capped_from)


def test_a_hint_keeps_its_own_source():
    hint = Hint(timeout=5.0, source=TimeoutSource.ARGUMENT)
    assert resolve(PolicyLevels(), hint=hint).timeout_source is TimeoutSource.ARGUMENT


@pytest.mark.parametrize(
    ("name", "followed"),
    [("ceiling", ("override", "default", "setting")), ("max_running", LEVELS[1:])],
)
def test_the_stronger_ceiling_and_concurrency_cap_win(name, followed):
    for stronger, weaker in combinations(followed, 2):
        levels = {stronger: ToolLimits(**{name: 10}), weaker: ToolLimits(**{name: 20})}
        assert getattr(resolve(PolicyLevels(**levels)), name) == 10


def test_a_tool_cannot_raise_its_own_ceiling():
    levels = PolicyLevels(declared=ToolLimits(ceiling=10**6), setting=ToolLimits(ceiling=10.0))

    assert resolve(levels).ceiling == 10.0


@pytest.mark.parametrize("nothing", [0.0, -1.0])
def test_zero_or_less_switches_the_idle_limit_off(nothing):
    levels = PolicyLevels(
        override=ToolLimits(idle_timeout=nothing), declared=ToolLimits(idle_timeout=5.0)
    )

    assert resolve(levels).idle_timeout is None


@pytest.mark.parametrize("level", LEVELS[1:])
def test_any_level_can_switch_a_tool_off(level):
    assert not resolve(PolicyLevels(**{level: ToolLimits(enabled=False)})).enabled


@pytest.mark.parametrize("name", ["timeout", "idle_timeout", "approval_timeout", "max_running"])
@pytest.mark.parametrize(("stronger", "weaker"), list(combinations(LEVELS[1:], 2)))
def test_a_limit_comes_from_the_strongest_level_that_sets_it(name, stronger, weaker):
    levels = {stronger: ToolLimits(**{name: 0}), weaker: ToolLimits(**{name: 9})}

    assert source_of(name, PolicyLevels(**levels)) is SOURCES[stronger]
    assert source_of(name, PolicyLevels()) is TimeoutSource.BUILT_IN


@pytest.mark.parametrize(
    ("name", "levels", "source"),
    [
        ("ceiling", {"declared": 7.0, "setting": 9.0}, TimeoutSource.SETTING),
        ("approval", {"declared": "never", "default": "always"}, TimeoutSource.DEFAULT),
        ("approval", {"declared": "always", "default": "never"}, TimeoutSource.TOOL),
        ("approval", {"override": "never", "default": "always"}, TimeoutSource.OVERRIDE),
        ("approval", {}, TimeoutSource.BUILT_IN),
    ],
)
def test_a_level_that_a_limit_does_not_follow_is_not_its_source(name, levels, source):
    said = {
        level: ToolLimits(**{name: ApprovalRule(value) if name == "approval" else value})
        for level, value in levels.items()
    }

    assert source_of(name, PolicyLevels(**said)) is source


seconds = st.none() | st.sampled_from([0.0, -1.0]) | st.floats(0.001, 10**6)


@given(timeouts=st.fixed_dictionaries(dict.fromkeys(LEVELS, seconds)), ceiling=seconds)
def test_agrees_with_a_naive_model_whatever_the_levels_say(timeouts, ceiling):
    hint = timeouts["hint"]
    levels = {level: ToolLimits(timeout=timeouts[level]) for level in LEVELS[2:]}
    override = ToolLimits(timeout=timeouts["override"], ceiling=ceiling)

    policy = resolve(
        PolicyLevels(override=override, **levels),
        hint=None if hint is None else Hint(timeout=hint),
    )

    highest = BUILT_IN_CEILING if ceiling is None else ceiling
    expected, source = BUILT_IN_TIMEOUT, TimeoutSource.BUILT_IN
    for level in reversed(LEVELS):
        if timeouts[level] is not None:
            expected, source = timeouts[level], SOURCES[level]
    if source is TimeoutSource.HINT and highest > 0 and (expected <= 0 or expected > highest):
        expected = highest
    assert policy.timeout == (expected if expected > 0 else None)
    assert policy.timeout_source is source
    assert policy.timeout is None or policy.timeout > 0


@given(timeout=st.floats(-10, 10**6), ceiling=st.floats(0.001, 10**6))
def test_nothing_is_longer_than_a_ceiling(timeout, ceiling):
    assert 0 < cap(timeout, ceiling=ceiling) <= ceiling or 0 < timeout < 1e-3
