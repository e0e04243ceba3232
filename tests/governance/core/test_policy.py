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


@pytest.mark.parametrize("level", LEVELS)
def test_every_level_wins_over_the_built_in_default(level):
    policy = resolved(**{level: 11.0})

    assert (policy.timeout, policy.timeout_source) == (11.0, SOURCES[level])


def test_where_nobody_says_anything_the_built_in_default_holds():
    policy = resolve(PolicyLevels())

    assert (policy.timeout, policy.timeout_source) == (120.0, TimeoutSource.BUILT_IN)


@pytest.mark.parametrize("nothing", [0, 0.0, -1.0])
@pytest.mark.parametrize("level", LEVELS[1:])
def test_zero_or_less_means_no_limit_and_is_not_passed_over(level, nothing):
    policy = resolved(**{level: nothing})

    assert (policy.timeout, policy.timeout_source) == (None, SOURCES[level])


def test_a_removed_override_lets_the_next_level_hold_again():
    assert resolved(override=5.0, declared=7.0).timeout == 5.0
    assert resolved(declared=7.0).timeout == 7.0


class TestHint:
    def test_is_capped_by_the_ceiling_and_the_cap_is_told(self):
        levels = PolicyLevels(default=ToolLimits(ceiling=60.0))

        policy = resolve(levels, hint=Hint(timeout=7200.0))

        assert (policy.timeout, policy.capped_from) == (60.0, 7200.0)

    def test_under_the_ceiling_is_taken_as_it_is(self):
        policy = resolve(PolicyLevels(), hint=Hint(timeout=1800.0))

        assert (policy.timeout, policy.capped_from) == (1800.0, None)

    def test_that_wants_no_limit_gets_the_ceiling(self):
        policy = resolve(PolicyLevels(override=ToolLimits(ceiling=60.0)), hint=Hint(timeout=0.0))

        assert (policy.timeout, policy.capped_from) == (60.0, 0.0)

    def test_that_wants_no_limit_gets_none_where_there_is_no_ceiling(self):
        policy = resolve(PolicyLevels(default=ToolLimits(ceiling=0.0)), hint=Hint(timeout=0.0))

        assert (policy.timeout, policy.capped_from) == (None, None)

    def test_keeps_its_own_source(self):
        hint = Hint(timeout=5.0, source=TimeoutSource.ARGUMENT)

        assert resolve(PolicyLevels(), hint=hint).timeout_source is TimeoutSource.ARGUMENT

    def test_is_capped_by_the_built_in_ceiling_where_nobody_sets_one(self):
        policy = resolve(PolicyLevels(), hint=Hint(timeout=BUILT_IN_CEILING + 1))

        assert policy.timeout == BUILT_IN_CEILING


@pytest.mark.parametrize(
    ("stronger", "weaker"), list(combinations(("override", "default", "setting"), 2))
)
def test_the_stronger_ceiling_wins(stronger, weaker):
    levels = {stronger: ToolLimits(ceiling=10.0), weaker: ToolLimits(ceiling=20.0)}

    assert resolve(PolicyLevels(**levels)).ceiling == 10.0


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


@pytest.mark.parametrize(("stronger", "weaker"), list(combinations(LEVELS[1:], 2)))
def test_the_stronger_concurrency_cap_wins(stronger, weaker):
    levels = {stronger: ToolLimits(max_running=1), weaker: ToolLimits(max_running=9)}

    assert resolve(PolicyLevels(**levels)).max_running == 1


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
