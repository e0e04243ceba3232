"""No limit is ever exceeded, no exclusive call overlaps, and everybody who waits gets in (P2, P4)."""

import asyncio
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from governance.core.cancellation import CancellationToken
from governance.core.exceptions import QueueFull, QueueTimeout
from governance.core.limiter import Limiter, Limits, Ticket
from governance.core.tools import Concurrency, Isolation
from tests.governance.core.support import BY_USER, ManualLoop, advance, on_manual_clock, settle


class LimitedCall:
    """One call at the limiter's door."""

    def __init__(
        self,
        limiter,
        scope="a",
        *,
        tool="t",
        concurrency="parallel",
        cap=None,
        isolation="async",
        counts=True,
    ):
        self.ticket = Ticket(
            scope=scope,
            tool_name=tool,
            concurrency=Concurrency(concurrency),
            isolation=Isolation(isolation),
            max_running=cap,
            counts=counts,
        )
        self.tool = tool
        self.concurrency = concurrency
        self.limiter = limiter
        self.token = CancellationToken()
        self.task = asyncio.create_task(limiter.enter(self.ticket, token=self.token))
        self.has_left = False

    @property
    def is_in(self):
        return self.was_let_in and not self.has_left

    @property
    def was_let_in(self):
        task = self.task
        return task.done() and not task.cancelled() and not task.exception() and task.result()

    @property
    def waits(self):
        return not self.task.done()

    def leave(self):
        self.has_left = True
        self.limiter.leave(self.ticket)


async def arrive(limiter, *scopes, **facts):
    visitors = [LimitedCall(limiter, scope, **facts) for scope in scopes]
    await settle()
    return visitors


def inside(*visitors):
    return [visitor.is_in for visitor in visitors]


EXCLUSIVE, SUPERSEDE = {"concurrency": "exclusive"}, {"concurrency": "supersede"}
CAPPED, IN_THREAD = {"tool": "capped", "cap": 1}, {"isolation": "thread"}
ONE_IN_ALL, ONE_IN_SCOPE = Limits(max_running=1), Limits(max_running_per_scope=1)
# Who arrives one after the other, who of them is in, and who is once the first has left.
DOORS = {
    "the process limit holds over all scopes": (
        Limits(max_running=2),
        [("a", {}), ("b", {}), ("c", {})],
        (True, True, False),
        (True, True),
    ),
    "the scope limit lets other scopes pass": (
        ONE_IN_SCOPE,
        [("a", {}), ("a", {}), ("b", {})],
        (True, False, True),
        (True, True),
    ),
    "the tool limit lets other tools pass": (
        Limits(),
        [("a", CAPPED), ("b", CAPPED), ("b", {})],
        (True, False, True),
        (True, True),
    ),
    "the capacity of an isolation lets others pass": (
        Limits(),
        [("a", IN_THREAD), ("b", IN_THREAD), ("b", {})],
        (True, False, True),
        (True, True),
    ),
    "an exclusive one keeps its scope to itself": (
        Limits(),
        [("a", EXCLUSIVE), ("a", {}), ("a", {}), ("a", EXCLUSIVE), ("b", EXCLUSIVE)],
        (True, False, False, False, True),
        (True, True, False, True),
    ),
    "an exclusive one waits for an empty scope and is not overtaken there": (
        Limits(),
        [("a", {}), ("a", EXCLUSIVE), ("a", {}), ("a", {}), ("b", {})],
        (True, False, False, False, True),
        (True, False, False, True),
    ),
    "a superseding one runs beside no other of its tool in its scope": (
        Limits(),
        [("a", SUPERSEDE), ("a", SUPERSEDE), ("b", SUPERSEDE), ("a", {"tool": "x", **SUPERSEDE})],
        (True, False, True, True),
        (True, True, True),
    ),
    "a queue that is full of one scope refuses nobody who fits": (
        Limits(max_running_per_scope=1, max_queued=1),
        [("a", {}), ("a", {}), ("b", {})],
        (True, False, True),
        (True, True),
    ),
}


@pytest.mark.parametrize(("limits", "arrivals", "at_first", "then"), DOORS.values(), ids=DOORS)
async def test_who_is_let_in(limits, arrivals, at_first, then):
    limiter = Limiter(limits, capacities={Isolation.THREAD: 1})
    visitors = [
        visitor for scope, facts in arrivals for visitor in await arrive(limiter, scope, **facts)
    ]
    assert tuple(inside(*visitors)) == at_first
    assert (limiter.running, limiter.queued) == (at_first.count(True), at_first.count(False))
    visitors[0].leave()
    await settle()
    assert tuple(inside(*visitors[1:])) == then


async def test_those_who_wait_get_in_in_the_order_of_their_arrival():
    limiter = Limiter(ONE_IN_ALL)
    visitors = await arrive(limiter, *"abcd")
    order = []
    for _ in visitors:
        (current,) = [visitor for visitor in visitors if visitor.is_in]
        order.append(visitors.index(current))
        current.leave()
        await settle()
    assert order == [0, 1, 2, 3]


async def test_an_exclusive_one_that_gives_up_waiting_lets_those_behind_it_in():
    limiter = Limiter(Limits())
    await arrive(limiter, "a")
    (exclusive,) = await arrive(limiter, "a", concurrency="exclusive")
    (behind,) = await arrive(limiter, "a")
    exclusive.token.cancel(BY_USER)
    await settle()
    assert behind.is_in


class TestQueue:
    async def test_that_is_full_refuses(self):
        limiter = Limiter(Limits(max_running=1, max_queued=1))

        visitors = await arrive(limiter, *"abc")

        with pytest.raises(QueueFull):
            await visitors[2].task
        assert visitors[1].waits
        assert limiter.queued == 1

    async def test_of_length_zero_refuses_whoever_does_not_fit(self):
        limiter = Limiter(Limits(max_running=1, max_queued=0))

        first, second = await arrive(limiter, "a", "b")

        assert first.is_in
        with pytest.raises(QueueFull):
            await second.task

    @on_manual_clock
    async def test_gives_up_after_its_timeout(self):
        limiter = Limiter(Limits(max_running=1, queue_timeout=30))
        first, second, third = await arrive(limiter, "a", "b", "c")

        await advance(30)

        for visitor in (second, third):
            with pytest.raises(QueueTimeout, match="within 30s"):
                await visitor.task
        first.leave()
        assert (limiter.running, limiter.queued) == (0, 0)

    async def test_a_cancelled_token_never_enters(self):
        limiter = Limiter(Limits())
        token = CancellationToken()
        token.cancel(BY_USER)
        ticket = Ticket(scope="a", tool_name="t", concurrency=Concurrency.PARALLEL)

        assert not await limiter.enter(ticket, token=token)
        assert limiter.running == 0

    async def test_a_cancel_ends_the_wait(self):
        limiter = Limiter(Limits(max_running=1))
        _, waiting = await arrive(limiter, "a", "b")

        waiting.token.cancel(BY_USER)

        assert await waiting.task is False
        assert (limiter.running, limiter.queued) == (1, 0)


class TestSlotThatComesFreeAsAWaitEnds:
    """The wait is over, but its task has not seen it yet. It must not get a slot that nobody gives back."""

    async def test_is_not_lost_to_a_cancelled_task(self):
        limiter = Limiter(Limits(max_running=1))
        first, second, third = await arrive(limiter, *"abc")

        second.task.cancel()
        first.leave()
        await settle()

        assert third.is_in
        third.leave()
        assert limiter.running == 0

    async def test_is_not_lost_to_a_cancelled_token(self):
        limiter = Limiter(Limits(max_running=1))
        first, second, third = await arrive(limiter, *"abc")

        second.token.cancel(BY_USER)
        asyncio.get_running_loop().call_soon(first.leave)
        await settle()

        assert second.was_let_in is False
        assert third.is_in

    @on_manual_clock
    async def test_is_not_lost_to_a_wait_that_took_too_long(self):
        limiter = Limiter(Limits(max_running=1, queue_timeout=30))
        first, second = await arrive(limiter, "a", "b")

        asyncio.get_running_loop().call_later(30, first.leave)
        await advance(30)

        assert (limiter.running, limiter.queued) == (0, 0)
        with pytest.raises(QueueTimeout):
            await second.task

    async def test_is_given_back_by_a_task_that_is_cancelled_just_after(self):
        limiter = Limiter(Limits(max_running=1))
        first, second, third = await arrive(limiter, *"abc")

        first.leave()
        second.task.cancel()
        await settle()

        assert third.is_in
        assert limiter.running == 1


LIMITS = Limits(max_running=4, max_running_per_scope=2, max_queued=6, queue_timeout=60)
CAPACITIES = {Isolation.THREAD: 2}
TOOLS = [
    {"tool": "plain"},
    {"tool": "threaded", "isolation": "thread"},
    {"tool": "capped", "cap": 1},
    {"tool": "exclusive", "concurrency": "exclusive"},
    {"tool": "capped exclusive", "concurrency": "exclusive", "cap": 1, "isolation": "thread"},
    {"tool": "superseding", "concurrency": "supersede"},
]
arrivals = st.tuples(st.sampled_from("ab"), st.sampled_from(TOOLS))
moves = st.lists(
    st.tuples(st.just("arrive"), arrivals)
    | st.tuples(
        st.sampled_from(["leave", "leave", "leave", "cancel", "kill", "wait"]), st.integers(0, 30)
    ),
    max_size=40,
)


def check(limiter, visitors):
    """No limit is exceeded by those who are in."""
    present = [visitor.ticket for visitor in visitors if visitor.is_in]
    assert limiter.running == len(present) <= LIMITS.max_running
    assert limiter.queued <= LIMITS.max_queued
    scopes = Counter(ticket.scope for ticket in present)
    assert all(count <= LIMITS.max_running_per_scope for count in scopes.values())
    tools = Counter(visitor.tool for visitor in visitors if visitor.is_in)
    assert tools["capped"] <= 1
    assert tools["capped exclusive"] <= 1
    assert sum(ticket.isolation is Isolation.THREAD for ticket in present) <= 2
    for visitor in visitors:
        ticket = visitor.ticket
        assert (limiter.obstacle(ticket) is not None) is visitor.waits
        if visitor.is_in and visitor.concurrency == "exclusive":
            assert scopes[ticket.scope] == 1
        if visitor.is_in and visitor.concurrency == "supersede":
            same = [other for other in visitors if other.is_in and other.tool == visitor.tool]
            assert sum(other.ticket.scope == ticket.scope for other in same) == 1


async def play(steps):
    limiter = Limiter(LIMITS, capacities=CAPACITIES)
    visitors = []
    for move, argument in steps:
        present = [visitor for visitor in visitors if visitor.is_in]
        waiting = [visitor for visitor in visitors if visitor.waits]
        if move == "arrive":
            scope, tool = argument
            visitors.append(LimitedCall(limiter, scope, **tool))
        elif move == "leave" and present:
            present[argument % len(present)].leave()
        elif move == "cancel" and waiting:
            waiting[argument % len(waiting)].token.cancel(BY_USER)
        elif move == "kill" and waiting:
            waiting[argument % len(waiting)].task.cancel()
        elif move == "wait":
            await advance(argument)
        if move in ("arrive", "wait"):  # the others race with each other
            await settle()
            check(limiter, visitors)
    await settle()
    check(limiter, visitors)
    await let_everybody_through(limiter, visitors)


async def let_everybody_through(limiter, visitors):
    waiting = [visitor for visitor in visitors if visitor.waits]
    while limiter.running:
        for visitor in visitors:
            if visitor.is_in:
                visitor.leave()
        await settle()
        check(limiter, visitors)
    assert all(visitor.was_let_in for visitor in waiting)  # nobody starves
    assert (limiter.running, limiter.queued) == (0, 0)
    for visitor in visitors:
        if visitor.task.done() and not visitor.task.cancelled():
            visitor.task.exception()
    (alone,) = await arrive(limiter, "a", **TOOLS[4])
    assert alone.is_in  # nothing is counted that is not there


@given(moves)
def test_whatever_comes_and_goes_limits_hold_and_nobody_starves(steps):
    with asyncio.Runner(loop_factory=ManualLoop) as runner:
        runner.run(play(steps))


@on_manual_clock
async def test_one_that_only_waits_for_others_takes_no_slot_from_them():
    limiter = Limiter(Limits(max_running=1))
    asking = await arrive(limiter, "a", "b", counts=False)
    [work] = await arrive(limiter, "c")
    [more] = await arrive(limiter, "d")
    [asking_too] = await arrive(limiter, "e", counts=False)

    assert all(visitor.is_in for visitor in (*asking, work, asking_too))
    assert more.waits
    assert limiter.running == 1
    for visitor in (*asking, work, asking_too):
        visitor.leave()
    await settle()
    assert more.is_in
    more.leave()
    assert limiter.running == 0
