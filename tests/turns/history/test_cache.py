"""Histories that are kept and continued: always what a full read of the rows gives, whoever writes them (F5)."""

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from hypothesis import given, settings
from hypothesis import strategies as st

from governance import LateSettlement
from governance.models import ToolCall
from tests.support import PATIENCE
from tests.turns.row_factory import RowFactory, result, said, use
from tests.turns.support import ChatDriver, in_database
from turns.calls import late_settlements
from turns.core.messages import Message, TextBlock, ToolUseBlock
from turns.core.turns import TurnEnding, TurnStatus
from turns.endings import turn_endings
from turns.events import log
from turns.history import histories
from turns.history.histories import HistoryCache, Settled
from turns.models import Conversation, Turn
from turns.models import Message as MessageRow
from turns.storage import history_version, retention
from turns.testing import text

pytestmark = pytest.mark.django_db(transaction=True)

PLENTY = 1_000_000


@pytest.fixture
def factory(ada) -> RowFactory:
    return RowFactory(ada)


@pytest.fixture
def cache() -> HistoryCache:
    return HistoryCache(lambda: PLENTY)


def talk(factory: RowFactory, *calls: str, status: str = "completed") -> Turn:
    """A turn that asked for calls, whose rows say that they are over, and then answered."""
    turn = factory.turn()
    factory.message(turn, "user", said("question"))
    if calls:
        factory.message(turn, "assistant", said("looking"), *map(use, calls))
    for name in calls:
        factory.call(turn, name, status)
    factory.message(turn, "assistant", said("answer"), step=2)
    return turn


def read(factory: RowFactory, cache: HistoryCache) -> histories.History:
    """Read by the cache; a full read under the lock comes to the same."""
    history = histories.read(factory.id, cache=cache)
    assert history is not None
    slow = histories.load_repaired(factory.id, found_when="test")
    assert (history.messages, slow.repairs) == (slow.messages, ())
    return history


def texts(history: histories.History) -> list[str]:
    return [block.text for message in history.messages for block in message.texts]


def valid_position(factory: RowFactory) -> int:
    return Conversation.objects.values_list("valid_position", flat=True).get(pk=factory.id)


def test_what_was_read_is_continued_with_what_was_added(factory, cache):
    for name in "abc":
        talk(factory, name)
    first = read(factory, cache)
    talk(factory, "d")
    second = read(factory, cache)
    assert len(second.messages) == len(first.messages) + 4
    assert all(old is kept for old, kept in zip(first.messages, second.messages, strict=False))


def test_only_the_rows_behind_what_is_known_are_read(factory, cache):
    for name in "abc":
        talk(factory, name)
    read(factory, cache)
    turn = factory.turn("running")
    factory.message(turn, "user", said("new"))
    with CaptureQueriesContext(connection) as queries:
        histories.read(factory.id, cache=cache)
    assert len(queries) == 2  # the version, and the new message: it asks for no call
    assert f'"position" > {factory.conversation.last_position - 1} ' in queries[1]["sql"]


def test_nothing_is_kept_of_a_turn_that_still_runs(factory, cache):
    talk(factory, "a")
    live = factory.turn("running")
    factory.message(live, "user", said("now"))
    factory.message(live, "assistant", said("looking"), use("b"))
    open_call = factory.call(live, "b", "running")
    assert texts(read(factory, cache))[-1] == "now"
    ToolCall.objects.filter(pk=open_call.pk).update(status="succeeded", result="done")
    assert texts(read(factory, cache))[-1] == "looking"
    turn_endings.end_turn(live.pk, TurnEnding(status=TurnStatus.COMPLETED))
    talk(factory)
    assert texts(read(factory, cache)).count("looking") == 2


def test_a_change_by_another_process_counts_at_once(factory, cache):
    turn = talk(factory, "a")
    talk(factory)
    assert "answer" in texts(read(factory, cache))
    with transaction.atomic():
        log.locked(factory.id)
        turn.messages.filter(step=2).update(content=[said("another answer")])
        history_version.renew([factory.id])
    assert "another answer" in texts(read(factory, cache))


def test_what_is_pruned_is_gone(factory, cache):
    talk(factory, "a")
    read(factory, cache)
    retention.prune(timedelta(seconds=1))
    assert read(factory, cache).messages == ()


def test_a_repair_of_what_was_read_long_ago_counts(factory, cache):
    """A result that turns up later takes the place of one that a repair had put in."""
    turn = factory.turn("interrupted")
    factory.message(turn, "user", said("question"))
    factory.message(turn, "assistant", use("a"))
    factory.call(turn, "a", "repaired", result="[INTERRUPTED] …", is_error=True, is_synthetic=True)
    read(factory, cache)
    later = factory.turn()
    factory.message(later, "user", said("so"), result("a", "real after all"))
    factory.message(later, "assistant", said("yes"))
    assert histories.read(factory.id, cache=cache) is None
    assert histories.load_repaired(factory.id, found_when="test").repairs
    results = [b.content for m in read(factory, cache).messages for b in m.tool_results]
    assert results == ["real after all"]


def test_a_change_between_two_statements_of_a_read_is_not_kept_under_the_old_version(
    factory, cache
):
    turn = talk(factory)
    rows = turn.messages.filter(step=2)

    def change_before(execute: Callable[..., Any], sql: str, *more: Any) -> Any:
        if 'FROM "turns_message"' in sql and "pending" in sql_seen:
            sql_seen.clear()
            rows.update(content=[said("changed")])
            history_version.renew([factory.id])
        return execute(sql, *more)

    sql_seen = ["pending"]
    with connection.execute_wrapper(change_before):
        assert "changed" in texts(histories.read(factory.id, cache=cache))
    rows.update(content=[said("changed again")])
    assert "changed again" in texts(read(factory, cache))


def test_readers_beside_a_writer_come_to_what_it_has_written(factory):
    """Each thread has a connection and a cache of its own, as processes have."""
    first = talk(factory, "a")
    has_ended = threading.Event()

    def read_on(cache: HistoryCache) -> None:
        try:
            while not has_ended.is_set():
                histories.read(factory.id, cache=cache)
        finally:
            connection.close()

    caches = [HistoryCache(lambda: PLENTY) for _ in range(2)]
    readers = [threading.Thread(target=read_on, args=(cache,)) for cache in caches]
    for reader in readers:
        reader.start()
    for number in range(20):
        with transaction.atomic():
            log.locked(factory.id)
            first.messages.filter(step=2).update(content=[said(f"edited {number}")])
            history_version.renew([factory.id])
        talk(factory, "a")
    has_ended.set()
    for reader in readers:
        reader.join(timeout=PATIENCE)
    for cache in caches:
        assert "edited 19" in texts(read(factory, cache))


def test_what_is_rolled_back_is_not_kept(factory, cache):
    talk(factory)
    with transaction.atomic():
        talk(factory, "a")
        assert len(histories.read(factory.id, cache=cache).messages) == 6
        transaction.set_rollback(True)
    assert len(read(factory, cache).messages) == 2


def test_a_cold_start_checks_only_what_was_not_checked(factory, monkeypatch):
    monkeypatch.setattr(histories, "STORED_EVERY", 4)
    for name in "ab":
        talk(factory, name)
    first = histories.read(factory.id)
    histories.note_checked(factory.id, first.checked)
    assert valid_position(factory) == 6
    talk(factory, "c")
    checked = []
    monkeypatch.setattr(histories, "violations", lambda messages: checked.extend(messages) or [])
    history = read(factory, HistoryCache(lambda: PLENTY))
    assert checked == list(history.messages[8:])
    assert history.checked is None  # three are too few to be worth a write


def test_how_far_it_is_valid_is_forgotten_with_the_version(factory):
    talk(factory)
    checked = histories.Checked(version=0, position=2)
    histories.note_checked(factory.id, checked)
    assert valid_position(factory) == 2
    history_version.renew([factory.id])
    assert valid_position(factory) == 0
    histories.note_checked(factory.id, checked)  # by whoever had read before
    assert valid_position(factory) == 0


async def test_a_turn_stores_how_far_its_history_is_valid(chat: ChatDriver, monkeypatch):
    monkeypatch.setattr(histories, "STORED_EVERY", 4)
    chat.use_script(*([text("fine")] for _ in range(4)))
    for _ in range(4):
        await chat.run("hello")
    stored = Conversation.objects.values_list("valid_position", flat=True)
    assert await in_database(lambda: stored.get(pk=chat.id)) == 4


def settled(said_once: str, *, version: int = 0) -> Settled:
    message = Message(role="user", content=(TextBlock(text=said_once),))
    return Settled(version=version).followed_by([message], position=1)


def test_histories_that_were_not_asked_for_are_dropped_first():
    one = settled("x" * 1_000)
    cache = HistoryCache(lambda: 2 * one.memory)
    for key in "ab":
        cache.put(key, one)
    cache.get("a", version=0)
    cache.put("c", one)
    assert [len(cache.get(key, version=0).messages) for key in "abc"] == [1, 0, 1]


def test_a_history_that_is_larger_than_all_may_be_is_not_kept():
    cache = HistoryCache(lambda: 1_000)
    cache.put("a", settled("x" * 10_000))
    assert cache.get("a", version=0).messages == ()


def test_of_another_version_nothing_is_given():
    cache = HistoryCache(lambda: PLENTY)
    cache.put("a", settled("old"))
    assert cache.get("a", version=1) == Settled(version=1)


def test_the_memory_of_a_history_is_about_what_it_takes():
    import tracemalloc

    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    messages = [
        Message.from_json(
            {
                "role": "assistant",
                "turn_id": f"{number:036}",
                "content": [
                    {"type": "text", "text": f"{number} é" * 40},
                    {
                        "type": "tool_use",
                        "id": f"c{number}",
                        "name": "exec",
                        "input": {"command": f"ls {number}"},
                    },
                ],
            }
        )
        for number in range(2_000)
    ]
    taken = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    memory = Settled(version=0).followed_by(messages, position=1).memory
    assert 0.6 * taken < memory < 1.6 * taken
    assert isinstance(messages[0].content[1], ToolUseBlock)


# Any order of what happens to a conversation, seen by two processes

NAMES = st.lists(st.sampled_from("abc"), max_size=2, unique=True)
MOVES = st.one_of(
    st.tuples(st.just("talk"), NAMES),
    st.tuples(st.just("begin"), NAMES),
    st.tuples(st.just("go_on"), st.booleans()),
    st.tuples(st.just("end"), st.sampled_from(["completed", "interrupted"])),
    st.tuples(st.just("corrupt"), st.integers(0, 3)),
    st.tuples(st.just("edit"), st.integers(0, 20)),
    st.tuples(st.just("delete"), st.integers(0, 20)),
    st.tuples(st.just("settle_late"), st.none()),
    st.tuples(st.just("prune"), st.integers(1, 4)),
)
CORRUPTIONS = (
    ("assistant", use("a")),
    ("assistant", said(" ")),
    ("user", said("so"), result("a")),
    ("user", use("b")),
)


class OneConversation:
    """Moves as they are made by owners of turns, by repairs, by administrators and by `prune`."""

    def __init__(self, factory: RowFactory) -> None:
        self.factory = factory
        self.live: Turn | None = None

    def move(self, name: str, argument: Any) -> None:
        getattr(self, name)(argument)

    def talk(self, calls: list[str]) -> None:
        if self.live is None:
            talk(self.factory, *calls, status="abandoned" if "c" in calls else "succeeded")

    def begin(self, calls: list[str]) -> None:
        if self.live is not None:
            return
        self.live = self.factory.turn("running")
        self.factory.message(self.live, "user", said("now"))
        if calls:
            self.factory.message(self.live, "assistant", *map(use, calls))
        for place, name in enumerate(calls):
            self.factory.call(self.live, name, "running" if place else "succeeded")

    def go_on(self, does_say: bool) -> None:
        if self.live is None:
            return
        calls = ToolCall.objects.filter(group=str(self.live.pk), status="running")
        calls.update(status="succeeded", result="done")
        if does_say:
            self.factory.message(self.live, "assistant", said("so"), step=2)

    def end(self, status: str) -> None:
        if self.live is not None:
            turn_endings.end_turn(self.live.pk, TurnEnding(status=TurnStatus(status)))
            self.live = None

    def corrupt(self, kind: int) -> None:
        if self.live is None:
            role, *blocks = CORRUPTIONS[kind]
            self.factory.message(self.factory.turn("interrupted"), role, *blocks)

    def edit(self, place: int) -> None:
        with transaction.atomic():
            log.locked(self.factory.id)
            for row in self._chosen(place):
                row.content = [said(f"edited {row.content[0].get('text')}"), *row.content[1:]]
                row.save()
            history_version.renew([self.factory.id])

    def delete(self, place: int) -> None:
        with transaction.atomic():
            log.locked(self.factory.id)
            for row in self._chosen(place):
                row.delete()
            history_version.renew([self.factory.id])

    def settle_late(self, _: None) -> None:
        late = LateSettlement(kind="returned", text="after all", after=1.0)
        for call in ToolCall.objects.filter(scope=str(self.factory.id), status="abandoned"):
            late_settlements.settle(Turn.objects.get(pk=call.group).pk, call.call_id, late)

    def prune(self, count: int) -> None:
        retention.prune(timedelta(seconds=100 - count))
        self.factory.conversation.refresh_from_db()

    def _chosen(self, place: int) -> list[MessageRow]:
        """One message of a turn that is over, which says something and nothing else."""
        rows = [
            row
            for row in self.factory.conversation.messages.exclude(turn=self.live)
            if [block["type"] for block in row.content] == ["text"]
        ]
        return rows[place : place + 1]


@settings(
    max_examples=40,
)
@given(
    moves=st.lists(
        st.tuples(MOVES, st.lists(st.tuples(st.sampled_from([0, 1]), st.booleans()), max_size=3)),
        max_size=12,
    )
)
def test_whatever_happens_each_process_reads_what_a_full_read_gives(ada, moves, monkeypatch):
    monkeypatch.setattr(histories, "STORED_EVERY", 1)
    factory = RowFactory(ada)
    conversation = OneConversation(factory)
    caches = [HistoryCache(lambda: PLENTY), HistoryCache(lambda: 5_000)]
    for move, readers in [*moves, (("end", "completed"), [(0, False), (1, False)])]:
        conversation.move(*move)
        for process, stores in readers:
            history = histories.read(factory.id, cache=caches[process])
            slow = histories.load_repaired(factory.id, found_when="test")
            assert (history is None) == bool(slow.repairs)
            if history is not None:
                assert history.messages == slow.messages
                if stores and history.checked is not None:
                    histories.note_checked(factory.id, history.checked)
            factory.conversation.refresh_from_db()
