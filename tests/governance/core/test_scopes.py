"""A cancel reaches all that is active or queued in its scope, and nothing else (C7)."""

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from governance.core.cancel_reasons import CancelReason
from governance.core.cancellation import Cancellation, CancellationToken
from governance.core.scopes import NANOSECONDS, ScopeKind, ScopeRegistry

BY_USER = Cancellation(reason=CancelReason.USER)


class Clock:
    """Nanoseconds that only move when told."""

    def __init__(self):
        self.now = 1_000 * NANOSECONDS

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def scopes(clock):
    return ScopeRegistry(retention=60, clock=clock)


def begin(scopes, scope="a", *, kind=ScopeKind.TEXT_REPLY, queued=None):
    work = CancellationToken()
    scopes.begin(scope, kind, work, queued_at=queued)
    return work


def is_cancelled(work):
    return work.is_cancelled


def test_cancel_reaches_every_piece_of_work_in_the_scope(scopes):
    works = [begin(scopes, kind=kind) for kind in ScopeKind]
    assert scopes.active("a") == tuple(works)
    assert scopes.cancel_all("a", BY_USER) == len(works)
    assert {work.cancellation for work in works} == {BY_USER}


def test_cancel_leaves_other_scopes_alone(scopes):
    queued = scopes.stamp()
    other = begin(scopes, "b")
    begin(scopes, "a")
    scopes.cancel_all("a", BY_USER)
    assert not other.is_cancelled
    assert not scopes.is_stale("b", queued)


def test_cancel_of_an_idle_scope_reaches_nothing(scopes):
    assert scopes.cancel_all("a", BY_USER) == 0
    assert not scopes.has("a")


def test_second_cancel_reaches_nothing(scopes):
    begin(scopes)
    assert scopes.cancel_all("a", BY_USER) == 1
    assert scopes.cancel_all("a", BY_USER) == 0


def test_work_is_active_until_it_is_cleared(scopes):
    first, second = begin(scopes), begin(scopes)
    scopes.cancel_all("a", BY_USER)
    assert scopes.has("a")
    scopes.clear("a", first)
    assert scopes.has("a")
    scopes.clear("a", second)
    scopes.clear("a", second)
    assert not scopes.has("a")


def test_cleared_work_is_not_cancelled(scopes):
    work = begin(scopes)
    scopes.clear("a", work)
    assert scopes.cancel_all("a", BY_USER) == 0
    assert not work.is_cancelled


def test_a_cancel_of_everything_reaches_every_scope_and_what_is_queued_there(scopes):
    works, queued = [begin(scopes, "a"), begin(scopes, "b")], scopes.stamp()
    assert scopes.cancel_everything(BY_USER) == 2
    assert all(map(is_cancelled, works))
    assert scopes.is_stale("c", queued)
    assert is_cancelled(begin(scopes, "c", queued=queued))
    assert not is_cancelled(begin(scopes, "c", queued=scopes.stamp()))


def test_what_was_queued_before_a_cancel_is_stale_and_what_comes_after_is_not(scopes):
    before = scopes.stamp()
    scopes.cancel_all("a", BY_USER)
    after = scopes.stamp()
    assert scopes.is_stale("a", before)
    assert not scopes.is_stale("a", after)


def test_order_is_kept_within_one_tick_of_the_clock_and_when_it_goes_back(scopes, clock):
    stamps = [scopes.stamp() for _ in range(3)]
    clock.now -= 5 * NANOSECONDS
    scopes.cancel_all("a", BY_USER)
    later = scopes.stamp()
    assert stamps == sorted(set(stamps))
    assert scopes.is_stale("a", stamps[-1])
    assert not scopes.is_stale("a", later)


def test_stamps_are_strictly_monotonic_over_threads():
    scopes = ScopeRegistry(clock=lambda: 0)
    taken: list[list[int]] = [[] for _ in range(4)]

    def take(stamps):
        stamps.extend(scopes.stamp() for _ in range(500))

    threads = [threading.Thread(target=take, args=(stamps,)) for stamps in taken]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(stamps == sorted(stamps) for stamps in taken)
    assert len({stamp for stamps in taken for stamp in stamps}) == 2000


def test_queued_work_that_a_cancel_overtook_starts_cancelled(scopes):
    queued = scopes.stamp()
    scopes.cancel_all("a", BY_USER)
    work = begin(scopes, queued=queued)
    assert work.cancellation is BY_USER
    assert not is_cancelled(begin(scopes, queued=scopes.stamp()))
    assert not is_cancelled(begin(scopes, "b", queued=queued))


def test_one_that_cannot_be_cancelled_does_not_save_the_others(scopes, caplog):
    class Broken:
        def cancel(self, cancellation, /):
            raise RuntimeError("no")

    scopes.begin("a", ScopeKind.VOICE, Broken())
    good = begin(scopes)
    assert scopes.cancel_all("a", BY_USER) == 1
    assert good.is_cancelled
    assert "could not be cancelled" in caplog.text


def test_a_callback_may_use_the_registry(scopes):
    work = begin(scopes)
    work.on_cancel(lambda _: scopes.clear("a", work))
    assert scopes.cancel_all("a", BY_USER) == 1
    assert not scopes.has("a")


def test_cutoffs_of_idle_scopes_are_forgotten_after_their_retention(scopes, clock):
    for n in range(1000):
        scopes.cancel_all(f"old {n}", BY_USER)
    clock.now += 61 * NANOSECONDS
    for n in range(400):
        scopes.cancel_all(f"new {n}", BY_USER)
    assert len(scopes._cutoffs) == 400


def test_a_young_cutoff_is_kept(scopes, clock):
    queued = scopes.stamp()
    scopes.cancel_all("a", BY_USER)
    clock.now += 59 * NANOSECONDS
    for n in range(50):
        scopes.cancel_all(f"s{n}", BY_USER)
    assert scopes.is_stale("a", queued)


OPERATIONS = st.tuples(
    st.sampled_from(["queue", "start", "clear", "cancel", "tick"]), st.sampled_from("ab")
)


@given(st.lists(OPERATIONS, max_size=60))
def test_no_queued_work_older_than_a_cancel_ever_runs(operations):
    clock = Clock()
    scopes = ScopeRegistry(retention=3600, clock=clock)
    queued: dict[str, list[int]] = {"a": [], "b": []}
    running: dict[str, list[CancellationToken]] = {"a": [], "b": []}
    overtaken: set[int] = set()
    for operation, scope in operations:
        match operation:
            case "queue":
                queued[scope].append(scopes.stamp())
            case "start" if queued[scope]:
                stamp = queued[scope].pop()
                work = begin(scopes, scope, queued=stamp)
                running[scope].append(work)
                assert work.is_cancelled == (stamp in overtaken) == scopes.is_stale(scope, stamp)
            case "clear" if running[scope]:
                scopes.clear(scope, running[scope].pop())
            case "cancel":
                fresh = sum(not is_cancelled(work) for work in running[scope])
                assert scopes.cancel_all(scope, BY_USER) == fresh
                overtaken.update(queued[scope])
            case "tick":
                clock.now += 1
        assert all(scopes.has(name) == bool(works) for name, works in running.items())
