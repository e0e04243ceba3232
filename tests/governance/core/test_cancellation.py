"""A cancellation is set once, with its cause, and is seen by the whole tree below it (C4)."""

import asyncio
import logging
import threading
from weakref import ref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from governance.core.cancel_reasons import CancelReason
from governance.core.cancellation import Cancellation, CancellationToken, Cancelled, ScopeTokens
from tests.governance.core.support import BY_PARENT, BY_USER, settle
from tests.support import PATIENCE, cancel


def test_the_first_request_wins_and_stays():
    token = CancellationToken()

    assert token.cancel(BY_USER)
    assert not token.cancel(BY_PARENT)
    assert token.cancellation is BY_USER


def test_a_fresh_token_is_not_cancelled():
    token = CancellationToken()

    token.raise_if_cancelled()
    assert not token.is_cancelled
    assert token.cancellation is None


def test_raises_its_cancellation_when_looked_at():
    token = CancellationToken()
    token.cancel(BY_USER)

    with pytest.raises(Cancelled) as raised:
        token.raise_if_cancelled()

    assert raised.value.cancellation is BY_USER


class TestTree:
    def test_a_cancel_reaches_all_descendants(self):
        root = CancellationToken()
        child = root.child()
        grandchild = child.child()

        root.cancel(BY_USER)

        assert child.cancellation is BY_USER
        assert grandchild.cancellation is BY_USER

    def test_a_cancel_does_not_reach_parents_or_siblings(self):
        root = CancellationToken()
        child, sibling = root.child(), root.child()

        child.cancel(BY_USER)

        assert not root.is_cancelled
        assert not sibling.is_cancelled

    def test_a_child_of_a_cancelled_token_is_born_cancelled(self):
        root = CancellationToken()
        root.cancel(BY_USER)

        assert root.child().cancellation is BY_USER

    def test_a_child_keeps_its_own_earlier_cause(self):
        root = CancellationToken()
        child = root.child()

        child.cancel(BY_USER)
        root.cancel(BY_PARENT)

        assert child.cancellation is BY_USER

    def test_a_child_of_several_is_cancelled_with_the_first_of_them(self):
        turn, scope = CancellationToken(), CancellationToken()
        child = CancellationToken(turn, None, scope)

        scope.cancel(BY_USER)
        turn.cancel(BY_PARENT)

        assert child.cancellation is BY_USER

    def test_a_detached_child_of_several_is_not_reached_by_any(self):
        turn, scope = CancellationToken(), CancellationToken()
        child = CancellationToken(turn, scope)
        child.detach()
        child.detach()

        scope.cancel(BY_USER)
        turn.cancel(BY_USER)

        assert not child.is_cancelled

    def test_a_detached_child_is_not_reached_any_more(self):
        root = CancellationToken()
        with root.child() as child:
            pass

        root.cancel(BY_USER)

        assert not child.is_cancelled


class TestCallbacks:
    def test_are_called_once_in_the_order_of_registration(self):
        token, calls = CancellationToken(), []
        for name in "abc":
            token.on_cancel(lambda cancellation, name=name: calls.append((name, cancellation)))

        token.cancel(BY_USER)
        token.cancel(BY_PARENT)

        assert calls == [("a", BY_USER), ("b", BY_USER), ("c", BY_USER)]

    def test_registered_late_are_called_at_once(self):
        token, calls = CancellationToken(), []
        token.cancel(BY_USER)

        token.on_cancel(calls.append)

        assert calls == [BY_USER]

    def test_taken_back_are_not_called(self):
        token, calls = CancellationToken(), []
        forget = token.on_cancel(calls.append)

        forget()
        forget()
        token.cancel(BY_USER)

        assert calls == []

    def test_may_take_back_after_the_request(self):
        token, calls = CancellationToken(), []
        forget = token.on_cancel(calls.append)
        token.cancel(BY_USER)

        forget()

        assert calls == [BY_USER]

    def test_that_fail_do_not_stop_the_others(self, caplog):
        token, calls = CancellationToken(), []

        def fail(_):
            raise ValueError("broken")

        token.on_cancel(fail)
        token.on_cancel(calls.append)

        with caplog.at_level(logging.ERROR):
            token.cancel(BY_USER)

        assert calls == [BY_USER]
        assert "A cancellation callback failed" in caplog.messages


class TestWait:
    async def test_returns_the_request(self):
        token = CancellationToken()
        waiting = asyncio.create_task(token.wait())
        await settle()
        assert not waiting.done()

        token.cancel(BY_USER)

        assert await waiting is BY_USER

    async def test_returns_at_once_if_it_was_made_already(self):
        token = CancellationToken()
        token.cancel(BY_USER)

        assert await token.wait() is BY_USER

    async def test_wakes_up_for_a_request_from_another_thread(self):
        token = CancellationToken()
        waiting = asyncio.create_task(token.wait())
        await settle()

        thread = threading.Thread(target=token.cancel, args=(BY_USER,))
        thread.start()

        assert await waiting is BY_USER
        thread.join()

    async def test_given_up_leaves_nothing_behind(self):
        token = CancellationToken()
        waiting = asyncio.create_task(token.wait())
        await settle()
        await cancel(waiting)

        assert token.cancel(BY_USER)
        await settle()

    async def test_given_up_in_the_moment_of_the_request_leaves_nothing_behind(self, caplog):
        token = CancellationToken()
        waiting = asyncio.create_task(token.wait())
        await settle()

        token.cancel(BY_USER)
        waiting.cancel()
        await settle()

        assert waiting.cancelled()
        assert caplog.messages == []

    def test_outlived_by_its_token_does_not_break_the_request(self, caplog):
        token = CancellationToken()

        async def give_up():
            waiting = asyncio.create_task(token.wait())
            await settle()
            return waiting

        loop = asyncio.new_event_loop()
        try:
            waiting = loop.run_until_complete(give_up())
            waiting.cancel()
            loop.run_until_complete(asyncio.wait({waiting}))
        finally:
            loop.close()

        assert token.cancel(BY_USER)
        assert caplog.messages == []

    def test_blocking_wakes_up_for_a_request_from_another_thread(self):
        token, ready = CancellationToken(), threading.Event()
        answers = []

        def block():
            ready.set()
            answers.append(token.wait_blocking(30))

        thread = threading.Thread(target=block)
        thread.start()
        ready.wait(PATIENCE)
        token.cancel(BY_USER)
        thread.join(5)

        assert answers == [True]

    def test_blocking_gives_up_after_its_timeout(self):
        assert not CancellationToken().wait_blocking(0.001)


class TestScopes:
    """C7: work queued before a cancel never starts after it."""

    def test_a_cancel_reaches_what_is_queued_in_its_scope_only(self):
        scopes = ScopeTokens()
        queued = [CancellationToken(scopes.of("a")) for _ in range(3)]
        elsewhere = CancellationToken(scopes.of("b"))

        scopes.cancel("a", BY_USER)
        later = CancellationToken(scopes.of("a"))

        assert [work.cancellation for work in queued] == [BY_USER] * 3
        assert not elsewhere.is_cancelled
        assert not later.is_cancelled

    def test_a_cancel_of_an_idle_scope_is_for_nothing(self):
        scopes = ScopeTokens()
        scopes.cancel("a", BY_USER)
        assert not scopes.of("a").is_cancelled

    def test_a_scope_without_work_takes_no_memory(self):
        scopes = ScopeTokens()
        root = ref(scopes.of("a"))
        assert root() is None

        with CancellationToken(scopes.of("a")) as work:
            assert scopes.of("a") is scopes.of("a")
        assert not work.is_cancelled
        assert not scopes._tokens

    def test_of_many_threads_all_get_the_token_that_is_cancelled(self):
        scopes, together = ScopeTokens(), threading.Barrier(8)
        queued: list[CancellationToken] = []

        def queue():
            together.wait(PATIENCE)
            queued.append(CancellationToken(scopes.of("a")))

        threads = [threading.Thread(target=queue) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(5)
        scopes.cancel("a", BY_USER)

        assert [work.is_cancelled for work in queued] == [True] * 8

    @given(
        st.lists(
            st.tuples(st.sampled_from(["queue", "end", "cancel"]), st.sampled_from("ab")),
            max_size=60,
        )
    )
    def test_exactly_the_work_older_than_a_cancel_is_cancelled(self, operations):
        scopes = ScopeTokens()
        works: dict[str, list[CancellationToken]] = {"a": [], "b": []}
        cancelled: set[CancellationToken] = set()
        for operation, scope in operations:
            match operation:
                case "queue":
                    works[scope].append(CancellationToken(scopes.of(scope)))
                case "end" if works[scope]:
                    works[scope].pop().detach()
                case "cancel":
                    scopes.cancel(scope, BY_USER)
                    cancelled.update(works[scope])
            for work in (*works["a"], *works["b"]):
                assert work.is_cancelled == (work in cancelled)


def test_of_many_threads_that_cancel_at_once_exactly_one_is_first():
    token, calls, firsts = CancellationToken(), [], []
    token.on_cancel(calls.append)
    together = threading.Barrier(8)

    def cancel():
        together.wait(PATIENCE)
        firsts.append(token.cancel(Cancellation(reason=CancelReason.USER)))

    threads = [threading.Thread(target=cancel) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5)

    assert sorted(firsts) == [False] * 7 + [True]
    assert len(calls) == 1


@given(st.data())
def test_a_cancel_reaches_exactly_the_tokens_below(data):
    parents = data.draw(st.lists(st.integers(0, 6), min_size=1, max_size=7))
    tokens = [CancellationToken()]
    above = {0: {0}}
    for index, parent in enumerate(parents, start=1):
        parent = min(parent, index - 1)
        tokens.append(tokens[parent].child())
        above[index] = above[parent] | {index}
    cancelled = data.draw(st.integers(0, len(parents)))

    tokens[cancelled].cancel(BY_USER)

    assert [token.is_cancelled for token in tokens] == [
        cancelled in above[index] for index in range(len(tokens))
    ]
