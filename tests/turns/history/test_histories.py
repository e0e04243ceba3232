"""Histories rendered from rows that were planted corrupt: valid, repaired once, audited (H1, H3; 60 to 73)."""

import threading
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import connection, transaction
from hypothesis import given, settings
from hypothesis import strategies as st

from governance import Cancellation, CancelReason
from tests.support import PATIENCE
from tests.turns.row_factory import RowFactory, contents, result, said, use
from turns import selectors
from turns.core.messages import Message, TextBlock
from turns.core.prompt_changes import PromptChange, PromptHead
from turns.core.repairs import violations
from turns.core.turns import ending_of
from turns.events import log
from turns.history import histories, prompts
from turns.models import Conversation, Event, Repair
from turns.storage import history_version

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def factory(ada) -> RowFactory:
    return RowFactory(ada)


def read(factory: RowFactory) -> histories.History:
    """Read the history twice: it is valid, and the second read finds and writes nothing."""
    first = histories.load(factory.id, found_when="test")
    assert violations(first.messages) == []
    after = contents(factory.conversation)
    second = histories.load(factory.id, found_when="test")
    assert blocks(second) == blocks(first)
    assert (second.repairs, second.events) == ((), ())
    assert contents(factory.conversation) == after
    return first


def blocks(history: histories.History) -> list[tuple[str, Any]]:
    """What was said by whom: one user may say it in one message or in two."""
    return [(m.role, b) for m in history.messages for b in m.content if b != TextBlock(text="")]


def kinds(history: histories.History) -> list[str]:
    return sorted(repaired.kind.value for repaired in history.repairs)


def results(history: histories.History) -> list[tuple[str, str]]:
    return [(b.tool_use_id, b.content) for m in history.messages for b in m.tool_results]


def talk(factory: RowFactory, *calls: str, status: str = "completed", **turn):
    """A turn that asked for calls and then answered."""
    made = factory.turn(status, **turn)
    factory.message(made, "user", said("question"))
    factory.message(made, "assistant", said("looking"), *map(use, calls))
    return made


def test_a_valid_history_is_unchanged_and_nothing_is_written(factory, django_assert_num_queries):
    turn = talk(factory, "a", "b")
    for name in "ab":
        factory.call(turn, name)
    factory.message(turn, "assistant", said("answer"), step=2)
    before = contents(factory.conversation)
    history = read(factory)
    assert history.repairs == ()
    assert contents(factory.conversation) == before
    assert results(history) == [("a", "the result of a"), ("b", "the result of b")]
    with django_assert_num_queries(2):  # the version, and what is behind it: nothing is locked
        histories.load(factory.id, found_when="test")


@pytest.mark.parametrize(
    ("turn", "cause", "words"),
    [
        ({"status": "interrupted"}, "crash", "the server ended unexpectedly"),
        ({"status": "failed"}, "error", "an internal error ended it"),
        (
            {"status": "failed", "error_code": "chat_model_declined"},
            "error",
            "the chat model declined to answer",
        ),
        (
            {"status": "failed", "error_code": "chat_model_quota"},
            "error",
            "the chat model could not be used",
        ),
        ({"status": "cancelled", "ended_by_reason": "newer"}, "newer", "it was cancelled"),
        *[
            (
                {"status": ending_of(by).status, "ended_by_reason": by.reason},
                by.reason,
                by.reason.row.ended,
            )
            for by in (Cancellation(reason=reason) for reason in CancelReason)
        ],
    ],
)
def test_a_call_without_a_row_is_answered_with_the_cause(factory, turn, cause, words):
    made = talk(factory, "a", **turn)
    history = read(factory)
    assert kinds(history) == ["missing_result"]
    ((call_id, content),) = results(history)
    assert call_id == "a"
    assert content.startswith('[INTERRUPTED] Tool "quick":')
    assert words in content
    row = Repair.objects.get()
    assert (row.tool_id, row.kind, row.cause, row.turn_id, row.found_when) == (
        "a",
        "missing_result",
        cause,
        made.pk,
        "test",
    )
    assert row.text == content
    event = Event.objects.get(type="history_repaired")
    assert event.payload == {
        "repairs": [{"tool_id": "a", "kind": "missing_result", "cause": cause}]
    }
    call = contents(factory.conversation)[1][0]
    assert (call["status"], call["is_synthetic"], call["is_error"]) == ("repaired", True, True)
    assert call["disposition"] == "indeterminate"


def test_an_open_call_of_an_ended_turn_is_answered(factory):
    turn = talk(factory, "a", "b", status="interrupted")
    factory.call(turn, "a", "running")
    factory.call(turn, "b")
    history = read(factory)
    assert kinds(history) == ["missing_result"]
    assert results(history)[1] == ("b", "the result of b")
    assert contents(factory.conversation)[1][0]["status"] == "repaired"


def test_a_planted_result_is_the_calls_result(factory):
    turn = talk(factory, "a")
    factory.message(turn, "user", result("a", "real"), said("and a word"))
    assert results(read(factory)) == [("a", "real")]


def test_a_real_result_takes_the_place_of_a_synthetic_one(factory):
    turn = talk(factory, "a")
    factory.call(turn, "a", "repaired", result="[INTERRUPTED] …", is_error=True, is_synthetic=True)
    factory.message(turn, "user", result("a", "real after all"))
    history = read(factory)
    assert kinds(history)[0] == "synthetic_replaced" or "synthetic_replaced" in kinds(history)
    assert results(history) == [("a", "real after all")]
    call = contents(factory.conversation)[1][0]
    assert (call["status"], call["is_synthetic"]) == ("succeeded", False)


def test_a_synthetic_result_beside_the_calls_real_one_goes(factory):
    turn = talk(factory, "a")
    factory.call(turn, "a")
    factory.message(turn, "user", result("a", "[INTERRUPTED]", is_error=True, is_synthetic=True))
    assert results(read(factory)) == [("a", "the result of a")]


def test_a_result_behind_other_messages_moves_next_to_its_call(factory):
    turn = talk(factory, "a", status="cancelled", ended_by_reason="user")
    later = factory.turn()
    factory.message(later, "user", said("wait"), result("a", "displaced"))
    factory.message(later, "assistant", said("yes"))
    history = read(factory)
    assert kinds(history) == ["moved_result"]
    assert results(history) == [("a", "displaced")]
    assert history.messages[2].tool_results
    assert contents(factory.conversation)[1][0]["group"] == str(turn.pk)


def test_a_result_in_the_next_turns_message_is_kept_with_its_call(factory):
    """The reply to a call belongs to another turn than the call: both rows are put right together."""
    talk(factory, "a")
    later = factory.turn()
    factory.message(later, "user", said("text first"), result("a", "real"))
    factory.message(later, "assistant", said("yes"))
    assert results(read(factory)) == [("a", "real")]


def test_one_id_in_two_turns_keeps_two_results(factory):
    for number in (1, 2):
        turn = talk(factory, "a")
        factory.call(turn, "a", result=f"result {number}")
        factory.message(turn, "assistant", said("answer"), step=2)
    history = read(factory)
    assert history.repairs == ()
    assert results(history) == [("a", "result 1"), ("a", "result 2")]


@pytest.mark.parametrize(
    "broken",
    [
        {"type": "tool_use", "id": "", "name": "quick", "input": {}},
        {"type": "tool_use", "id": "a", "name": "", "input": {}},
        {"type": "tool_use", "id": "a", "name": "quick", "input": '{"pa'},
        {"type": "tool_use", "id": "a", "name": "quick", "input": {}, "is_complete": False},
    ],
)
def test_a_call_cut_off_in_its_stream_is_dropped_and_never_answered(factory, broken):
    turn = factory.turn("interrupted")
    factory.message(turn, "user", said("question"))
    factory.message(turn, "assistant", said("let me"), broken, interrupted=True)
    history = read(factory)
    assert kinds(history) == ["malformed_call"]
    assert results(history) == []
    assert contents(factory.conversation)[1] == []


def test_an_empty_answer_goes_and_the_calls_behind_it_keep_their_results(factory):
    turn = factory.turn()
    factory.message(turn, "user", said("question"))
    factory.message(turn, "assistant", step=1)
    factory.message(turn, "assistant", said("looking"), use("a"), step=2)
    factory.call(turn, "a", step=2)
    factory.message(turn, "assistant", said("answer"), step=3)
    history = read(factory)
    assert kinds(history) == ["empty_message"]
    assert results(history) == [("a", "the result of a")]
    assert [m["step"] for m in contents(factory.conversation)[0]] == [0, 2, 3]


def test_results_on_rows_in_another_order_are_given_in_call_order(factory):
    turn = talk(factory, "a", "b")
    for name in "ba":
        factory.call(turn, name)
    history = read(factory)
    assert history.repairs == ()
    assert [name for name, _ in results(history)] == ["a", "b"]


def test_blocks_of_a_kind_we_do_not_know_survive_a_repair_elsewhere(factory):
    turn = talk(factory, "a")
    factory.message(turn, "user", result("a", "real"), said("ok"), result("nobody"))
    other = factory.turn()
    picture = {"type": "image", "source": "…"}
    kept = factory.message(other, "user", said("look"), picture)
    factory.message(other, "assistant", said("nice"))
    read(factory)
    kept.refresh_from_db()
    assert kept.content == [said("look"), picture]


@pytest.mark.parametrize("status", ["running", "cancelling"])
def test_a_running_turn_is_not_touched(factory, status):
    turn = talk(factory, "a", "b", status=status)
    factory.call(turn, "a", "running")
    factory.call(turn, "b")
    before = contents(factory.conversation)
    history = read(factory)
    assert contents(factory.conversation) == before
    assert [m.texts[0].text for m in history.messages] == ["question"]


def test_a_running_turn_is_not_touched_even_where_it_is_broken(factory):
    ended = talk(factory, "x", status="interrupted")
    turn = talk(factory, "a", status="running")
    factory.message(turn, "assistant", use("lost"), step=2)
    factory.message(turn, "user", result("nobody"))
    factory.call(turn, "a")
    live = list(turn.messages.order_by("pk").values())
    history = read(factory)
    assert list(turn.messages.order_by("pk").values()) == live
    assert {repaired.turn_id for repaired in history.repairs} == {str(ended.pk)}


def test_settled_steps_of_a_running_turn_are_shown(factory):
    turn = talk(factory, "a", status="running")
    factory.call(turn, "a")
    factory.message(turn, "assistant", use("b"), step=2)
    factory.call(turn, "b", "running", step=2)
    assert results(read(factory)) == [("a", "the result of a")]


def test_the_api_gives_the_history_with_every_repair(factory, ada):
    turn = talk(factory, "a", status="interrupted")
    asked = async_to_sync(selectors.history)
    history = asked(conversation_id=factory.id, user=ada)
    assert asked(conversation_id=factory.id, user=ada) == history
    (repaired,) = history["repairs"]
    assert (repaired["tool_id"], repaired["turn_id"], repaired["cause"]) == (
        "a",
        str(turn.pk),
        "crash",
    )
    assert violations([Message.from_json(m) for m in history["messages"]]) == []
    assert Repair.objects.get().found_when == "history_read"


IDS = st.sampled_from(["a", "b", "c"])
BLOCKS = st.one_of(
    st.builds(said, st.sampled_from(["word", " ", ""])),
    st.builds(use, IDS),
    st.builds(result, IDS, st.sampled_from(["one", "two"]), is_synthetic=st.booleans()),
    st.just({"type": "tool_use", "id": "", "name": "", "input": None}),
    st.just({"type": "image"}),
)
MESSAGES = st.tuples(st.sampled_from(["user", "assistant"]), st.lists(BLOCKS, max_size=4))
CALLS = st.dictionaries(
    IDS, st.sampled_from(["succeeded", "running", "pending", "cancelled", "repaired"])
)
TURNS = st.tuples(
    st.sampled_from(["completed", "cancelled", "interrupted", "failed"]),
    st.lists(MESSAGES, max_size=4),
    CALLS,
)


@settings(
    max_examples=40,
)
@given(turns=st.lists(TURNS, min_size=1, max_size=3))
def test_whatever_is_in_the_rows_the_history_is_valid_and_repaired_once(ada, turns):
    factory = RowFactory(ada)
    for status, messages, calls in turns:
        turn = factory.turn(status)
        for step, (role, content) in enumerate(messages, 1):
            factory.message(turn, role, *content, step=step)
        for call_id, call_status in calls.items():
            factory.call(turn, call_id, call_status, is_synthetic=call_status == "repaired")
    history = read(factory)
    seqs = list(Event.objects.filter(conversation=factory.id).values_list("seq", flat=True))
    assert seqs == list(range(1, len(seqs) + 1))
    assert bool(history.repairs) == bool(seqs) == factory.conversation.repairs.exists()


def test_a_valid_history_is_read_although_somebody_holds_the_conversation(factory):
    turn = talk(factory, "a")
    factory.call(turn, "a")
    reading = threading.Thread(target=lambda: found.append(load_and_close(factory)))
    found: list[histories.History] = []
    with transaction.atomic():
        log.locked(factory.id)
        reading.start()
        reading.join(timeout=PATIENCE)
        assert found
    assert results(found[0]) == [("a", "the result of a")]


def test_what_changes_while_a_prompt_is_read_is_told_by_the_next_turn(factory):
    talk(factory)
    turn, head = factory.turn("running"), PromptHead.of("local", "", ())
    place = Conversation.objects.filter(pk=factory.id)
    place.update(prompt_head={"agent": "another", "tools": head.tools})
    read = prompts.read_prompt(factory.id, turn.pk, head)
    history_version.renew([factory.id], PromptChange.PRUNE)
    [told] = prompts.open_prompt(turn, read.opening)
    assert told.reason == PromptChange.AGENT
    turn.delete()
    following = prompts.read_prompt(factory.id, factory.turn("running").pk, head)
    assert following.opening.change == PromptChange.PRUNE


def load_and_close(factory: RowFactory) -> histories.History:
    try:
        return histories.load(factory.id, found_when="test")
    finally:
        connection.close()
