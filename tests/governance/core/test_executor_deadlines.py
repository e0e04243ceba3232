"""The limits of a running call: when it ends, and how they move, by hand and by edited policies (T1, T5, T9, A3)."""

import asyncio

import pytest

from governance import (
    CallStatus,
    Limits,
    TimeoutSource,
    ToolLimits,
)
from tests.governance.core.support import (
    EditedLevels,
    ExecutorHarness,
    advance,
    asking_for,
    finish,
    on_manual_clock,
    one_waits,
    settle,
    start_one,
    started,
)

SUCCEEDED, TIMED_OUT = CallStatus.SUCCEEDED, CallStatus.TIMED_OUT
HINT, TOOL = TimeoutSource.HINT, TimeoutSource.TOOL
MANUAL, OVERRIDE = TimeoutSource.MANUAL, TimeoutSource.OVERRIDE


def by_hand(seconds):
    return lambda harness, call: harness.executor.set_deadline(call.live, seconds, by="ada")


def by_policy(**levels):
    def edit(harness, _call):
        harness.policies.edit(**levels)
        harness.executor.apply_policies()

    return edit


def nothing_is_edited(harness, _call):
    harness.executor.apply_policies()


def says(output):
    return lambda _harness, call: call.body.context.progress(output=output)


def returns(_harness, call):
    call.body.release()


def hold_up(seconds):
    """Let the loop stand still."""
    return lambda *_: asyncio.get_running_loop().jump(seconds)


def limits(**seconds):
    return ToolLimits(**seconds)


# What the tool declares (and a call asks for), the edited levels, what happens (a number lets so many seconds pass),
# at which second the call ends, its limit then, and how the limit was moved.
TIMELINES = {
    "extended": (({"timeout": 5}, {}, [4, by_hand(20)]), (20, (20, MANUAL), [(5, 20)])),
    "shortened": (({"timeout": 60}, {}, [by_hand(10)]), (10, (10, MANUAL), [(60, 10)])),
    "shortened too late": (
        ({"timeout": 60}, {}, [30, by_hand(10)]),
        (30, (10, MANUAL), [(60, 10)]),
    ),
    "extended up to the ceiling": (
        ({"timeout": 5}, {"default": limits(ceiling=60)}, [by_hand(7200)]),
        (60, (60, MANUAL), [(5, 60)]),
    ),
    "extended, but silent": (
        ({"timeout": 60, "idle_timeout": 5}, {}, [by_hand(600)]),
        (5, (600, MANUAL), [(60, 600)]),
    ),
    "extended, and no policy is edited": (
        ({"timeout": 5}, {}, [by_hand(20), nothing_is_edited]),
        (20, (20, MANUAL), [(5, 20)]),
    ),
    "edited policy": (
        ({}, {"override": limits(timeout=60)}, [10, by_policy(override=limits(timeout=12))]),
        (12, (12, OVERRIDE), [(60, 12)]),
    ),
    "removed override": (
        ({"timeout": 20}, {"override": limits(timeout=60)}, [by_policy()]),
        (20, (20, TOOL), [(60, 20)]),
    ),
    "edited ceiling over a hint": (
        ({"hint": 300}, {"default": limits(ceiling=600)}, [by_policy(default=limits(ceiling=60))]),
        (60, (60, HINT), [(300, 60)]),
    ),
    "edited idle limit, silent": (
        ({"timeout": 60}, {}, [by_policy(override=limits(idle_timeout=5))]),
        (5, (60, TOOL), [(60, 60)]),
    ),
    "hint above the ceiling": (
        ({"hint": 7200}, {"default": limits(ceiling=60)}, []),
        (60, (60, HINT), []),
    ),
    "silent after signs of life": (
        ({"timeout": 60, "idle_timeout": 5}, {}, [4, says(".")] * 5),
        (25, (60, TOOL), []),
    ),
    "output": (({"timeout": 5}, {}, [says("line 1\n"), says("line 2\n")]), (5, (5, TOOL), [])),
    "side effects": (({"timeout": 5, "side_effects": True}, {}, []), (5, (5, TOOL), [])),
    "returns in time": (({"timeout": 5}, {}, [4.999, returns]), (4.999, (5, TOOL), [])),
    "returns in the moment": (({"timeout": 5}, {}, [returns, hold_up(5)]), (5, (5, TOOL), [])),
    "returns without a limit": (({"timeout": 0}, {}, [300, returns]), (300, (None, TOOL), [])),
    "returns with one below zero": (({"timeout": -1}, {}, [300, returns]), (300, (None, TOOL), [])),
}
WORDS = {
    "shortened too late": "within 10s",
    "edited ceiling over a hint": "It requested 300s, which is more than is allowed.",
    "hint above the ceiling": "It requested 7200s, which is more than is allowed.",
    "silent after signs of life": "within 5s. It made no progress for that long.",
}
OUTPUT = {"silent after signs of life": ".....", "output": "line 1\nline 2\n"}


@pytest.mark.parametrize("name", TIMELINES)
@on_manual_clock
async def test_a_call_ends_when_its_limits_say(name):
    (declared, levels, steps), (at, limit, moves) = TIMELINES[name]
    policies = EditedLevels(**levels)
    harness = ExecutorHarness(policies=policies)
    harness.policies = policies
    harness.gated(**{key: value for key, value in declared.items() if key != "hint"})
    hint = declared.get("hint")
    (call,) = await started(harness, "A", input=hint and asking_for(hint * 1_000))
    for step in (*steps, 300):
        if callable(step):
            step(harness, call)
        else:
            await advance(step)
    assert call.task.done()
    outcome = await call.outcome()
    assert outcome.status is (SUCCEEDED if name.startswith("returns") else TIMED_OUT)
    assert outcome.duration == pytest.approx(at)
    assert (outcome.timeout, outcome.timeout_source) == limit
    assert WORDS.get(name, "") in outcome.result
    assert outcome.result.endswith(OUTPUT.get(name, ""))
    assert ("made no progress" in outcome.result) is ("silent" in name)
    assert ("an effect" in outcome.result) is ("side_effects" in declared)
    changes = harness.observer.changes["A"]
    assert [(change.from_timeout, change.to_timeout) for change in changes] == moves
    assert all(change.source is limit[1] for change in changes)
    assert all(change.by == ("ada" if limit[1] is MANUAL else "") for change in changes)
    told = [notice for notice in harness.observer.names() if notice != "progressed"]
    assert told == ["started", *["moved"] * len(moves), "ended"]


class TestMovedDeadline:
    """T9: whatever the call is at."""

    @on_manual_clock
    async def test_of_a_call_that_waits_counts_from_its_start(self):
        harness, first, waiting = await one_waits(timeout=5)

        assert harness.executor.set_deadline(waiting.live, 60, by="ada")
        assert waiting.live.timeout == 60
        assert harness.executor.set_deadline(waiting.live, waiting.live.timeout + 10, by="eve")
        await advance(4)
        first.body.release()
        await waiting.running()
        await advance(69)

        assert not waiting.task.done()
        (change,) = harness.observer.changes[waiting.live.id]
        assert (change.from_timeout, change.to_timeout, change.by) == (5, 70, "eve")
        assert harness.observer.names("B") == ["queued", "started", "moved"]
        await advance(2)
        outcome = await waiting.outcome()
        assert (outcome.status, outcome.timeout) == (CallStatus.TIMED_OUT, 70)
        assert outcome.timeout_source == "manual"

    @on_manual_clock
    async def test_of_a_call_that_waits_is_capped_as_it_starts(self):
        harness = ExecutorHarness(
            limits=Limits(max_running=1),
            policies=EditedLevels(override=ToolLimits(ceiling=20)),
        )
        harness.gated(timeout=5)
        (first,) = await started(harness, "A")
        waiting = harness.call(id="B")
        await settle()

        assert harness.executor.set_deadline(waiting.live, 600)
        assert waiting.live.timeout == 20
        first.body.release()
        await waiting.running()

        assert waiting.live.timeout == 20

    async def test_is_refused_after_the_end(self):
        harness, call = await start_one()
        await finish(call)

        assert not harness.executor.set_deadline(call.live, 10)
        assert harness.observer.changes[call.live.id] == []

    @on_manual_clock
    async def test_is_refused_once_the_end_is_decided(self):
        harness, call = await start_one(timeout=5)
        call.body.is_stubborn = True

        await advance(5.1)

        assert not harness.executor.set_deadline(call.live, 600)
        await finish(call)

    @on_manual_clock
    async def test_by_a_policy_that_is_edited_while_the_start_is_recorded(self):
        policies = EditedLevels(override=ToolLimits(timeout=60))
        harness = ExecutorHarness(policies=policies)
        harness.gated()
        harness.observer.gates["started"] = asyncio.Event()
        call = harness.call()
        await settle()

        policies.edit(override=ToolLimits(timeout=5))
        harness.executor.apply_policies()
        assert call.live.timeout == 60  # what the observer is writing down
        harness.observer.gates["started"].set()
        await advance(5)
        outcome = await call.outcome()

        assert (outcome.status, outcome.timeout) == (CallStatus.TIMED_OUT, 5)
        assert [change.from_timeout for change in harness.observer.changes[call.live.id]] == [60]
        assert harness.observer.names() == ["started", "moved", "ended"]

    @on_manual_clock
    async def test_by_a_policy_that_is_edited_while_the_call_waits(self):
        policies = EditedLevels(override=ToolLimits(timeout=60))
        harness = ExecutorHarness(policies=policies, limits=Limits(max_running=1))
        harness, running, waiting = await one_waits(harness)

        policies.edit(override=ToolLimits(timeout=5))
        harness.executor.apply_policies()
        running.body.release()
        await waiting.running()

        assert waiting.live.timeout == 5
        assert harness.observer.changes[waiting.live.id] == []
        await finish(waiting)

    @on_manual_clock
    async def test_by_a_policy_comes_not_after_the_outcome(self):
        policies = EditedLevels(override=ToolLimits(timeout=60))
        harness = ExecutorHarness(policies=policies)
        harness.gated()
        harness.observer.gates["ended"] = asyncio.Event()
        (call,) = await started(harness, "A")
        call.body.release()
        await settle()

        policies.edit(override=ToolLimits(timeout=5))
        harness.executor.apply_policies()
        await advance(60)
        harness.observer.gates["ended"].set()
        outcome = await call.outcome()

        assert (outcome.timeout, harness.observer.changes[call.live.id]) == (60, [])
        assert harness.observer.names() == ["started", "ended"]
